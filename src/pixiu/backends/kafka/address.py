"""Where a Kafka is: ``kafka://HOST:PORT[,HOST:PORT…][?prefix=pixiu]``."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import parse_qsl, urlsplit

from pixiu.model.errors import ConfigError

__all__ = ["KafkaAddress", "client_options", "parse_address"]

DEFAULT_PORT = 9092
DEFAULT_PREFIX = "pixiu"

_PREFIX = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")


class KafkaAddress(NamedTuple):
    """The brokers to begin with, and how the log's topics begin."""

    hosts: str
    """As librdkafka wants them: ``host:port,host:port``."""
    prefix: str

    def __str__(self) -> str:
        return f"kafka://{self.hosts}?prefix={self.prefix}"

    def topic(self, name: str) -> str:
        """A topic's name in Kafka."""
        return f"{self.prefix}.{name}"


def parse_address(text: str) -> KafkaAddress:
    """Read one. Raises ``ConfigError`` that says what is wrong."""
    parts = urlsplit(text)
    example = "write log = kafka://HOST:PORT[,HOST:PORT][?prefix=NAME]"
    if parts.scheme != "kafka" or not parts.netloc or parts.path.strip("/") or parts.fragment:
        raise ConfigError(f"engines.log: {text!r} names no Kafka; {example}")
    hosts = [_host(each.strip(), text) for each in parts.netloc.split(",")]
    prefix = DEFAULT_PREFIX
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name != "prefix":
            raise ConfigError(f"engines.log: {text!r} has {name!r}, and only prefix is known there")
        prefix = value
    if not _PREFIX.fullmatch(prefix):
        raise ConfigError(f"engines.log: the prefix {prefix!r} must be letters, digits, '.', '_' or '-', up to 100")
    return KafkaAddress(",".join(hosts), prefix)


def _host(text: str, whole: str) -> str:
    name, colon, port = text.rpartition(":")
    if not colon or (text.startswith("[") and text.endswith("]")):
        name, port = text, str(DEFAULT_PORT)
    if not name or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise ConfigError(f"engines.log: {text!r} in {whole!r} is no HOST:PORT")
    return f"{name}:{port}"


def client_options(text: str) -> dict[str, str]:
    """More options for librdkafka: ``key=value; key=value``. What makes the log safe cannot be changed by them."""
    options: dict[str, str] = {}
    for each in filter(None, (part.strip() for part in text.split(";"))):
        name, equals, value = each.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"kafka.client: write NAME=VALUE; NAME=VALUE, not {each!r}")
        if name.strip() in FIXED:
            raise ConfigError(f"kafka.client: {name.strip()} is set by Pixiu, and cannot be changed")
        options[name.strip()] = value.strip()
    return options


FIXED = frozenset({
    "acks", "bootstrap.servers", "enable.auto.commit", "enable.idempotence", "enable.partition.eof", "group.id",
    "isolation.level", "message.timeout.ms", "request.required.acks", "transaction.timeout.ms", "transactional.id",
})  # fmt: skip
