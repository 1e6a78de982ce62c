"""What a carrier tells an admin, who asks at a gateway: of its own users, and of the log that all carriers read.

Whoever asks has shown the cluster's secret, and says that an admin asks; the gateway has looked at the token.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from pixiu.backends.queue_log.log import TOPICS
from pixiu.im import params as read
from pixiu.model.errors import Conflict, NotFound, PixiuError, Unavailable
from pixiu.node.admin.letters import letter_view, scheduled_view
from pixiu.node.admin.session_view import session_view
from pixiu.ports.log import DEAD, SCHEDULE
from pixiu.roles.carrier.dead_letters import dead_letters

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from pixiu.im.draft import Answer, Params
    from pixiu.node.messaging import Messaging
    from pixiu.ports.log import Log
    from pixiu.queue.client import Client
    from pixiu.roles.carrier.dead_letters import DeadLetter
    from pixiu.roles.gateway.needs import Done

__all__ = ["ADMIN_PREFIX", "CarrierAdministration"]

Found = TypeVar("Found")

ADMIN_PREFIX = "admin/"
"""What gateways put before the name of what an admin asks for; no action is called so."""
PAGES_SECONDS = 8.0
PAGE_SECONDS = 0.05
ASKED_MAX = 64
"""Questions at a time; more are refused."""


class CarrierAdministration:
    """Answers, each a little later, in the loop that this was made in."""

    def __init__(self, messaging: Messaging, queue: Log, client: Client) -> None:
        self._messaging = messaging
        self._directory = messaging.proxy.context.directory
        self._log = queue
        self._client = client
        self._asked: set[asyncio.Task[None]] = set()
        self._answers: Mapping[str, Callable[[Params], Awaitable[Answer]]] = {
            "sessions": self._sessions,
            "kick": self._kick,
            "dead_letters": self._dead_letters,
            "replay": self._replay,
            "scheduled": self._scheduled,
            "topics": self._topics,
        }

    def ask(self, action: str, params: Params, done: Done) -> None:
        """Answer one question."""
        answer = self._answers.get(action.removeprefix(ADMIN_PREFIX))
        if answer is None:
            done(NotFound(f"a carrier knows nothing of {action[:64]!r}"))
        elif len(self._asked) >= ASKED_MAX:
            done(Unavailable("too many questions of admins at once", retry_after_ms=1000))
        else:
            task = asyncio.get_running_loop().create_task(self._answer(answer, params, done))
            self._asked.add(task)
            task.add_done_callback(self._asked.discard)

    def stop(self) -> None:
        """Answer nobody any more."""
        for task in self._asked:
            task.cancel()

    @staticmethod
    async def _answer(answer: Callable[[Params], Awaitable[Answer]], params: Params, done: Done) -> None:
        try:
            done(await answer(params))
        except PixiuError as error:
            done(error)

    async def _sessions(self, params: Params) -> Answer:
        relay, (after, limit) = self._messaging.relay, _page(params)
        user = params.get("user")
        if user is None:
            found = relay.sessions(after, limit)
        else:
            mine = relay.sessions_of(self._directory.user(str(user)))
            found = [each for each in mine if not after or each.session_id < after][:limit]
        return {"rows": [session_view(each, self._directory) for each in found]}

    async def _kick(self, params: Params) -> Answer:
        number, relay = self._directory.user(str(params["user"])), self._messaging.relay
        session_id, reason = read.number(params, "session_id"), str(params["reason"])
        wanted = [each.session_id for each in relay.sessions_of(number)] if session_id is None else [session_id]
        return {"kicked": sum(relay.kick(number, each, reason) for each in wanted)}

    async def _dead_letters(self, params: Params) -> Answer:
        after, limit = _page(params)
        found = [letter for letter in await self._letters() if letter.event_id > after]
        return {"rows": [letter_view(letter, self._directory) for letter in found[:limit]]}

    async def _letters(self) -> list[DeadLetter]:
        return await _when_read(lambda: list(dead_letters(self._log)))

    async def _replay(self, params: Params) -> Answer:
        done: asyncio.Future[PixiuError | None] = asyncio.get_running_loop().create_future()
        letter, dead = read.whole(params["id"], "id", at_least=1), self._messaging.carrier.dead
        if letter not in {each.event_id for each in await self._letters()}:
            # Looked for apart: memory has one page at a time.
            found = await _when_read(lambda: self._log.topic(DEAD, letter - 1, 1))
            if any(record.event_id == letter for record in found):
                raise Conflict(f"dead letter {letter} was given back already")
            raise NotFound(f"there is no dead letter {letter}")
        await _when_read(lambda: dead.replay(letter, lambda error: None if done.done() else done.set_result(error)))
        error = await done
        if error is not None:
            raise error
        return {"id": str(letter)}

    async def _scheduled(self, params: Params) -> Answer:
        after, limit = _page(params)
        waiting = sorted(each for each in self._log.scheduled(SCHEDULE) if each.schedule_id > after)
        return {
            "rows": [
                {"schedule_id": str(each.schedule_id), "at": each.due, **scheduled_view(each.payload, self._directory)}
                for each in waiting[:limit]
            ]
        }

    async def _topics(self, params: Params) -> Answer:
        """As the log's leader says; sizes are its own affair."""
        after, limit = str(params["after"]), _page({**params, "after": 0})[1]
        found = {topic.name: topic for topic in await self._client.topics()}
        for name in TOPICS:
            found[name] = await self._client.topic_info(name)
        rows: list[Answer] = []
        for name in sorted(each for each in found if each > after)[:limit]:
            positions = await self._client.positions(name)
            rows.append({
                "name": name, "at": found[name].created_at_ms, "expires_at": found[name].expires_at_ms,
                "is_reserved": name in TOPICS,
                "subscribers": [
                    {"name": each.subscriber, "event_id": str(each.event_id), "is_live": each.live}
                    for each in positions
                ],
            })  # fmt: skip
        return {"rows": rows}


async def _when_read(look: Callable[[], Found]) -> Found:
    """What is not in memory is fetched in pages: look again until all of it was there, for a while."""
    loop = asyncio.get_running_loop()
    give_up = loop.time() + PAGES_SECONDS
    while True:
        try:
            return look()
        except Unavailable:
            if loop.time() > give_up:
                raise
        await asyncio.sleep(PAGE_SECONDS)


def _page(params: Params) -> tuple[int, int]:
    return read.number(params, "after", default=0) or 0, read.number(params, "limit", default=100) or 100
