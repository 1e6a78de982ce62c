"""From messages that entered inboxes to inboxes that must be woken.

Applying gathers one ``Arrival`` per message: a group message enters hundreds of inboxes, and a rebuild wakes none of
them. For the relay a batch of them is turned around: one ``Wake`` per inbox, with all that is new in it.
"""

from __future__ import annotations

from typing import NamedTuple

from pixiu.model.inbox import Entry
from pixiu.model.wake import Wake

__all__ = ["Arrival", "wakes_of"]


class Arrival(NamedTuple):
    """One message with the inboxes it has entered. All share its body and its options."""

    message_id: int
    event_id: int
    at: int
    options: int
    session: int
    body: bytes
    inboxes: list[tuple[int, str, int]]
    """(user, platform, useq)."""


def wakes_of(arrivals: list[Arrival]) -> list[Wake]:
    """One wake per inbox. All of them share one mapping of bodies."""
    bodies = {arrival.message_id: arrival.body for arrival in arrivals}
    if len(arrivals) == 1:
        message_id, event_id, at, options, session, _, inboxes = arrivals[0]
        return [
            Wake(user, platform, useq, (Entry(useq, message_id, event_id, at, options, session),), bodies)
            for user, platform, useq in inboxes
        ]
    entries_of: dict[tuple[int, str], list[Entry]] = {}
    for message_id, event_id, at, options, session, _, inboxes in arrivals:
        for user, platform, useq in inboxes:
            entry = Entry(useq, message_id, event_id, at, options, session)
            entries = entries_of.get((user, platform))
            if entries is None:
                entries_of[user, platform] = [entry]
            else:
                entries.append(entry)
    return [Wake(user, platform, entries[-1].useq, entries, bodies) for (user, platform), entries in entries_of.items()]
