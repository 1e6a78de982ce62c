r"""How long a leader may go on, and how long the others must wait: one lease, seen from both sides.

The control record is the lease. A leader renews it by writing the same record again, as a compare-and-set, so that
each renewal has a version of its own::

    leader      asks for version 7 ------------------ lease_ms by its own clock ------------------> stops
                      \                                        (counted from the asking)
    registry           \--> 7
                            \
    candidate                \--> sees 7 -------- takeover_ms by its own clock --------> asks for version 8

A candidate saw version 7 after the leader had asked for it, so if both clocks ran alike the candidate would be late by
the way of the message at least. Clocks may differ in speed: ``takeover_ms`` is at least a quarter longer than
``lease_ms``, so the leader has stopped first as long as one clock runs at most 1.25 times as fast as the other. What
the candidate saw may be old, as from a registry's server that lags: then its compare-and-set names a version that is
gone, and is refused. So nothing here rests on a session's timeout, nor on a reading being fresh.

A candidate that heard nothing from the registry for a while starts its wait anew: the leader heard nothing either, and
gets the time to renew.
"""

from __future__ import annotations

from typing import Protocol

__all__ = ["Lease"]

NEVER_MS = -(1 << 62)


class LeaseSettings(Protocol):
    """Whatever says how long a lease is."""

    @property
    def lease_ms(self) -> int:
        """So long may its holder go on without a renewal."""
        ...


class Lease:
    """What one node knows of the lease, whoever holds it."""

    def __init__(self, settings: LeaseSettings) -> None:
        self._lease_ms = settings.lease_ms
        self._gap_ms_max = settings.lease_ms // 2
        self._until_ms = NEVER_MS
        self._seen_version = -1
        self._seen_ms = NEVER_MS
        self._answered_ms = NEVER_MS

    # The holder's side.

    def granted(self, asked_ms: int) -> None:
        """A change of the record that this node asked for then was made: it holds the lease from the asking on."""
        self._until_ms = max(self._until_ms, asked_ms + self._lease_ms)

    def give_up(self) -> None:
        """This node holds nothing any more."""
        self._until_ms = NEVER_MS

    def is_held(self, now_ms: int) -> bool:
        """Whether this node may go on as the holder."""
        return now_ms < self._until_ms

    # The candidate's side.

    def seen(self, now_ms: int, version: int, *, is_answer: bool) -> None:
        """The record has this version; ``is_answer``: the registry said so because it was asked."""
        has_gap = now_ms - self._answered_ms > self._gap_ms_max
        if version != self._seen_version or (is_answer and has_gap):
            self._seen_version, self._seen_ms = version, now_ms
        if is_answer:
            self._answered_ms = now_ms

    def unchanged_ms(self, now_ms: int) -> int:
        r"""How long this node has seen the record without a renewal."""
        return max(0, now_ms - self._seen_ms) if self._seen_version >= 0 else 0
