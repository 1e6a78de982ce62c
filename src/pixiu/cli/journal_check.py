"""What ``pixiu doctor`` says of a journal: whether its records can be read, as far as a few seconds reach."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pixiu.cli.finding import Check
from pixiu.cli.queue.output import bytes_text
from pixiu.queue.storage.damage import find_damage
from pixiu.queue.storage.journal import FOLDER
from pixiu.runtime.files import SystemFiles

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["LOOK_SECONDS", "journal_checks"]

LOOK_SECONDS = 3.0
"""The newest files are read first; what is not reached in this time is left to ``pixiu queue verify``."""


def journal_checks(data: Path, *, seconds: float = LOOK_SECONDS) -> Iterator[Check]:
    """Nothing where there is no journal. It may be written to meanwhile."""
    try:
        total = sum(path.stat().st_size for path in (data / FOLDER).glob("*.log"))
    except OSError:
        return
    if not total:
        return
    end, read, is_all = time.monotonic() + seconds, 0, True

    def advance(size: int) -> bool:
        nonlocal read, is_all
        read += size
        is_all = time.monotonic() < end
        return is_all

    try:
        damage = find_damage(SystemFiles(data, read_only=True), advance, newest_first=True)
    except OSError as error:
        yield Check("journal", "warn", f"cannot be read: {error}", f"see {data / FOLDER}")
        return
    if damage is not None:
        advice = f"pixiu queue verify --data {data} says what can be mended. {damage.advice()}"
        yield Check("journal", "fail", f"damaged: {damage}", advice)
    elif is_all:
        yield Check("journal", "ok", f"every record can be read ({bytes_text(read)})")
    else:
        text = f"the newest {bytes_text(read)} of {bytes_text(total)} can be read; the rest was not looked at"
        yield Check("journal", "ok", f"{text} (all of it: pixiu queue verify --data {data})")
