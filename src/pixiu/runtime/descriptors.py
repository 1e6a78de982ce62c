"""How many files and sockets this process may have open, and who gets how many of them."""

import contextlib
import resource
from collections.abc import Sequence

__all__ = ["SANE_MAX", "raise_descriptors", "share"]

SANE_MAX = 2**20
"""More is never asked for, though some systems would give a thousand times that."""


def raise_descriptors() -> int:
    """Raise the limit as far as it goes. Returns it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = SANE_MAX if hard == resource.RLIM_INFINITY else min(hard, SANE_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    return SANE_MAX if soft == resource.RLIM_INFINITY else soft


def share(count: int, wanted: Sequence[int], *, least: int = 8) -> list[int]:
    """What each gets of ``count``: what it wants, or its part of what there is."""
    total = sum(wanted)
    if total <= count:
        return list(wanted)
    return [max(count * each // total, min(each, least)) for each in wanted]
