"""What this process takes of the machine."""

import os
import resource
import sys
import time
from contextlib import suppress
from pathlib import Path

import pixiu

__all__ = ["open_files", "own_command", "process_numbers", "rss_bytes"]

_STATM = Path("/proc/self/statm")
_DESCRIPTORS = Path("/proc/self/fd")


def rss_bytes() -> int:
    """Memory that is resident now; where the system does not say, the most that ever was."""
    with suppress(OSError, ValueError, IndexError):
        return int(_STATM.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def open_files() -> int | None:
    """Descriptors in use; None where the system does not say."""
    try:
        return sum(1 for _ in _DESCRIPTORS.iterdir())
    except OSError:
        return None


def process_numbers() -> dict[str, object]:
    """All of it, for people: seconds of CPU, bytes of memory, descriptors."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return {
        "pid": os.getpid(),
        "rss_bytes": rss_bytes(),
        "cpu_seconds": round(time.process_time(), 3),
        "open_files": open_files(),
        "open_files_max": None if soft == resource.RLIM_INFINITY else soft,
    }


def own_command(*words: str) -> list[str]:
    """How to start another ``pixiu``: with the very package that runs here, and nothing else of this folder."""
    is_from_here = Path(pixiu.__file__).resolve().parent.parent == Path.cwd().resolve()
    return [sys.executable, *([] if is_from_here else ["-P"]), "-m", "pixiu", *words]
