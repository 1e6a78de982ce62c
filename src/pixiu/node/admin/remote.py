"""The administration of a replica, for an admin who asks at a gateway on another machine.

The gateway has proved that it has the cluster's secret, and has checked that the token is an admin's. A question comes
over the gateway's link as an action whose name begins with ``admin/``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from pixiu.im import params as read
from pixiu.machines.wire import ADMIN_PREFIX
from pixiu.model.errors import NotFound, PixiuError, Unavailable
from pixiu.node.admin.administration import NodeAdministration

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pixiu.im.draft import Answer, Params
    from pixiu.node.admin.stats import Doors
    from pixiu.node.host import MessagingHost
    from pixiu.ports.scheduler import Scheduler
    from pixiu.roles.gateway.needs import Done

__all__ = ["RemoteAdministration"]

log = logging.getLogger(__name__)

ASKED_MAX = 64
"""Questions at a time; more are refused."""


class RemoteAdministration:
    """Answers questions of admins in the loop in which it was made."""

    def __init__(self, host: MessagingHost, doors: Doors | None = None) -> None:
        """``doors``: the gateway counters and the room broker of this replica, for its statistics."""
        self._node = node = NodeAdministration(host, doors)
        self._asked: set[asyncio.Task[None]] = set()
        self._answers: Mapping[str, Callable[[Params], Answer | Awaitable[Answer]]] = {
            "sessions": lambda params: {"rows": node.sessions(_text(params, "user"), *_page(params))},
            "kick": lambda params: {
                "kicked": node.kick(str(params["user"]), read.number(params, "session_id"), str(params["reason"]))
            },
            "dead_letters": lambda params: {"rows": node.dead_letters(*_page(params))},
            "replay": self._replay,
            "scheduled": lambda params: {"rows": node.scheduled(*_page(params))},
            "topics": lambda params: {
                "rows": node.topics(str(params["after"]), read.number(params, "limit", default=100) or 100)
            },
            "tail": lambda params: node.tail(
                str(params["topic"]), read.number(params, "after"), read.number(params, "limit", default=100) or 100
            ),
            "stats": lambda _params: node.stats(),
            "stats_history": lambda params: node.stats_history(read.number(params, "after", default=0) or 0),
            "explain": lambda params: node.explain(read.whole(params["message_id"], "message_id", at_least=1)),
        }

    def ask(self, action: str, params: Params, done: Done) -> None:
        """Answer one question, now or later."""
        answer = self._answers.get(action.removeprefix(ADMIN_PREFIX))
        if answer is None:
            done(NotFound(f"a shard does not answer {action[:64]!r}"))
        elif len(self._asked) >= ASKED_MAX:
            done(Unavailable(f"{ASKED_MAX} questions of admins are being answered", retry_after_ms=1000))
        else:
            task = asyncio.get_running_loop().create_task(self._answer(answer, params, done))
            self._asked.add(task)
            task.add_done_callback(self._asked.discard)

    def start(self, scheduler: Scheduler) -> None:
        """Take samples for ``stats_history`` from now on."""
        self._node.history.start(scheduler)

    def stop(self) -> None:
        """Answer nothing more."""
        self._node.history.stop()
        for task in self._asked:
            task.cancel()

    @staticmethod
    async def _answer(answer: Callable[[Params], Answer | Awaitable[Answer]], params: Params, done: Done) -> None:
        try:
            found = answer(params)
            done(await found if isinstance(found, Awaitable) else found)
        except PixiuError as error:
            done(error)
        except Exception:  # the admin must get an answer
            log.exception("admin_question_failed")
            done(PixiuError("the question failed; the server's log says why"))

    async def _replay(self, params: Params) -> Answer:
        letter = read.whole(params["id"], "id", at_least=1)
        await self._node.replay(letter)
        return {"id": str(letter)}


def _text(params: Params, name: str) -> str | None:
    value = params.get(name)
    return None if value is None else str(value)


def _page(params: Params) -> tuple[int, int]:
    return read.number(params, "after", default=0) or 0, read.number(params, "limit", default=100) or 100
