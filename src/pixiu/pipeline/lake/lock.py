"""One pipeline per lake: the lock goes with the process, however it ends."""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING, Self

from pixiu.model.errors import Conflict

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

__all__ = ["LakeLock", "holder_of"]

_NAME = "LOCK"


class LakeLock:
    """Held while this process writes to a lake. Raises ``Conflict`` if another one does."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(folder / _NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.pread(self._descriptor, 32, 0).decode(errors="replace").strip()
            os.close(self._descriptor)
            raise Conflict(
                f"another pipeline runs on {folder} (pid {pid}); wait for it, or stop it. "
                "That of pixiu serve brings everything up to the log by itself, and rests in between"
            ) from None
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, str(os.getpid()).encode(), 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)


def holder_of(folder: Path) -> int | None:
    """The process that writes to a lake now, or None."""
    try:
        descriptor = os.open(folder / _NAME, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        text = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
        return int(text) if text.isdecimal() else 0
    finally:
        os.close(descriptor)
    return None
