"""Who has a port, for whoever cannot have it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

__all__ = ["port_holder"]


def port_holder(port: int, *, but_us: bool = False) -> str | None:
    """The process that listens on a port, where the system lets us see it; ``but_us``: if it is not this one."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError):
            for line in Path(table).read_text(encoding="ascii").splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                    inodes.add(f"socket:[{fields[9]}]")
    if not inodes:
        return None
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and not (but_us and process.name == str(os.getpid())):
            with suppress(OSError):
                if any(str(each.readlink()) in inodes for each in (process / "fd").iterdir()):
                    name = (process / "comm").read_text(encoding="utf-8", errors="replace").strip()
                    return f"pid {process.name} ({name})"
    return None
