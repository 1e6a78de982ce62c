"""Which part of a batch a table still needs. Pure, since everything about "exactly once" hangs on it.

A table knows through which event it holds the log, and writes that down in the commit that adds the rows. A batch says
which events it is made of. So it does not matter what a checkpoint remembers: a batch that comes again is left out, one
that overlaps is cut, and one that would leave a hole is refused.
"""

from __future__ import annotations

from pixiu.model.errors import Conflict

__all__ = ["needed_after"]


def needed_after(table: str, held_through: int, after: int, through: int) -> int | None:
    """Behind which event the rows of batch (``after``, ``through``] are new to the table; None if none is."""
    if after > through:
        raise Conflict(f"a batch for {table} goes from event {after} back to {through}")
    if after > held_through:
        raise Conflict(
            f"the table {table} holds the log through event {held_through}, and the batch begins behind event {after}: "
            f"events {held_through + 1} to {after} would be missing. Its checkpoint belongs to another table"
        )
    if through <= held_through:
        return None
    return held_through
