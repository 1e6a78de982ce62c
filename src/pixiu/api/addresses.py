"""How often each address may call: a token bucket each, kept as the time at which it will be full again."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING

from pixiu.model.errors import RateLimited

if TYPE_CHECKING:
    from pixiu.ports.clock import Clock

__all__ = ["AddressRates"]

ADDRESSES_MAX = 100_000
_NETWORK_BITS = 64


class AddressRates:
    """Buckets by address, in bounded memory. An IPv6 network of a customer's usual size counts as one address."""

    def __init__(self, clock: Clock, *, per_second: int, burst: int, addresses_max: int = ADDRESSES_MAX) -> None:
        self._clock = clock
        self._per_second = per_second
        self._token_us = 1_000_000 // per_second if per_second else 0
        self._burst_us = burst * self._token_us
        self._addresses_max = addresses_max
        self._full_at: dict[str, int] = {}

    def take(self, address: str) -> None:
        """One request; raises ``RateLimited``, and then nothing is taken."""
        if not self._token_us:
            return
        now = self._clock.monotonic_us()
        network = _network(address)
        full_at = max(self._full_at.pop(network, now), now) + self._token_us
        if full_at - now > self._burst_us:
            self._full_at[network] = full_at - self._token_us
            wait_ms = (full_at - now - self._burst_us + 999) // 1000
            raise RateLimited(
                f"at most {self._per_second} requests a second from one address; try again in {wait_ms} ms",
                retry_after_ms=wait_ms,
            )
        self._full_at[network] = full_at
        if len(self._full_at) > self._addresses_max:
            self._forget(now)

    def __len__(self) -> int:
        return len(self._full_at)

    def _forget(self, now: int) -> None:
        """Forget those that are full again; if that is not enough, those that were not used for longest."""
        kept = {network: full_at for network, full_at in self._full_at.items() if full_at > now}
        excess = max(len(kept) - self._addresses_max * 3 // 4, 0)
        self._full_at = dict(list(kept.items())[excess:])


def _network(address: str) -> str:
    if ":" not in address:
        return address
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is None:
        return f"{int(parsed) >> (128 - _NETWORK_BITS):x}"
    return str(parsed.ipv4_mapped) if isinstance(parsed, IPv6Address) else str(parsed)
