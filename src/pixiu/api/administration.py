"""What the administration's paths need of a node; the composition root has it."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pixiu.im.draft import Answer

__all__ = ["Administration", "Soon", "now"]

Value = TypeVar("Value")
Soon: TypeAlias = "Value | Awaitable[Value]"
"""A node knows it at once; a cluster asks around."""


async def now(value: Soon[Value]) -> Value:
    """It, whenever it comes."""
    return await value if isinstance(value, Awaitable) else value


class Administration(Protocol):
    """Looking after one node. Every answer is ready to be encoded as JSON."""

    def stats(self) -> Soon[Answer]:
        """Counters, latencies, connections, hot rooms, topics, sizes: raw, as of now."""
        ...

    def stats_history(self, after: int) -> Soon[Answer]:
        """Rates, latencies and connections of the last half hour, sampled; those after a time in milliseconds."""
        ...

    def sessions(self, user: str | None, after: int, limit: int) -> Soon[list[Answer]]:
        """A user's sessions, or everyone's, newest first; those older than the session ``after``, if that is not 0."""
        ...

    def kick(self, user: str, session_id: int | None, reason: str) -> Soon[int]:
        """Close one session of a user, or all; returns how many there were."""
        ...

    def dead_letters(self, after: int, limit: int) -> Soon[list[Answer]]:
        """Tasks that were given up on, behind an id, oldest first."""
        ...

    async def replay(self, dead_letter_id: int) -> None:
        """Give one back to where it came from; raises ``NotFound``, or ``Conflict`` if that was done already."""
        ...

    def scheduled(self, after: int, limit: int) -> Soon[list[Answer]]:
        """Sends of all users that wait for their time, without what they say."""
        ...

    def topics(self, after: str, limit: int) -> Soon[list[Answer]]:
        """Topics of the queue behind a name, Pixiu's own included."""
        ...

    def tail(self, topic: str, after: int | None, limit: int) -> Soon[Answer]:
        """The newest messages of a topic, or those behind an event id; raises ``NotFound``."""
        ...

    async def redact(self) -> Answer:
        """Blank what erased users wrote in this node's files; returns where was looked and what was found."""
        ...

    async def audit(self, at_least: int, before: int | None) -> Answer:
        """The books of messages accepted within these times."""
        ...

    async def explain(self, message_id: int) -> Answer:
        """One message's way, hop by hop; raises ``NotFound``."""
        ...

    async def cut(self) -> AsyncIterator[bytes]:
        """What waits in the stores now, in lines of JSON: the event id, parts of inboxes, how many parts there were."""
        ...

    def pipeline(self) -> Soon[Answer]:
        """What the pipeline beside this node does."""
        ...

    async def pipeline_report(self) -> Answer:
        """What its tables say: ``empty`` if there are none yet, ``problem`` if they cannot be read."""
        ...
