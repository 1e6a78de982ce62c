"""The driver's one way in: loaded when it is asked for, told apart in our own errors."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from pixiu.config.extras import how_to_install
from pixiu.model.errors import ConfigError, Unavailable

try:
    import confluent_kafka
    from confluent_kafka import admin
except ImportError as missing:
    how = how_to_install("kafka")
    needed = f"log = kafka://… needs the package confluent-kafka ({missing}); install it with: {how}"
    raise ConfigError(needed) from missing

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, KafkaException

    from pixiu.backends.kafka.address import KafkaAddress

driver: Any = confluent_kafka
driver_admin: Any = admin
"""Without their types, which leave much of the driver out."""

__all__ = ["client_of", "common_options", "driver", "driver_admin", "error_of", "is_fence", "unavailable"]

RECONNECT_MS_MAX = 1_000
"""librdkafka's own longest pause is ten seconds: too long for whoever waits for an answer."""
SOCKET_TIMEOUT_MS = 10_000

_log = logging.getLogger("pixiu.backends.kafka.driver")


def common_options(address: KafkaAddress, more: dict[str, str]) -> dict[str, Any]:
    """What every client of a Kafka is made with."""
    return {
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": RECONNECT_MS_MAX,
        "socket.timeout.ms": SOCKET_TIMEOUT_MS,
        "socket.connection.setup.timeout.ms": 5_000,
        "topic.metadata.refresh.interval.ms": 10_000,
        "client.id": "pixiu",
        **address.options(),
        **more,
        "bootstrap.servers": address.hosts,
        "logger": _log,
        "log_level": 3,
    }


def client_of(kind: Any, options: dict[str, Any]) -> Any:
    """A client of the driver's. Raises ``ConfigError`` for options that it does not take."""
    try:
        return kind(options)
    except confluent_kafka.KafkaException as error:
        found = error_of(error)
        if found.code() != driver.KafkaError._INVALID_ARG:
            raise Unavailable(f"Kafka's driver: {found.str()}", retry_after_ms=1_000) from error
        raise ConfigError(
            f"Kafka's driver does not take what engines.log or kafka.client says: {found.str()}"
        ) from error


def error_of(error: KafkaException) -> KafkaError:
    """What an exception of the driver carries."""
    found: KafkaError = error.args[0]
    return found


def is_fence(error: KafkaError) -> bool:
    """Does it say that someone else has taken the transactional id, or that the broker took it away?"""
    fences = (driver.KafkaError._FENCED, driver.KafkaError.PRODUCER_FENCED, driver.KafkaError.INVALID_PRODUCER_EPOCH)
    return error.code() in fences


def unavailable(address: KafkaAddress, error: KafkaError | str) -> Unavailable:
    """Of a Kafka that does not answer, or not as it should."""
    said = error if isinstance(error, str) else error.str()
    return Unavailable(f"Kafka at {address.hosts}: {said}", retry_after_ms=1_000)
