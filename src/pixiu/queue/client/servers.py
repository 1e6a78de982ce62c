"""Where the queue is: one address or several, tried in turn.

All connections of a client follow one notion of "the current server". Whoever finds out that it is gone, or
not the leader, moves everyone on to the next.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import NamedTuple, TypeVar

from pixiu.model.errors import ConfigError, Unavailable

__all__ = ["Address", "Backoff", "Servers", "parse_addresses"]

DEFAULT_PORT = 12301

AnyProtocol = TypeVar("AnyProtocol", bound=asyncio.Protocol)


class Address(NamedTuple):
    """A host and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_addresses(addresses: str | Sequence[str]) -> tuple[Address, ...]:
    """``"a:1,b:2"`` or ``["a:1", "b:2"]``; a port left out is 12301."""
    names = addresses.split(",") if isinstance(addresses, str) else list(addresses)
    parsed = tuple(_parse_address(name.strip()) for name in names if name.strip())
    if not parsed:
        raise ConfigError("no address; say where the queue is, for example 127.0.0.1:12301")
    return parsed


def _parse_address(name: str) -> Address:
    host, separator, port = name.rpartition(":")
    if not separator or name.endswith("]"):
        host, port = name, str(DEFAULT_PORT)
    if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ConfigError(f"{name!r} is not HOST:PORT, for example 127.0.0.1:12301")
    return Address(host.strip("[]") or "127.0.0.1", int(port))


NOWHERE = Address("nowhere", 0)
"""Before the registry has named anyone."""


class Backoff:
    """Waits that double up to a cap, each cut short by chance: many clients must not come back at once."""

    def __init__(self, *, first_s: float, cap_s: float, random: Random) -> None:
        self._first_s = first_s
        self._cap_s = cap_s
        self._random = random
        self._failures = 0

    def next_s(self) -> float:
        """How long to wait now."""
        wait_s = min(self._cap_s, self._first_s * 2.0 ** min(self._failures, 60))
        self._failures += 1
        return wait_s * self._random.uniform(0.5, 1.0)

    def reset(self) -> None:
        """It worked: start small next time."""
        self._failures = 0


class Servers:
    """The addresses, which of them is current, and how to reach it."""

    def __init__(self, addresses: tuple[Address, ...], *, connect_timeout_s: float) -> None:
        self._addresses = addresses
        self._index = 0
        self._connect_timeout_s = connect_timeout_s

    def __len__(self) -> int:
        return len(self._addresses)

    def __str__(self) -> str:
        return ",".join(str(address) for address in self._addresses)

    @property
    def current(self) -> Address:
        """The server that everyone uses now."""
        return self._addresses[self._index] if self._addresses else NOWHERE

    def replace(self, addresses: tuple[Address, ...]) -> None:
        """The registry names these, the leader first."""
        self._addresses = addresses
        self._index = 0

    def move_on(self, address: Address) -> None:
        """Go to the next. No effect if someone has moved on from this one already."""
        if address == self.current:
            self._index = (self._index + 1) % len(self._addresses)

    async def connect(self, factory: Callable[[Address], AnyProtocol]) -> AnyProtocol:
        """Connect to the current server, or else to the first of the others that answers."""
        loop = asyncio.get_running_loop()
        failures = []
        for _ in tuple(self._addresses):
            address = self.current
            try:
                async with asyncio.timeout(self._connect_timeout_s):
                    _, protocol = await loop.create_connection(partial(factory, address), *address)
            except OSError as error:  # TimeoutError is one of them.
                failures.append(f"{address}: {_reason(error)}")
                self.move_on(address)
            else:
                return protocol
        raise Unavailable(f"cannot connect to {'; '.join(failures)}")


def _reason(error: OSError) -> str:
    if isinstance(error, ConnectionRefusedError) or "Connect call failed" in str(error):
        return "connection refused"
    if isinstance(error, TimeoutError):
        return "no answer"
    return error.strerror or str(error) or type(error).__name__
