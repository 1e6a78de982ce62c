"""From messages that entered inboxes to inboxes that must be woken.

Applying gathers one ``Arrival`` per message: a group message enters hundreds of inboxes, and a rebuild wakes none of
them. For the relay a batch of them is turned around: one ``Wake`` per inbox, with all that is new in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pixiu.model.errors import Unavailable
from pixiu.model.inbox import NEED_NOTIFICATION, NEED_OFFLINE, Entry
from pixiu.model.wake import Wake

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pixiu.ports.contacts import Contacts
    from pixiu.ports.inboxes import Inboxes
    from pixiu.ports.users import Users
    from pixiu.roles.carrier.apply_timelines import Marked

__all__ = ["Arrival", "may_tell", "receipt_of", "still_waiting", "wakes_of"]


_new = tuple.__new__
"""Makes a named tuple in half the time."""
_AWAY = NEED_OFFLINE | NEED_NOTIFICATION
"""What matters when nobody is there."""


class Arrival(NamedTuple):
    """One message with the inboxes it has entered. All share its body."""

    message_id: int
    event_id: int
    at: int
    options: int
    actor: int
    """Who said it: nobody is notified of what they have said themselves."""
    session: int
    body: bytes
    inboxes: list[tuple[int, str, int]]
    """(user, platform, useq)."""


def wakes_of(arrivals: list[Arrival], is_present: Callable[[int], bool] = lambda _user: True) -> list[Wake]:
    """One wake per inbox that anyone cares about. All of them share one mapping of bodies.

    An entry that simply waits for a user who is not there wakes nobody: that is most entries of most users.
    """
    bodies = {arrival.message_id: arrival.body for arrival in arrivals}
    entries_of: dict[tuple[int, str], list[Entry]] = {}
    for message_id, event_id, at, options, actor, session, _, inboxes in arrivals:
        own = options & ~NEED_NOTIFICATION
        for user, platform, useq in inboxes:
            wanted = options if user != actor else own
            if wanted & _AWAY == NEED_OFFLINE and not is_present(user):
                continue
            entry = _new(Entry, (useq, message_id, event_id, at, wanted, session))
            entries = entries_of.get((user, platform))
            if entries is None:
                entries_of[user, platform] = [entry]
            else:
                entries.append(entry)
    return [
        _new(Wake, (user, platform, entries[-1][0], entries, bodies))
        for (user, platform), entries in entries_of.items()
    ]


def still_waiting(wakes: Iterable[Wake], inboxes: Inboxes) -> list[Wake]:
    """Of wakes that were put off, what nobody has acked since: for the rest phones would ring long after it was read.

    A store that does not answer has everything woken: better one notification too many.
    """
    waiting: list[Wake] = []
    for wake in wakes:
        try:
            platform = wake.platform
            state = inboxes.state(wake.user, platform)
            if state is None and (opened := inboxes.platforms(wake.user)):  # the first inbox has got its name meanwhile
                platform = opened[0]
                state = inboxes.state(wake.user, platform)
        except Unavailable:
            waiting.append(wake)
            continue
        floor = state.floor if state is not None else 0
        entries = [entry for entry in wake.entries if entry.useq > floor]
        if entries:
            waiting.append(wake._replace(platform=platform, entries=entries))
    return waiting


def may_tell(marked: Marked, contacts: Contacts) -> bool:
    """Is a receipt pushed to the sender? Not if the sender blocks the receiver, or if the store does not answer."""
    try:
        return not contacts.is_blocked(marked.from_user, marked.peer)
    except Unavailable:
        return False


def receipt_of(marked: Marked, users: Users) -> dict[str, object]:
    """What the sender's sessions are told of receipts."""
    try:
        profile = users.get(marked.peer)
    except Unavailable:
        profile = None
    return {
        "push": "receipt",
        "with": profile.public_id if profile is not None else str(marked.peer),
        "message_ids": [str(message_id) for message_id in marked.message_ids],
        "kind": "read" if marked.is_read else "delivered",
        "at": marked.at,
    }
