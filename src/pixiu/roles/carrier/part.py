"""Which part of the log a carrier has to do with, and whether it is the one that serves it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.model.partitions import Owns

__all__ = ["WHOLE", "Part"]


@dataclass(frozen=True, slots=True)
class Part:
    """Of several that apply the same part one serves it; the others tell nobody, and write nothing to the log."""

    owns: Owns | None = None
    """Whose records are applied; None: everyone's."""
    owns_task: Callable[[int, int], bool] | None = None
    """Whose task, of which event, is performed; None: everyone's."""
    is_serving: Callable[[], bool] = lambda: True
    flip: Callable[[], object] = lambda: None
    """Told when there are more partitions than before."""

    @property
    def buries(self) -> bool:
        """Does it keep records that make no sense? One of all does, for everyone."""
        return self.is_serving() and (self.owns is None or self.owns(0))


WHOLE = Part()
"""All of it: a carrier alone."""
