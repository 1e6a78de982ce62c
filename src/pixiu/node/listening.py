"""Why a node cannot listen: which setting names the port, who has it, and what to type instead."""

from __future__ import annotations

import errno
import re
from typing import TYPE_CHECKING, NamedTuple

from pixiu.runtime.binding import is_no_address, why_not_bind
from pixiu.runtime.port_holder import port_holder

if TYPE_CHECKING:
    from pixiu.config import Settings

__all__ = ["why_not_listening"]


class _Port(NamedTuple):
    setting: str
    port: int
    option: str


def why_not_listening(error: OSError, settings: Settings, *, http: bool) -> str:
    """A sentence for a start that failed. ``http``: whether it is the whole node, or the queue alone."""
    said = error.strerror or str(error)
    if is_no_address(error):
        return _wrong_host(settings, http=http) or said
    if error.errno != errno.EADDRINUSE:
        return said
    ports = [_Port("queue.port", settings.queue.port, "--queue-port" if http else "--port")]
    if http:
        ports += [
            _Port("http.port", settings.http.port, "--port"),
            _Port("gateway.tcp_port", settings.gateway.tcp_port, "--set gateway.tcp_port="),
            _Port("gateway.grpc_port", settings.gateway.grpc_port, "--grpc"),
        ]
    for each in ports:
        others = [other.setting for other in ports if other.port == each.port > 0 and other is not each]
        if others:
            return f"{each.setting} and {others[0]} are both {each.port}: each needs a port of its own"
    named = set(map(int, re.findall(r"\d+", said)))
    found = [each for each in ports if each.port > 0 and each.port in named]
    # What shares a port says no number: then it is one that somebody else listens on.
    found = found or [each for each in ports if each.port > 0 and port_holder(each.port, but_us=True)]
    if not found:
        return said
    taken = found[0]
    who = port_holder(taken.port) or "another process"
    option = taken.option if taken.option.endswith("=") else f"{taken.option} "
    return (
        f"port {taken.port} ({taken.setting}) is in use by {who}. "
        f"Stop that, or start with {option}0 for a free port, or with another number"
    )


def _wrong_host(settings: Settings, *, http: bool) -> str:
    """Which setting names an address that this machine does not have."""
    hosts = {"queue.host": settings.queue.host, **({"http.host": settings.http.host} if http else {})}
    for setting, host in hosts.items():
        error = why_not_bind(host, 0)
        if error is not None and is_no_address(error):
            return (
                f"{setting} is {host}, which is no address of this machine. "
                "127.0.0.1 is for this machine alone, 0.0.0.0 for all of its addresses"
            )
    return ""
