"""Put in front of a server's imports by a test: notes every flush, holds or fails them, and steps the clock.

Python imports a module of this name by itself when it starts, if its folder is on PYTHONPATH. The server is
otherwise the one that users run. `tests/wire/observed.py` is the other side.
"""

import errno
import mmap
import os
import time
from collections.abc import Callable
from pathlib import Path

FOLDER = os.environ.get("OBSERVER_FOLDER")


def observed(real: Callable[[int], None], folder: Path) -> Callable[[int], None]:
    """Wrap `os.fsync` or `os.fdatasync`."""

    def flush(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        while (folder / "hold").exists():
            time.sleep(0.002)
        if (folder / "fail").exists():
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(descriptor)
        with (folder / "flushes").open("a") as log:
            log.write(f"{path}\n")

    return flush


def observed_all(real: Callable[[], None], folder: Path) -> Callable[[], None]:
    """Wrap `os.sync`."""

    def sync() -> None:
        real()
        with (folder / "flushes").open("a") as log:
            log.write("everything\n")

    return sync


def stepped(real: Callable[[], int], folder: Path) -> Callable[[], int]:
    """Wrap `time.time_ns`: someone may have set the clock. The test writes by how much into a file of 8 bytes."""
    with (folder / "clock").open("rb") as file:
        offset = mmap.mmap(file.fileno(), 8, prot=mmap.PROT_READ)

    def time_ns() -> int:
        return real() + int.from_bytes(offset[:8], "little", signed=True)

    return time_ns


if FOLDER:
    os.fsync = observed(os.fsync, Path(FOLDER))  # type: ignore[assignment]
    os.fdatasync = observed(os.fdatasync, Path(FOLDER))  # type: ignore[assignment]
    os.sync = observed_all(os.sync, Path(FOLDER))
    time.time_ns = stepped(time.time_ns, Path(FOLDER))
