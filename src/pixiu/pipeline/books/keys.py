"""Was anything accepted twice? Asked of new messages alone, against the send ids of all that came before.

Of each send id a hash is kept, in sorted files that are searched in place: asking costs as much as is asked. A hash
that was there before may be a repetition, and only then the messages themselves are looked at. Files are merged as
they grow: a new one takes in those that are not twice its size, so there are never many of them.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["hashes_of", "look_up"]

_FACTORS = (np.uint64(0x100000001B3), np.uint64(0x9E3779B97F4A7C15))


def hashes_of(senders: Any, texts: Any) -> Any:
    """64 bits of who sent and of the send id: what is equal has equal hashes, and hardly anything else."""
    texts = texts.cast(pa.large_binary())
    offsets = np.frombuffer(texts.buffers()[1], np.int64)[texts.offset : texts.offset + len(texts) + 1]
    data = texts.buffers()[2]
    content = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    low, lengths = offsets[:-1], np.diff(offsets)
    where = np.repeat(low, lengths)
    letters = content[offsets[0] : offsets[-1]].astype(np.uint64) + np.uint64(1)
    place = np.arange(offsets[0], offsets[-1]) - where
    owner = np.repeat(np.arange(len(low)), lengths)
    result = np.asarray(senders, np.int64).astype(np.uint64) * _FACTORS[1]
    for factor in _FACTORS:
        powers = np.cumprod(np.full(int(lengths.max(initial=0)) + 1, factor))
        sums = np.zeros(len(low), np.uint64)
        np.add.at(sums, owner, letters * powers[place])
        result = (result ^ (sums + lengths.astype(np.uint64))) * factor
        result ^= result >> np.uint64(29)
    return result.view(np.int64)


def look_up(keys: Any, folder: Path, names: Sequence[str]) -> tuple[list[str], Any]:
    """Add keys to these files, the largest first. Returns their names now, and the keys that are there twice."""
    new, times = np.unique(np.asarray(keys, np.int64), return_counts=True)
    if not len(new):
        return list(names), new
    is_suspect = times > 1
    runs = [(name, np.load(folder / name, mmap_mode="r")) for name in names]
    for _, run in runs:
        place = np.minimum(np.searchsorted(run, new), len(run) - 1)
        is_suspect |= run[place] == new
    suspects = new[is_suspect]
    while runs and len(runs[-1][1]) <= 2 * len(new):
        new = np.union1d(new, runs.pop()[1])
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{secrets.token_hex(8)}.npy"
    np.save(folder / name, new)
    return [*(kept for kept, _ in runs), name], suspects
