"""Where a Kafka is, and how it is spoken to: ``kafka://HOST:PORT[,HOST:PORT…][?prefix=pixiu&tls=yes&user=…]``."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import parse_qsl, urlsplit

from pixiu.backends.tls import TLS_OPTIONS, EngineTls, read_secret, take_tls
from pixiu.model.errors import ConfigError

__all__ = ["KafkaAddress", "client_options", "parse_address"]

DEFAULT_PORT = 9092
DEFAULT_PREFIX = "pixiu"
MECHANISMS = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
"""How to log in; the first is taken if none is named."""
_OPTIONS = ("prefix", "user", "password_file", "mechanism", *TLS_OPTIONS)
_SETTING = "engines.log"

_PREFIX = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")


class KafkaAddress(NamedTuple):
    """The brokers to begin with, and how the log's topics begin."""

    hosts: str
    """As librdkafka wants them: ``host:port,host:port``."""
    prefix: str
    tls: EngineTls = EngineTls()
    user: str = ""
    password_file: str = ""
    """A file that holds the password alone: settings are shown to operators, secrets are not."""
    mechanism: str = MECHANISMS[0]

    def __str__(self) -> str:
        return f"kafka://{self.hosts}?prefix={self.prefix}"

    def topic(self, name: str) -> str:
        """A topic's name in Kafka."""
        return f"{self.prefix}.{name}"

    def options(self) -> dict[str, str]:
        """What librdkafka is told of TLS and login. Raises ``ConfigError`` for a password that cannot be read."""
        tls, found = self.tls, dict[str, str]()
        if tls.is_on or self.user:
            found["security.protocol"] = ("SASL_" if self.user else "") + ("SSL" if tls.is_on else "PLAINTEXT")
        if tls.is_on:
            files = {"ca": tls.ca, "certificate": tls.certificate, "key": tls.key}
            found |= {f"ssl.{name}.location": path for name, path in files.items() if path}
            found["ssl.endpoint.identification.algorithm"] = "https" if tls.verify == "yes" else "none"
            found["enable.ssl.certificate.verification"] = "false" if tls.verify == "no" else "true"
        if self.user:
            found |= {"sasl.mechanism": self.mechanism, "sasl.username": self.user}
            found["sasl.password"] = read_secret(self.password_file, _SETTING)
        return found


def parse_address(text: str) -> KafkaAddress:
    """Read one. Raises ``ConfigError`` that says what is wrong."""
    parts = urlsplit(text)
    example = "write log = kafka://HOST:PORT[,HOST:PORT][?prefix=NAME&tls=yes&user=NAME&password_file=FILE]"
    if parts.scheme != "kafka" or not parts.netloc or parts.path.strip("/") or parts.fragment:
        raise ConfigError(f"engines.log: {text!r} names no Kafka; {example}")
    hosts = [_host(each.strip(), text) for each in parts.netloc.split(",")]
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    for name in options:
        if name not in _OPTIONS:
            raise ConfigError(f"{_SETTING}: {text!r} has {name!r}, and there are only {', '.join(_OPTIONS)}")
    prefix = options.get("prefix", DEFAULT_PREFIX)
    if not _PREFIX.fullmatch(prefix):
        raise ConfigError(f"{_SETTING}: the prefix {prefix!r} must be letters, digits, '.', '_' or '-', up to 100")
    mechanism = options.get("mechanism", MECHANISMS[0])
    if mechanism not in MECHANISMS:
        raise ConfigError(f"mechanism of {_SETTING} must be one of {', '.join(MECHANISMS)}, not {mechanism!r}")
    user, password_file = options.get("user", ""), options.get("password_file", "")
    if bool(user) != bool(password_file) or ("mechanism" in options and not user):
        raise ConfigError(f"{_SETTING} needs user and password_file to log in, or none of them")
    return KafkaAddress(",".join(hosts), prefix, take_tls(options, _SETTING), user, password_file, mechanism)


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
