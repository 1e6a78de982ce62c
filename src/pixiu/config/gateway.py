"""Settings of the gateway: clients' connections."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pixiu.config.section import Bounds, Count, Milliseconds, Positive, Section
from pixiu.model.errors import ConfigError, RequestError
from pixiu.model.names import PLATFORMS_MAX, check_platform

__all__ = ["GatewaySettings", "Presence"]

Presence = Literal["contacts", "mutual", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings(Section):
    """Connections of clients: how many, how often, how slow, how idle."""

    name_in_file: ClassVar[str] = "gateway"

    tcp_port: Annotated[int, Bounds(-1, 65535)] = -1
    """Port for native apps: the same frames with a length in front, without HTTP. 0 picks one, -1 serves none."""

    grpc_port: Annotated[int, Bounds(-1, 65535)] = -1
    """Port for gomsg's gRPC clients: LoopV1, Push, sessions. 0 picks one, -1 serves none. Not with ``processes``."""

    platforms: str = ""
    """Platforms of your apps, as "mobile, desktop": a push for all platforms waits for each of them, also for one on
    which the user has never logged in. At most 16. Logins on other platforms stay possible."""

    origins: str = ""
    """Web origins that may connect beside the server's own, as "https://a.example, https://b.example"; "*" is any."""

    processes: Annotated[int, Bounds(0, 64)] = 0
    """Processes that share the client port and hold the connections; 0: the node's own process holds them."""

    connections_max: Positive = 100_000
    """Connections of one process at a time, or as many as its descriptors allow; one more is refused with 503,
    over TCP as busy."""

    hello_timeout_ms: Milliseconds = 5_000
    """A new connection must have said what it wants within this time."""

    ping_interval_ms: Annotated[int, Bounds(50, 3_600_000)] = 30_000
    """A client that was silent for this long is asked for a sign of life."""

    idle_timeout_ms: Annotated[int, Bounds(50, 86_400_000)] = 75_000
    """A client that was silent for this long is closed."""

    requests_in_flight: Positive = 64
    """Requests of one connection that wait for their answers; more are refused as busy."""

    output_mark_bytes: Annotated[int, Bounds(1024)] = 64 * 1024
    """While more than this waits in a client's socket, live events are dropped: the latest of each kind stays."""

    output_bytes_max: Annotated[int, Bounds(4096)] = 4 * 2**20
    """What may wait for one client's socket, at least twice output_mark_bytes; messages beyond this are held back."""

    slow_timeout_ms: Milliseconds = 10_000
    """A client that stays behind for this long and takes less than a quarter of output_mark_bytes in it is kicked; its
    messages wait."""

    connects_per_user: Count = 10
    """Connects of one user per second on average; 0 is no limit."""

    connect_burst_per_user: Positive = 50
    """Connects of one user at once before the average counts."""

    connects_per_address: Count = 200
    """Connects from one address per second on average; 0 is no limit. This machine's own address has none."""

    connect_burst_per_address: Positive = 2_000
    """Connects from one address at once before the average counts."""

    requests_per_user: Count = 200
    """Requests of one user per second on average; 0 is no limit."""

    request_burst_per_user: Positive = 1_000
    """Requests of one user at once before the average counts."""

    requests_per_address: Count = 5_000
    """Requests from one address per second on average; 0 is no limit. This machine's own address has none."""

    request_burst_per_address: Positive = 20_000
    """Requests from one address at once before the average counts."""

    lease_ms: Annotated[int, Bounds(100, 600_000)] = 10_000
    """A gateway process that is silent for this long is taken for dead, and its sessions are dropped; likewise a
    node that stood still for this long believes that others took it for dead."""

    frozen_ms: Annotated[int, Bounds(1_000, 3_600_000)] = 60_000
    """A gateway process that is silent for this long is killed, and another one is started."""

    resync_percent: Annotated[int, Bounds(0, 100)] = 25
    """Share of its clients that a gateway closes after it was frozen longer than its lease; the others get `resync`."""

    link_bytes_max: Annotated[int, Bounds(2**20)] = 64 * 2**20
    """What may wait between the node and one gateway process; beyond this their link is cut, and begun anew."""

    drain_batch: Positive = 500
    """Connections that are sent away at a time when the server stops, every 20 ms."""

    drain_spread_ms: Annotated[int, Bounds(0, 3_600_000)] = 10_000
    """Those who are sent away are told to come back spread over this time."""

    presence: Presence = "mutual"
    """Whose presence a user sees: ``mutual`` contacts, all the user's own ``contacts``, or ``none``. Blocks hide it."""

    presence_delay_ms: Annotated[int, Bounds(0, 600_000)] = 1_000
    """Who comes and goes within this time did not: others are told after it."""

    presence_watch_max: Positive = 1_000
    """Users whose presence one connection may follow."""

    typing_interval_ms: Annotated[int, Bounds(0, 600_000)] = 1_000
    """Others are told that someone types at most this often per connection."""

    may_be_empty: ClassVar[frozenset[str]] = frozenset({"origins", "platforms"})

    @property
    def platform_names(self) -> tuple[str, ...]:
        """The declared platforms, sorted. Raises ``ConfigError`` for a name that no platform can have."""
        names = [name for name in map(str.strip, self.platforms.split(",")) if name]
        for name in names:
            try:
                check_platform(name)
            except RequestError as error:
                raise ConfigError(f"gateway.platforms must name platforms: {error}") from None
            if names.count(name) > 1:
                raise ConfigError(f"gateway.platforms must name {name} once, not {names.count(name)} times")
        if len(names) > PLATFORMS_MAX:
            raise ConfigError(f"gateway.platforms may name {PLATFORMS_MAX} platforms, not {len(names)}")
        return tuple(sorted(names))

    def __post_init__(self) -> None:
        Section.__post_init__(self)
        _ = self.platform_names
        least = 2 * self.output_mark_bytes
        if self.output_bytes_max < least:
            raise ConfigError(
                f"gateway.output_bytes_max must be at least twice gateway.output_mark_bytes ({least}), "
                f"not {self.output_bytes_max}"
            )
