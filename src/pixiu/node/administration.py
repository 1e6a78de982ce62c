"""``api.Administration`` on a running node, and the dead letters of one that does not run."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pixiu.config import Settings
from pixiu.model.message import message_view
from pixiu.model.pixiu_pb2 import Record
from pixiu.node.stopped import open_store
from pixiu.ports.log import SCHEDULE
from pixiu.queue.engine import Engine
from pixiu.queue.log import EngineLog
from pixiu.roles.carrier.dead_letters import dead_letters
from pixiu.runtime.clock import SystemClock
from pixiu.runtime.datadir import DataDirectory
from pixiu.runtime.files import SystemFiles
from pixiu.runtime.scheduler import NoScheduler

if TYPE_CHECKING:
    from pathlib import Path

    from pixiu.im.draft import Answer
    from pixiu.model.errors import PixiuError
    from pixiu.model.message import PublicNames
    from pixiu.node.host import MessagingHost
    from pixiu.roles.carrier.dead_letters import DeadLetter

__all__ = ["NodeAdministration", "stopped_dead_letters"]

_METADATA = ("from", "to", "group", "kind")


class NodeAdministration:
    """Looks after the roles of this process."""

    def __init__(self, host: MessagingHost) -> None:
        self._host = host
        self._messaging = host.messaging
        self._directory = host.messaging.proxy.context.directory

    def sessions(self, user: str) -> list[Answer]:
        """A user's sessions, newest first."""
        return [
            {
                "session_id": str(session.session_id),
                "user": user,
                "platform": session.platform,
                "device": session.device,
                "number": session.number,
                "gateway": session.gateway,
            }
            for session in self._messaging.relay.sessions_of(self._directory.user(user))
        ]

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
        shown: list[Answer] = []
        for each in waiting[:limit]:
            view = message_view(Record.FromString(each.payload).chat, self._directory)
            kept = {name: view[name] for name in _METADATA if name in view}
            shown.append({"schedule_id": str(each.schedule_id), "at": each.due, **kept})
        return shown

    def topics(self) -> list[Answer]:
        """By name."""
        return [
            {
                "name": topic.name.decode(errors="replace"),
                "at": topic.create_ms,
                "expires_at": topic.expires_at,
                "is_reserved": topic.is_reserved,
                "subscribers": [name.decode(errors="replace") for name in topic.subscriptions],
            }
            for topic in self._host.log.engine.topics.stored_topics()
        ]

    async def audit(self, at_least: int, before: int | None) -> Answer:
        """Take the books now."""
        return (await self._host.audit(at_least=at_least, before=before)).as_json()


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
            return [letter_view(letter, _Numbers()) for letter in dead_letters(EngineLog(engine))]
        finally:
            engine.stop()


def letter_view(letter: DeadLetter, names: PublicNames) -> Answer:
    """A dead letter as an admin sees it: what and why, not what was said."""
    task = letter.task
    what = task.WhichOneof("what") or "unknown"
    view: Answer = {"id": str(letter.event_id), "at": letter.at, "what": what, "reason": task.reason}
    view["attempt"] = task.attempt
    if what == "notify":
        view["user"] = names.user_name(task.notify.user)
        view["message_id"] = str(task.notify.message_id)
        view["platforms"] = list(task.notify.platforms)
    elif what in ("kick", "flush"):
        view["user"] = names.user_name(task.kick.user if what == "kick" else task.flush.user)
    elif what == "refused":
        view["code"] = task.refused.code
        view["user"] = names.user_name(Record.FromString(task.refused.record).actor)
    return view
