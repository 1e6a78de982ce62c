"""A process that belongs to a server: it steps back for others, and it ends with the server."""

import contextlib
import io
import os
import signal
import sys
import threading
from pathlib import Path

__all__ = ["obey_parent"]

NICENESS = 10
STDIN = 0
OOM_SCORE = 500
"""Where memory runs out, this one goes before the server does."""


def obey_parent() -> None:
    """Take a low priority, and watch the standard input: its end is the end of the parent, and of everything here."""
    os.nice(NICENESS)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # what is said is heard at once
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(OOM_SCORE), encoding="ascii")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal, meant for the server, which tells us
    threading.Thread(target=_watch, name="watches the parent", daemon=True).start()


def _watch() -> None:
    # Not through sys.stdin: a reader that waits in its buffer would have Python abort at a regular end.
    while os.read(STDIN, 4096):
        pass
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)  # with Java, and what that has started
    os._exit(1)
