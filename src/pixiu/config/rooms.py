"""Settings of live rooms."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pixiu.config.section import Bounds, Count, Milliseconds, Positive, Section
from pixiu.model.errors import ConfigError

__all__ = ["RoomSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomSettings(Section):
    """Who may listen and talk in rooms, and how talk is gathered and repeated on its way to the gateways."""

    name_in_file: ClassVar[str] = "rooms"

    message_bytes_max: Annotated[int, Bounds(1, 2**20)] = 64 * 1024
    """Largest text said in a room; a larger one is refused."""

    says_per_second: Count = 20
    """Enters and messages of one user per second on average; 0 is no limit."""

    say_burst: Positive = 60
    """Enters and messages of one user at once before the average counts."""

    sessions_max: Positive = 100_000
    """Sessions in one room; the next one is refused."""

    rooms_per_session_max: Positive = 100
    """Rooms that one session may be in."""

    batch_ms: Annotated[int, Bounds(0, 1_000)] = 5
    """Talk in a room of more than 32 sessions waits for more until this long after the last frame; 0: never."""

    batch_count: Annotated[int, Bounds(1, 4096)] = 64
    """Or until this many messages for one gateway have gathered."""

    pending_max: Positive = 1_000
    """Messages of one room that may wait for a gateway. Beyond it a live one is dropped, the lowest priority and the
    oldest first; reliable ones are refused."""

    gateway_pending_max: Positive = 10_000
    """Messages of all rooms that may wait for a gateway, and reliable ones on their way to it without an ack. Beyond it
    a live one is dropped, the lowest priority and the oldest first; reliable ones are refused as busy."""

    resend_ms: Annotated[int, Bounds(10, 60_000)] = 200
    """A frame with reliable messages goes again after this without an ack; each later time waits twice as long."""

    reliable_ms: Milliseconds = 30_000
    """A reliable message that a gateway has not acked for this long is given up, and counted."""

    dedup_ms: Milliseconds = 120_000
    """How long a gateway knows the reliable messages it has seen; at least reliable_ms."""

    dedup_count: Positive = 200_000
    """And how many of them at most."""

    presence_ms: Annotated[int, Bounds(100, 600_000)] = 1_000
    """A room whose audience has changed tells its counts this often at most, and reports what was said in it."""

    big_members: Count = 10_000
    """In a cluster: a room with more sessions becomes 64 virtual rooms, on all brokers; 0: never by its size."""

    big_deliveries: Count = 50_000
    """Or one with more deliveries per second, for three seconds; 0: never by its heat."""

    def __post_init__(self) -> None:
        Section.__post_init__(self)
        if self.dedup_ms < self.reliable_ms:
            raise ConfigError(
                f"rooms.dedup_ms must be at least rooms.reliable_ms ({self.reliable_ms}), not {self.dedup_ms}"
            )
