"""Settings of a cluster's links: heartbeats, the registry, and what becomes of talk on its way."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pixiu.config.section import Bounds, Milliseconds, Port, Positive, Section
from pixiu.model.errors import ConfigError

__all__ = ["NOTIFICATION_MS", "LinkSettings"]

NOTIFICATION_MS = 15_000
"""How late a registry may tell of a change; who polls faster than that turns its trouble into the cluster's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSettings(Section):
    """How the processes of a cluster watch each other and talk."""

    name_in_file: ClassVar[str] = "links"

    heartbeat_ms: Annotated[int, Bounds(50, 60_000)] = 1_000
    """Every process asks each one it sends to this often whether it gets on with its work."""

    suspect_ms: Milliseconds = 3_000
    """One that has not answered for this long gets no more work."""

    dead_ms: Milliseconds = 5_000
    """And after this it has to answer twice before it gets work again."""

    linger_ms: Milliseconds = 30_000
    """One that answers is kept for this long though the registry has lost it."""

    poll_ms: Milliseconds = 60_000
    """The registry is read this often, whether or not it told of a change; at least 15 seconds."""

    unsafe_fast_poll: bool = False
    """Allow a shorter poll_ms: for tests."""

    session_ms: Annotated[int, Bounds(1_000, 600_000)] = 10_000
    """After this without contact the registry takes a process for gone."""

    grace_ms: Milliseconds = 180_000
    """After a doubling a partition keeps this long what has moved away from it; at least two polls."""

    drain_ms: Annotated[int, Bounds(0, 600_000)] = 2_000
    """A process that is told to stop says so, and serves for this long until the others have seen it."""

    room_path: Literal["direct", "relay"] = "direct"
    """Of brokers: they send to gateways themselves, or to relays, which alone know at which gateway a user is."""

    reliable_mode: Literal["acked", "copies"] = "acked"
    """Reliable talk of clients: acked by every gateway and sent until it is, or three copies over different proxies."""

    reliable_ms: Milliseconds = 30_000
    """Acked talk that not every gateway has after this long is given up, and its sender told."""

    keep_shown: bool = True
    """A gateway with a port of its own keeps in a file which reliable messages it has shown, for its next life."""

    pending_max: Positive = 10_000
    """Messages of one publisher without an answer; more are refused as busy."""

    admin_port: Port = 0
    """Health, readiness, metrics and peers of a role process, on the address that it binds; 0 picks a free port."""

    hub_port: Port = 0
    """Where gateways connect to a replica of a shard, on the address that it binds; 0 picks a free port."""

    def __post_init__(self) -> None:
        Section.__post_init__(self)
        if self.poll_ms < NOTIFICATION_MS and not self.unsafe_fast_poll:
            raise ConfigError(
                f"links.poll_ms must be at least {NOTIFICATION_MS}, which is how late a registry may tell of a change, "
                f"not {self.poll_ms}; links.unsafe_fast_poll allows it for tests"
            )
        if not self.heartbeat_ms < self.suspect_ms <= self.dead_ms:
            raise ConfigError("links.heartbeat_ms must be below links.suspect_ms, and that not above links.dead_ms")
        if self.grace_ms < 2 * self.poll_ms:
            raise ConfigError(f"links.grace_ms must be at least two polls ({2 * self.poll_ms}), not {self.grace_ms}")
