"""Ports for servers, chosen so that no outgoing connection can take them.

The kernel gives outgoing connections a source port from its ephemeral range. A server port chosen inside that range can
be taken while its process is down, and then the process cannot listen again. So ports are chosen outside the range.
Where the range leaves too few (``1024 65535`` leaves none), ports inside it are chosen and ``hold_port`` protects them.
"""

from __future__ import annotations

import random
import socket
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pixiu.model.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["ephemeral_ports", "free_ports", "hold_port", "is_free"]

FIRST, LAST = 10_000, 65_535
"""Fixed ports of other services are mostly below the first."""
UNPRIVILEGED = 1_024
RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")
DEFAULT_RANGE = range(32_768, 65_536)
"""Linux and the BSDs by default, taken together."""


def ephemeral_ports() -> range:
    """Ports that this system gives to outgoing connections."""
    with suppress(OSError, ValueError):
        first, last = map(int, RANGE_FILE.read_text(encoding="ascii").split())
        return range(first, last + 1)
    return DEFAULT_RANGE


def free_ports(count: int, *, avoid: Collection[int] = ()) -> list[int]:
    """So many different ports on 127.0.0.1 that are free for TCP and UDP and are not in ``avoid``.

    They are outside the ephemeral range as far as there are enough. Raises ``Unavailable`` if all ports are in use.
    """
    ephemeral = ephemeral_ports()
    outside = [port for port in range(FIRST, LAST + 1) if port not in ephemeral]
    low = [port for port in range(UNPRIVILEGED, FIRST) if port not in ephemeral]
    inside = [port for port in ephemeral if port >= UNPRIVILEGED]
    chance = random.SystemRandom()
    found: list[int] = []
    for ports in (outside, low, inside):
        # In random order, so that programs that choose at the same time rarely try the same port.
        chance.shuffle(ports)
        for port in ports:
            if len(found) == count:
                return found
            if port not in avoid and is_free(port):
                found.append(port)
    if len(found) < count:
        raise Unavailable(f"no {count} free ports on 127.0.0.1: {len(found)} found; stop some servers and try again")
    return found


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Whether no socket of this machine uses the port on ``host``, for TCP or UDP. A held port is in use."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(family, kind) as probe:
            try:
                probe.bind((host, port))
            except OSError:
                return False
    return True


def hold_port(host: str, port: int) -> socket.socket:
    """Keep a TCP port for a process that listens there later; close the returned socket to release it.

    The socket is bound and does not listen. As long as it is open, the kernel gives the port to no outgoing connection,
    and a server that sets SO_REUSEADDR (asyncio and Java do) can listen on it. Raises ``OSError`` if it is in use.
    """
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = found[0]
    held = socket.socket(family, kind, protocol)
    try:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            held.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        held.bind(address)
    except BaseException:
        held.close()
        raise
    return held
