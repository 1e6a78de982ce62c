"""The standard streams where nobody is at the other end: closed before the start, or left by whoever read.

A command that lists ends quietly, as any program of a pipe does. A server goes on: it has not been started for its
banner.
"""

import contextlib
import os
import signal
import sys
from typing import NoReturn

__all__ = ["announce", "end_with_reader", "let_out", "open_missing_streams"]

_STREAMS = ("stdin", "stdout", "stderr")


def open_missing_streams() -> None:
    """Let a stream that was closed before the start (``>&-``) lead to nowhere, and not to the first file we open."""
    for number in range(len(_STREAMS)):
        with contextlib.suppress(OSError):
            os.fstat(number)
            continue
        os.open(os.devnull, os.O_RDWR)  # the lowest number that is free, which is this one
    for number, name in enumerate(_STREAMS):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8"))


def announce(text: str) -> None:
    """Print what a server has to say, at once. If nobody reads it any more, that is no reason to stop."""
    with contextlib.suppress(OSError):
        print(text)
    let_out()


def let_out() -> None:
    """Give out what is printed and still in the buffer; where that cannot be, it goes nowhere."""
    try:
        sys.stdout.flush()
    except OSError:
        _silence_stdout()


def end_with_reader() -> NoReturn:
    """End as the kernel ends whoever writes to a pipe without a reader: no word, and a shell sees 141."""
    _silence_stdout()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGPIPE)
    raise SystemExit(128 + signal.SIGPIPE)  # where somebody blocks the signal


def _silence_stdout() -> None:
    """What is still in the buffer, and what comes later, goes nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
