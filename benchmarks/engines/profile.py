"""Where the time of a send goes on Redis: asked when it is slower than half of what the embedded stores are."""

from __future__ import annotations

import cProfile
import pstats
from typing import TYPE_CHECKING

from benchmarks.messaging import private
from benchmarks.messaging.rig import rig

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.engines.mixes import Engines, Mix

__all__ = ["profile"]

PARTS = (
    ("waiting for Redis", ("'recv' of '_socket", "'recv_into' of '_socket")),
    ("sending to Redis", ("'sendall' of '_socket",)),
    ("Redis's client", ("/valkey/",)),
    ("the Redis stores", ("/backends/redis/",)),
    ("flushing the journal", ("fdatasync", "pwrite", "'write' of")),
    ("the log", ("/pixiu/queue/",)),
    ("roles", ("/pixiu/roles/", "/pixiu/machines/", "/pixiu/im/", "/pixiu/node/")),
    ("built-in functions", ("{",)),
)


async def profile(folder: Path, engines: Engines, mix: Mix, count: int) -> str:
    """One line: shares of the time between the first send and the last commit, the greatest first."""
    async with rig(folder, engines.settings_of(mix)) as node:
        numbers, seen = await private.people(node)
        watched = cProfile.Profile()
        watched.enable()
        await private.end_to_end(node, numbers, seen, count)
        await node.host.settled()
        watched.disable()
    shares: dict[str, float] = {}
    for (file, _, name), (_, _, own, _, _) in pstats.Stats(watched).stats.items():  # type: ignore[attr-defined]
        where = f"{file}:{name}"
        part = next((part for part, signs in PARTS if any(sign in where for sign in signs)), "the rest")
        shares[part] = shares.get(part, 0.0) + own
    whole = sum(shares.values()) or 1.0
    order = sorted(shares, key=lambda part: -shares[part])
    return "Profile of a send: " + ", ".join(f"{part} {shares[part] / whole:.0%}" for part in order) + "."
