"""Settings of the log on Kafka; they count where ``log = "kafka://…"``."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pixiu.config.section import Bounds, Count, Milliseconds, Positive, Section

__all__ = ["KafkaSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSettings(Section):
    """How the log lies in Kafka, and how long it may take."""

    name_in_file: ClassVar[str] = "kafka"
    may_be_empty: ClassVar[frozenset[str]] = frozenset({"client"})

    append_timeout_ms: Milliseconds = 10_000
    """Whoever appends waits this long for Kafka; then it is unavailable, and a repeat with the send_id is safe."""

    pending_max: Positive = 100_000
    """Entries that wait for Kafka at a time; beyond that an append is refused as busy."""

    pending_bytes_max: Annotated[int, Bounds(65536)] = 64 * 2**20
    """And bytes of them."""

    copies: Count = 0
    """Replicas of the topics, when they are made; 0 is one per broker, up to three."""

    min_insync: Count = 0
    """Replicas that must have a message before it is accepted, when topics are made; 0 is a majority."""

    client: str = ""
    """More options of the driver (librdkafka), as "security.protocol=SASL_SSL; sasl.username=pixiu"."""
