"""Whether a process can listen somewhere, and what a person reads who asked for a place where it cannot."""

from __future__ import annotations

import errno
import socket

from pixiu.model.errors import ConfigError, PixiuError, Unavailable
from pixiu.runtime.port_holder import port_holder

__all__ = ["cannot_listen", "is_no_address", "why_not_bind"]


def why_not_bind(host: str, port: int, *, udp: bool = False) -> OSError | None:
    """The error that a server would get that listens here; None if it can. ``udp``: for datagrams as well."""
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        if udp:
            found += socket.getaddrinfo(host or None, port, type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in found:
            with socket.socket(family, kind, protocol) as sock:
                if kind == socket.SOCK_STREAM:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                sock.bind(address)
    except OSError as error:
        return error
    return None


def is_no_address(error: OSError) -> bool:
    """Is it the address that nobody on this machine could listen on, whatever the port?"""
    return isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL


def cannot_listen(
    host: str, port: int, error: OSError, *, setting: str = "--bind", port_setting: str = ""
) -> PixiuError:
    """The error of a start. A ``ConfigError`` where another try would end alike.

    ``setting`` and ``port_setting`` are where a person wrote the host and the port.
    """
    where = f"cannot listen on {host}:{port}"
    if is_no_address(error):
        return ConfigError(
            f"{where}: {host} is no address of this machine. Write one that it has as {setting}: "
            "127.0.0.1 for this machine alone, 0.0.0.0 for all of its addresses"
        )
    if error.errno == errno.EACCES:
        return ConfigError(f"{where}: ports below 1024 need the right to take them; take a higher one")
    if error.errno == errno.EADDRINUSE:
        who = port_holder(port) or "another process"
        other = f"write another one as {port_setting}" if port_setting else "take another one"
        return Unavailable(f"{where}: the port is in use by {who}. Stop that, or {other}")
    return Unavailable(f"{where}: {error.strerror or error}")
