"""Processes that outlived whoever started them."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["end_ours", "is_ours"]

PATIENCE_SECONDS = 8.0
KILLED_SECONDS = 2.0
"""How long a process that was killed may take to leave its ports."""
LOOK_SECONDS = 0.05


def is_ours(pid: int, mark: str) -> bool:
    """Does a process with this number run whose command line holds ``mark``? Where the system does not tell: no."""
    return mark in _command_of(pid)


def end_ours(pids: Iterable[int], mark: str) -> list[int]:
    """End processes whose command lines hold ``mark``, all at once, and wait for their end.

    A number may belong to another process by now, hence the mark. Returns those that were there. Where the system does
    not tell command lines, nothing is done.
    """
    ours = [pid for pid in pids if is_ours(pid, mark)]
    for pid in ours:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
            os.kill(pid, signal.SIGTERM)
    for pid in _late(ours, PATIENCE_SECONDS):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    _late(ours, KILLED_SECONDS)
    return ours


def _late(pids: list[int], seconds: float) -> list[int]:
    """Those that still run after so long."""
    until = time.monotonic() + seconds
    while (left := [pid for pid in pids if _command_of(pid)]) and time.monotonic() < until:
        time.sleep(LOOK_SECONDS)
    return left


def _command_of(pid: int) -> str:
    """The command line of a process that runs; empty if there is none, or the system does not say."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
