"""Runs a command in a network of its own, with a chosen range of ephemeral ports.

::

    python -m tests.private_network 1024 65535 COMMAND ...

Only loopback exists there. Ends with 77 where the system does not allow a new network namespace.
"""

import ctypes
import fcntl
import os
import socket
import struct
import sys
from pathlib import Path

__all__ = ["NOT_ALLOWED", "command"]

NOT_ALLOWED = 77
CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1


def command(first: int, last: int, *arguments: str) -> list[str]:
    """The command line that runs ``python *arguments`` there."""
    return [sys.executable, "-m", "tests.private_network", str(first), str(last), sys.executable, *arguments]


def enter(first: int, last: int) -> None:
    """Move this process to a new network. Raises ``OSError`` where that is not allowed."""
    flags = CLONE_NEWNET if os.geteuid() == 0 else CLONE_NEWUSER | CLONE_NEWNET
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(flags) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        answer = fcntl.ioctl(any_socket, SIOCGIFFLAGS, struct.pack("16sH14s", b"lo", 0, b""))
        found = struct.unpack("16sH14s", answer)[1]
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH14s", b"lo", found | IFF_UP, b""))
    Path("/proc/sys/net/ipv4/ip_local_port_range").write_text(f"{first} {last}\n", encoding="ascii")


if __name__ == "__main__":
    try:
        enter(int(sys.argv[1]), int(sys.argv[2]))
    except OSError as error:
        print(f"no network of its own: {error}", file=sys.stderr)
        sys.exit(NOT_ALLOWED)
    os.execvp(sys.argv[3], sys.argv[3:])
