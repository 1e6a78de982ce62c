"""What ``timelines = "cassandra://…"`` says: where the servers are, and how their tables are laid out."""

import re
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlsplit

from pixiu.backends.tls import TLS_OPTIONS, EngineTls, take_tls
from pixiu.model.errors import ConfigError

__all__ = ["LAYOUTS", "SCHEME", "Address"]

SCHEME = "cassandra://"
LAYOUTS = ("default", "seed", "bucketed")
PORT = 9042
KEYSPACE = "chatdata"

_FORM = "cassandra://HOST[:PORT][,HOST…][/KEYSPACE][?layout=seed|bucketed]"
_OPTIONS = ("layout", "user", "password_file", "datacenter", "replicas", "timeout_ms", *TLS_OPTIONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A cluster, a keyspace of it, and how to use it."""

    hosts: tuple[str, ...]
    port: int = PORT
    keyspace: str = KEYSPACE
    layout: str = "default"
    user: str = ""
    password_file: str = ""
    """A file that holds the password alone: settings are shown to operators, secrets are not."""
    datacenter: str = ""
    """Which one is local. Empty: that of the hosts."""
    replicas: int = 0
    """Copies of each row, if the keyspace is made by us. 0: three, or as many as there are nodes."""
    timeout_ms: int = 2000
    """How long a read or a write may take before history counts as unavailable."""
    tls: EngineTls = field(default_factory=EngineTls)

    @classmethod
    def parse(cls, text: str) -> "Address":
        """From the setting. Raises ``ConfigError`` that names what is wrong."""
        parts = urlsplit(text)
        if parts.scheme != "cassandra" or not parts.netloc or "@" in parts.netloc or parts.fragment:
            raise ConfigError(f"timelines must be {_FORM}, not {text!r}")
        hosts, port = _hosts(parts.netloc, text)
        keyspace = parts.path.strip("/") or KEYSPACE
        if not re.fullmatch(r"[a-z][a-z0-9_]{0,47}", keyspace):
            raise ConfigError(f"a keyspace has up to 48 small letters, digits and _, not {keyspace!r}")
        given = dict(parse_qsl(parts.query, keep_blank_values=True))
        tls = take_tls(given, "timelines")
        options = {name: _option(name, value) for name, value in given.items() if name not in TLS_OPTIONS}
        return cls(hosts=hosts, port=port, keyspace=keyspace, tls=tls, **options)  # type: ignore[arg-type]

    def __str__(self) -> str:
        return f"cassandra at {','.join(self.hosts)}:{self.port}"


def _hosts(netloc: str, text: str) -> tuple[tuple[str, ...], int]:
    """The driver has one port for all hosts."""
    hosts: list[str] = []
    ports: set[int] = set()
    for each in netloc.split(","):
        host, has_port, port = each.partition(":")
        if not host or (has_port and not (port.isdecimal() and 0 < int(port) < 65536)):
            raise ConfigError(f"timelines must be {_FORM}, not {text!r}")
        hosts.append(host)
        if has_port:
            ports.add(int(port))
    if len(ports) > 1:
        raise ConfigError(f"all hosts of timelines must have the same port, not {sorted(ports)}")
    return tuple(hosts), ports.pop() if ports else PORT


def _option(name: str, value: str) -> str | int:
    if name == "layout":
        if value not in LAYOUTS:
            raise ConfigError(f"layout of timelines must be one of {', '.join(LAYOUTS)}, not {value!r}")
        return value
    if name in ("user", "password_file", "datacenter"):
        return value
    bounds = {"replicas": (1, 9), "timeout_ms": (50, 60_000)}.get(name)
    if bounds is None:
        raise ConfigError(f"timelines knows no option {name!r}: {', '.join(_OPTIONS)}")
    low, high = bounds
    if not value.isdecimal() or not low <= int(value) <= high:
        raise ConfigError(f"{name} of timelines must be {low} to {high}, not {value!r}")
    return int(value)
