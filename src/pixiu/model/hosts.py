"""Addresses of machines, as settings, URLs and ``Host`` headers name them."""

import re
from ipaddress import ip_address

__all__ = ["host_name", "is_loopback"]

_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([0-9A-Za-z._~!$&'()*+;=%-]*))(?::([0-9]{0,5}))?")
PORT_MAX = 65_535


def is_loopback(host: str) -> bool:
    """Is this an address that only this machine reaches? An IPv6 address may have its brackets."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False


def host_name(header: str) -> str:
    """The name in a ``Host`` header, in lower case, without port and brackets; raises ``ValueError``."""
    match = _HOST.fullmatch(header)
    if match is None or int(match[3] or 0) > PORT_MAX:
        raise ValueError(f"Host must be NAME, NAME:PORT or [IPV6]:PORT, not {header[:100]!r}")
    if match[1] is not None:
        try:
            ip_address(match[1])
        except ValueError:
            raise ValueError(f"Host has no IPv6 address in its brackets: {header[:100]!r}") from None
        return match[1].lower()
    return match[2].lower()
