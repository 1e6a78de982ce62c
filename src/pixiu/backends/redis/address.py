"""Where Redis is, as one line of the settings.

::

    redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE]          one server
    rediss://…                                                 the same with TLS
    redis+sentinel://HOST:PORT[,…]/MASTER                      the master that these sentinels name
    redis+cluster://HOST:PORT[,…]                              a cluster; any of its nodes will do
    rediss+sentinel://…  rediss+cluster://…                    the same with TLS

Behind ``?``: ``layout=seed|cluster``, ``timeout_ms=N``, ``probe_ms=N``, ``ca=FILE``, ``verify=no``, ``streams=N``,
``last_ack=yes``.
"""

import re
from dataclasses import dataclass
from typing import Literal
from urllib.parse import parse_qsl, unquote, urlsplit

from pixiu.model.errors import ConfigError

__all__ = ["Layout", "RedisAddress"]

Layout = Literal["seed", "cluster"]
Kind = Literal["single", "sentinel", "cluster"]

DEFAULT_PORT = 6379
SENTINEL_PORT = 26379
_OPTIONS = ("layout", "timeout_ms", "probe_ms", "ca", "verify", "streams", "last_ack")
_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\[\]:,@/ ]+)(?::(\d{1,5}))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisAddress:
    """A parsed address."""

    kind: Kind
    hosts: tuple[tuple[str, int], ...]
    layout: Layout
    is_tls: bool = False
    username: str | None = None
    password: str | None = None
    database: int = 0
    watched: str = ""
    """The name that sentinels know the master by."""
    timeout_ms: int = 1000
    """How long an answer may take: for so long the node stands still, once; then Redis counts as down."""
    probe_ms: int = 200
    """While it is down: between two looks whether it is back."""
    ca: str | None = None
    is_verified: bool = True
    streams: int = 1000
    """About how many entries each of the streams s: and gs: keeps; 0: there are none."""
    has_last_acks: bool = False
    """Is the newest message that a user has acked noted in the user's hash?"""

    @property
    def where(self) -> str:
        """For people: without a password."""
        hosts = ",".join(f"{host}:{port}" for host, port in self.hosts)
        return f"{hosts}/{self.watched}" if self.watched else hosts

    @classmethod
    def parse(cls, url: str) -> "RedisAddress":
        """Raises ``ConfigError`` with what is wrong."""
        parts = urlsplit(url)
        scheme, _, kind = parts.scheme.partition("+")
        if scheme not in ("redis", "rediss") or kind not in ("", "sentinel", "cluster"):
            raise ConfigError(
                f"store must be redis://…, rediss://…, redis+sentinel://… or redis+cluster://…, not {url!r}"
            )
        login, _, places = parts.netloc.rpartition("@")
        username, _, password = login.partition(":")
        default_port = SENTINEL_PORT if kind == "sentinel" else DEFAULT_PORT
        hosts = tuple(_host(place, default_port, url) for place in places.split(","))
        if not kind and len(hosts) > 1:
            raise ConfigError(
                f"store names {len(hosts)} servers: say redis+cluster:// or redis+sentinel://, in {url!r}"
            )
        options = _options(parts.query, url)
        path = unquote(parts.path.strip("/"))
        if kind == "sentinel" and not path:
            raise ConfigError(
                f"store must end with the name of the master, redis+sentinel://HOST:PORT/NAME, not {url!r}"
            )
        if kind != "sentinel" and path and (kind == "cluster" or not path.isdecimal()):
            raise ConfigError(f"store may end with the number of a database, and only on one server, in {url!r}")
        layout = options.get("layout", "cluster" if kind == "cluster" else "seed")
        if layout not in ("seed", "cluster") or (kind == "cluster" and layout == "seed"):
            raise ConfigError(f"layout must be seed or cluster, and cluster on a cluster, in {url!r}")
        return cls(
            kind="sentinel" if kind == "sentinel" else "cluster" if kind == "cluster" else "single",
            hosts=hosts,
            layout="seed" if layout == "seed" else "cluster",
            is_tls=scheme == "rediss",
            username=unquote(username) or None,
            password=unquote(password) or None,
            database=int(path) if path and kind != "sentinel" else 0,
            watched=path if kind == "sentinel" else "",
            timeout_ms=_number(options, "timeout_ms", 1000, url),
            probe_ms=_number(options, "probe_ms", 200, url),
            ca=options.get("ca"),
            is_verified=options.get("verify", "yes") != "no",
            streams=_number(options, "streams", 1000, url, at_least=0),
            has_last_acks=options.get("last_ack", "no") == "yes",
        )


def _host(place: str, default_port: int, url: str) -> tuple[str, int]:
    match = _HOST.fullmatch(place)
    if match is None or int(match[2] or 0) > 65535:
        raise ConfigError(f"store names a server as HOST:PORT, not {place!r}, in {url!r}")
    return match[1].strip("[]"), int(match[2] or default_port)


def _options(query: str, url: str) -> dict[str, str]:
    options = dict(parse_qsl(query, keep_blank_values=True))
    for name in options:
        if name not in _OPTIONS:
            raise ConfigError(f"store has no option {name!r}, only {', '.join(_OPTIONS)}, in {url!r}")
    return options


def _number(options: dict[str, str], name: str, default: int, url: str, *, at_least: int = 1) -> int:
    text = options.get(name, str(default))
    if not text.isdecimal() or not at_least <= int(text) <= 60_000:
        raise ConfigError(f"{name} must be from {at_least} to 60000, not {text!r}, in {url!r}")
    return int(text)
