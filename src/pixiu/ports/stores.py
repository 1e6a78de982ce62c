"""Everything that is derived from the log, and how far each lane of it has got.

Writes are visible to reads at once; ``commit`` makes them durable in one batch with the event ids that the lanes have
reached. Whatever was not committed is applied again after a crash, from the event ids that were: so an implementation
never lets a half of a record survive without its event id.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Protocol, runtime_checkable

from pixiu.ports.bodies import Bodies
from pixiu.ports.contacts import Contacts
from pixiu.ports.groups import Groups
from pixiu.ports.inboxes import Inboxes
from pixiu.ports.notes import Notes
from pixiu.ports.push_tokens import PushTokens
from pixiu.ports.recent import Recent
from pixiu.ports.sendkeys import SendKeys
from pixiu.ports.timelines import Timelines
from pixiu.ports.unread import Unread
from pixiu.ports.users import Users

__all__ = ["Begins", "Lane", "Stores"]


class Lane(Enum):
    """A set of stores that is applied in order, apart from the others: one that is down holds up only its own."""

    ROSTERS = "rosters"
    """users, contacts, groups, push tokens."""
    INBOXES = "inboxes"
    """inboxes, bodies, send keys, notes."""
    TIMELINES = "timelines"
    """timelines, recent, unread: what was not read is answered from timelines."""
    TASKS = "tasks"
    """Notifications, general tasks, schedules: finished in any order; the lowest unfinished one counts."""


class Stores(Protocol):
    """The stores of one node. Implementations pass ``tests/contracts/stores.py``."""

    users: Users
    contacts: Contacts
    groups: Groups
    push_tokens: PushTokens
    inboxes: Inboxes
    bodies: Bodies
    unread: Unread
    keys: SendKeys
    notes: Notes
    timelines: Timelines
    recent: Recent

    @property
    def pending_bytes(self) -> int:
        """About how much the next commit writes."""
        ...

    def problems(self) -> list[str]:
        """Why an engine of others cannot be asked now; empty if all is well."""
        ...

    def applied(self, lane: Lane) -> int:
        """The event id that a lane has durably reached."""
        ...

    def commit(self, applied: Mapping[Lane, int]) -> None:
        """Make what was written durable, with the event ids it brings the lanes to. Raises ``Unavailable``."""
        ...

    def bodies_applied(self, lane: Lane) -> int:
        """The event id that a lane has durably reached where the bodies are: their references are counted to there."""
        ...

    def begin_again(self) -> None:
        """An engine has lost what it had: go on from what it has. Raises ``Unavailable``."""
        ...

    def close(self) -> None:
        """Let go, without a commit."""
        ...


@runtime_checkable
class Begins(Protocol):
    """Stores of an engine elsewhere, which works on a commit while this process does something else."""

    def begin_commit(self, applied: Mapping[Lane, int]) -> bool:
        """Begin what ``commit`` with these event ids will end. False: ``commit`` has to do all of it.

        Nothing may be applied until then. Raises ``Unavailable``.
        """
        ...

    def is_answered(self, waited_ms: int) -> bool:
        """Of a commit that was begun so long ago: does ``commit`` end it without waiting?"""
        ...
