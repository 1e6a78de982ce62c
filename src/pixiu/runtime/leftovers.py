"""Processes that outlived whoever started them."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

__all__ = ["end_if_ours", "is_ours"]

PATIENCE_SECONDS = 8.0
LOOK_SECONDS = 0.05


def is_ours(pid: int, mark: str) -> bool:
    """Does a process with this number run whose command line holds ``mark``? Where the system does not tell: no."""
    return mark in _command_of(pid)


def end_if_ours(pid: int, mark: str) -> bool:
    """End a process whose command line holds ``mark``, and wait for its end; a number may belong to another by now.

    Returns whether it was there. Where the system does not tell command lines, nothing is done.
    """
    if not is_ours(pid, mark):
        return False
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)
        os.kill(pid, signal.SIGTERM)
    until = time.monotonic() + PATIENCE_SECONDS
    while _command_of(pid):
        if time.monotonic() > until:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            break
        time.sleep(LOOK_SECONDS)
    return True


def _command_of(pid: int) -> str:
    """The command line of a process that runs; empty if there is none, or the system does not say."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
