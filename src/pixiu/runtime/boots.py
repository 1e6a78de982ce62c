"""Numbers for processes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pixiu.model.ids import NODE_BITS, SEQUENCE_BITS, SNOWFLAKE_EPOCH_MS

if TYPE_CHECKING:
    from pixiu.ports.clock import Clock

__all__ = ["new_boot"]

LIFE_BITS = NODE_BITS + SEQUENCE_BITS


def new_boot(clock: Clock) -> int:
    """A number for this run of a process: above those of its earlier runs, and like no other process's."""
    chance = int.from_bytes(os.urandom(4), "big") >> (32 - LIFE_BITS)
    return (clock.now_ms() - SNOWFLAKE_EPOCH_MS) << LIFE_BITS | chance
