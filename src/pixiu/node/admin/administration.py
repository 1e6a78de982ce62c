"""``api.Administration`` on a running node, and the dead letters of one that does not run."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import TYPE_CHECKING

from msgspec.json import encode

from pixiu.config import Settings
from pixiu.node.admin.letters import letter_view, scheduled_view
from pixiu.node.admin.session_view import session_view
from pixiu.node.admin.stats import Doors, Stats
from pixiu.node.admin.stats_history import StatsHistory
from pixiu.node.admin.topics import TopicViews
from pixiu.node.erasure import redact_running
from pixiu.node.explain import explaining
from pixiu.node.logs import stopped_log
from pixiu.node.stopped import open_store
from pixiu.ports.log import SCHEDULE
from pixiu.queue.engine import Engine
from pixiu.roles.carrier.dead_letters import dead_letters
from pixiu.runtime.clock import SystemClock
from pixiu.runtime.datadir import DataDirectory
from pixiu.runtime.files import SystemFiles
from pixiu.runtime.scheduler import NoScheduler

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from pixiu.im.draft import Answer
    from pixiu.model.errors import PixiuError
    from pixiu.node.admin.lake_report import LakeReport
    from pixiu.node.host import MessagingHost
    from pixiu.node.pipeline_child import PipelineChild
    from pixiu.roles.carrier.cut import Cut

__all__ = ["NodeAdministration", "stopped_dead_letters"]

CUT_ROWS = 5000
"""Entries of one line of a cut."""
BETWEEN_RUNS = ("waiting", "resting", "failed", "off")
"""States of the pipeline in which its tables stay as they are."""


class NodeAdministration:
    """Looks after the roles of this process."""

    def __init__(
        self,
        host: MessagingHost,
        doors: Doors | None = None,
        *,
        pipeline: PipelineChild | None = None,
        lake_report: LakeReport | None = None,
    ) -> None:
        """``doors``: what clients come through, where there is any. ``pipeline``: the one beside this node.

        ``lake_report`` reads the tables that it makes.
        """
        self._host = host
        self._messaging = host.messaging
        self._directory = host.messaging.proxy.context.directory
        self._topics = TopicViews(host.engine, self._directory, host.messaging.carrier.applied)
        self._stats = Stats(host, self._topics, doors or Doors())
        self.history = StatsHistory(self._stats)
        self._pipeline = pipeline
        self._lake_report = lake_report

    def stats(self) -> Answer:
        """What goes on, as raw numbers: whoever asks twice knows the rates."""
        return self._stats.read()

    def stats_history(self, after: int) -> Answer:
        """Samples of the last half hour."""
        return self.history.read(after)

    def sessions(self, user: str | None, after: int, limit: int) -> list[Answer]:
        """A user's sessions, or everyone's, newest first."""
        relay = self._messaging.relay
        if user is None:
            return [session_view(each, self._directory) for each in relay.sessions(after, limit)]
        found = [each for each in relay.sessions_of(self._directory.user(user)) if not after or each.session_id < after]
        return [session_view(each, self._directory) for each in found[:limit]]

    def kick(self, user: str, session_id: int | None, reason: str) -> int:
        """Close one session of a user, or all."""
        number, relay = self._directory.user(user), self._messaging.relay
        wanted = [each.session_id for each in relay.sessions_of(number)] if session_id is None else [session_id]
        return sum(relay.kick(number, each, reason) for each in wanted)

    def dead_letters(self, after: int, limit: int) -> list[Answer]:
        """Those behind an id, oldest first."""
        found = [letter for letter in dead_letters(self._host.log) if letter.event_id > after]
        return [letter_view(letter, self._directory) for letter in found[:limit]]

    async def replay(self, dead_letter_id: int) -> None:
        """Give one back."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def replayed(error: PixiuError | None) -> None:
            if done.done():
                return
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        self._messaging.carrier.dead.replay(dead_letter_id, replayed)
        await done

    def scheduled(self, after: int, limit: int) -> list[Answer]:
        """By the order of scheduling, so that pages do not shift."""
        waiting = sorted(each for each in self._host.log.scheduled(SCHEDULE) if each.schedule_id > after)
        return [
            {"schedule_id": str(each.schedule_id), "at": each.due, **scheduled_view(each.payload, self._directory)}
            for each in waiting[:limit]
        ]

    def topics(self, after: str, limit: int) -> list[Answer]:
        """By name."""
        return self._topics.page(after, limit)

    def tail(self, topic: str, after: int | None, limit: int) -> Answer:
        """The newest messages of a topic, or those behind an event id."""
        return self._topics.tail(topic, after, limit)

    async def redact(self) -> Answer:
        """Blank what erased users wrote in this node's own files."""
        report = await redact_running(self._host)
        return {**asdict(report), "users": [self._directory.user_name(user) for user in report.users]}

    async def audit(self, at_least: int, before: int | None) -> Answer:
        """Take the books now."""
        return (await self._host.audit(at_least=at_least, before=before)).as_json()

    async def explain(self, message_id: int) -> Answer:
        """Look for it a batch at a time, between other work; what was measured is written first."""
        self._messaging.tracing.write()
        await self._host.written()
        for answer in explaining(self._host.log, self._host.stores, message_id):
            if answer is not None:
                return answer
            await asyncio.sleep(0)
        raise AssertionError("an explanation ends with an answer")

    async def cut(self) -> AsyncIterator[bytes]:
        """What waits now."""
        return _lines_of(await self._host.cut())

    def pipeline(self) -> Answer:
        """As it says itself; a node without one says that it is off."""
        off: Answer = {"state": "off", "reason": "", "log": str(self._host.log.committed)}
        view = off if self._pipeline is None else self._pipeline.view()
        # Who asks looks at the charts soon: they are made meanwhile, except while a run changes the tables.
        if self._lake_report is not None and view["state"] in BETWEEN_RUNS:
            self._lake_report.warm()
        return view

    async def pipeline_report(self) -> Answer:
        """What the tables say."""
        if self._lake_report is None:
            return {"problem": "a node inside a program reads no tables; ask with: pixiu pipeline report"}
        return await self._lake_report.read()


async def _lines_of(cut: Cut) -> AsyncIterator[bytes]:
    """A cut as it is sent: the loop gets its turn between the lines."""
    count = 0
    yield encode({"event_id": cut.event_id}) + b"\n"
    for (user, platform), (_, entries, missing) in cut.inboxes.items():
        for begin in range(0, len(entries), CUT_ROWS):
            part = entries[begin : begin + CUT_ROWS]
            ids = [entry.message_id for entry in part]
            row = (user, platform, [entry.useq for entry in part], ids, [entry.at for entry in part])
            yield encode((*row, [each for each in ids if each in missing])) + b"\n"
            count += 1
            await asyncio.sleep(0)
    yield encode({"inboxes": count}) + b"\n"


class _Numbers:
    """Public ids where no store is open to ask."""

    def user_name(self, number: int) -> str:
        return str(number)

    def group_name(self, number: int) -> str:
        return str(number)


def stopped_dead_letters(root: Path) -> list[Answer]:
    """The dead letters in a data directory that nobody serves. Users are shown by number."""
    with DataDirectory.open(root):
        engine = Engine(Settings(), SystemFiles(root), open_store(root), SystemClock(), NoScheduler())
        engine.recover()
        try:
            log = stopped_log(root, engine)
            try:
                return [letter_view(letter, _Numbers()) for letter in dead_letters(log)]
            finally:
                log.close()
        finally:
            engine.stop()
