"""How far one lane has got, and whether it waits for its store."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pixiu.ports.stores import Lane
    from pixiu.roles.carrier.appliers import Apply

__all__ = ["LaneState"]


class LaneState:
    """One lane of a running carrier."""

    __slots__ = ("apply", "is_held", "lane", "position", "problem")

    def __init__(self, lane: Lane, apply: Apply, position: int) -> None:
        self.lane = lane
        self.apply = apply
        self.position = position
        self.is_held = False
        self.problem = ""

    def go_back(self, apply: Apply, position: int) -> None:
        """Begin again from what the store has."""
        self.apply, self.position, self.problem = apply, position, ""
