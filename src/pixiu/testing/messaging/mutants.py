"""Literal errors of the seeds, and some of our own, each of which the simulated world must catch.

A simulator proves little until it has caught something. Every entry puts one error back, by changing a method of the
platform's classes for the time of a run, or by wrapping a store. Production code has no switches for this.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pixiu.testing.messaging import errors, store_errors
from pixiu.testing.messaging.errors import Patch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pixiu.testing.messaging.node import Node

__all__ = ["MUTANTS", "Mutant"]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One error: what it does, and how it is put back."""

    what: str
    patch: Callable[[Patch], None] | None = None
    stores: Callable[[Node], None] | None = None
    is_embedded: bool | None = None
    """Where the error is one of stores of one kind: every seed has these."""

    @contextmanager
    def put_back(self) -> Iterator[None]:
        """The error is there within this block, and nowhere else."""
        patch = Patch()
        try:
            if self.patch is not None:
                self.patch(patch)
            yield
        finally:
            patch.undo()

    def change_stores(self, node: Node) -> None:
        """Put the error into a node's stores, where it is an error of stores."""
        if self.stores is not None:
            self.stores(node)


MUTANTS: dict[str, Mutant] = {
    "": Mutant("the platform as it is"),
    "E20": Mutant("an ack trims nothing, and the next read begins at 0 again", errors.reads_from_zero),
    "E21": Mutant("acks trim through a message id whose type stands above its counter", stores=store_errors.type_first),
    "E22": Mutant("a logout trims what was sent, acked or not", errors.logout_settles_sent),
    "E23": Mutant("no timers: a lost push, ack or answer is waited for for ever", errors.no_timers),
    "E24": Mutant("the wake comes before the store has the message, and an empty read is the last", errors.wakes_early),
    "E25": Mutant("a send is accepted before the log is flushed", errors.accepts_before_the_flush),
    "E43": Mutant("a late logout of an old session ends the delivery to the new one", errors.logout_of_anyone),
    "race": Mutant("presence is looked at before the store is written (seed 004)", errors.presence_first),
    "T6": Mutant(
        "the offline store is written after the offline pull, and nobody looks again",
        store_errors.late_for_pulls, store_errors.late,
    ),
    "two-numberers": Mutant("acks trim through an id, where neighbours may land swapped", stores=store_errors.swapped),
    "repeats": Mutant("a send with a known send_id is accepted again", errors.forgets_send_ids),
    "ack-all": Mutant("an ack trims what was read but not yet sent", errors.ack_takes_all),
    "early-acks": Mutant("an early copy of an urgent message acks everything before it", errors.early_copy_acks),
    "kick-drops": Mutant("a session that is kicked takes its window along", errors.kick_settles),
    "positions-lag": Mutant(
        "a replay after a crash applies what was applied, and adds it again",
        errors.positions_lag, store_errors.adds_again, True,
    ),
    "unread-twice": Mutant(
        "a replay after a crash counts messages again", errors.positions_lag, store_errors.counts_again, True
    ),
    "positions-lead": Mutant("positions become durable before what they stand for", errors.positions_lead, None, True),
    "cursor-lost": Mutant("a restart forgets what was acked", errors.forgets_acks, None, False),
    "left-still-hear": Mutant("those who left a group get what is said there", errors.remembers_those_who_left),
    "ids-fall": Mutant("a restart forgets the last message id, and the clock may have been set back", errors.ids_fall),
    "releases-twice": Mutant("a body loses two references with each entry", errors.releases_twice),
    "no-block": Mutant("blocks are not looked at", errors.no_blocks),
    "no-members": Mutant("who is no member may speak", errors.no_members),
    "unapplied": Mutant("changes are answered before they are applied", errors.answers_unapplied),
    "next-newest": Mutant("when the newest session goes, the next one does not take over", errors.no_next_newest),
    "trims-all": Mutant("history ends with what was said a moment ago", errors.trims_all),
    "evicts-unasked": Mutant("an inbox keeps ten entries, whatever the settings say", errors.evicts_unasked),
}  # fmt: skip
