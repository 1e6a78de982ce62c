"""Make a failing script short: drop steps while it still fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["shrink"]


def shrink(steps: Sequence[int], fails: Callable[[Sequence[int]], bool], *, tries_max: int = 200) -> list[int]:
    """Return a part of ``steps`` that still fails and from which no single step can be dropped.

    Halves are tried first, then quarters, down to single steps. The bound on tries makes the answer merely
    shorter, never wrong.
    """
    kept = list(steps)
    size = max(1, len(kept) // 2)
    tries = 0
    while kept and tries < tries_max:
        start, dropped = 0, False
        while start < len(kept) and tries < tries_max:
            candidate = kept[:start] + kept[start + size :]
            tries += 1
            if fails(candidate):
                kept, dropped = candidate, True
            else:
                start += size
        if size > 1:
            size //= 2
        elif not dropped:
            break
    return kept
