"""What a verb is, who calls it, and what it gives back.

A reading verb answers at once. A changing verb checks everything, stores nothing, and returns a ``Draft``: the record
to append, and how to answer once it is in the log. So a refused action leaves no trace, and whoever holds the draft
decides how it gets into the log.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pixiu.im.params import check_known
from pixiu.model.errors import NotAllowed, NotFound, RequestError
from pixiu.model.pixiu_pb2 import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pixiu.im.context import Context
    from pixiu.ports.search import Asked, Found

__all__ = [
    "Accepted",
    "Actor",
    "Answer",
    "Arriving",
    "Draft",
    "Erasing",
    "Outcome",
    "Params",
    "Scheduling",
    "Searching",
    "UnknownMessage",
    "UnknownUsers",
    "Unscheduling",
    "Verb",
    "drafted",
]

Params = dict[str, object]
"""What the caller gave: decoded JSON."""

Answer = dict[str, object]
"""What the caller gets: ready to be encoded as JSON."""


class Actor(NamedTuple):
    """Who does it: always from the token, never from the params. ``user`` 0 with ``is_admin`` is a publisher."""

    user: int
    platform: str = ""
    device: str = ""
    session_id: int = 0
    is_admin: bool = False


class Accepted(NamedTuple):
    """What the log gave to a draft; of a repeat, what the first one was given."""

    message_id: int
    event_id: int
    at: int
    is_repeat: bool = False
    then: tuple[int, ...] = ()
    """The message ids of the records behind the first one."""


class Arriving(NamedTuple):
    """Users who become members of a group, or who ask to."""

    group: int
    """0 is a group that is being created."""
    users: Sequence[int]
    is_request: bool = False


class Draft:
    """A checked change that waits to be appended."""

    __slots__ = ("after", "answer", "arriving", "at", "fan_out_cost", "is_applied", "key", "payload", "then")

    def __init__(
        self,
        payload: bytes,
        at: int,
        answer: Callable[[Accepted], Answer],
        key: bytes,
        is_applied: bool,
        then: list[Record] | None,
    ) -> None:
        self.payload = payload
        """An encoded ``Record``."""
        self.at = at
        self.answer = answer
        """Called when it is committed (and applied, where ``is_applied``). May raise an error for the caller."""
        self.key = key
        """Makes a repeat of it harmless: the first one under a key is the only one."""
        self.is_applied = is_applied
        self.then = then
        """Appended right behind, in this order; with a key, each gets its own, made from it."""
        self.after: Callable[[Accepted], list[Record]] | None = None
        """Records that need the numbers of the first one; appended once it is committed, and before the answer."""
        self.fan_out_cost = 0
        """Tokens for the inbox entries of a group, in addition to the cost of the request."""
        self.arriving: Arriving | None = None
        """Whom this makes a member, or lets ask to become one: until it is answered, checks count them in."""

    @property
    def record(self) -> Record:
        """What is to be appended."""
        return Record.FromString(self.payload)


def drafted(
    record: Record,
    answer: Callable[[Accepted], Answer],
    *,
    key: bytes = b"",
    is_applied: bool = True,
    then: list[Record] | None = None,
) -> Draft:
    """A draft of a record."""
    return Draft(record.SerializeToString(), record.at, answer, key, is_applied, then)


class Scheduling(NamedTuple):
    """A checked send that is appended later."""

    record: Record
    due: int
    answer: Callable[[int], Answer]
    """Called with the schedule_id."""


class Unscheduling(NamedTuple):
    """A scheduled send that is dropped, if it is still there."""

    schedule_id: int


class Erasing(NamedTuple):
    """A user who is to be erased."""

    user: int
    records: list[Record]
    """Groups are left, then the erasure itself."""
    given_up: Record | None
    """A ledger, right before the erasure: what waits in the user's inboxes is dead."""
    schedules: list[int]
    """Scheduled sends that are dropped."""
    answer: Callable[[Accepted], Answer]


class Searching(NamedTuple):
    """A checked question to the index."""

    asked: Asked
    answer: Callable[[Found], Answer | Searching]
    """Called with what was found; it may have another question."""


Outcome = Draft | Answer | Scheduling | Unscheduling | Erasing | Searching


class UnknownMessage(NotFound):
    """A message that the stores do not have. If they are behind the log it may be there in a moment: look again."""


class UnknownUsers(NotFound):
    """Users who do not exist. Where users are created on first use, create them and try again."""

    def __init__(self, public_ids: list[str]) -> None:
        some = ", ".join(map(repr, public_ids[:3])) + (", …" if len(public_ids) > 3 else "")
        super().__init__(f"there is no user {some}")
        self.public_ids = public_ids


@dataclass(frozen=True, slots=True)
class Verb:
    """One public action. ``params`` are all that it knows; ``call`` may rely on nothing else being there."""

    name: str
    call: Callable[[Context, Actor, Params], Outcome]
    params: frozenset[str]
    is_changing: bool = True
    is_for_admins: bool = False
    needs_user: bool = True
    """A publisher, who is no user, may not."""
    takes_any: bool = False
    """Params that it does not know are the caller's own fields."""

    def run(self, context: Context, actor: Actor, params: Params) -> Outcome:
        """Check who asks and what was given, then do it."""
        if type(params) is not dict:
            raise RequestError(f"{self.name} takes an object of params, not {type(params).__name__}")
        if not (self.takes_any or params.keys() <= self.params):
            check_known(self.name, params, self.params)
        context.check_actor(actor)
        if self.is_for_admins and not actor.is_admin:
            raise NotAllowed(f"{self.name} is for admins")
        if self.needs_user and not actor.user:
            raise NotAllowed(f"{self.name} is done by a user; this caller is none")
        return self.call(context, actor, params)
