"""Every setting of Pixiu, in one place.

A value comes from the first of these that has it: the command line, a variable ``PIXIU_SECTION__KEY``, the
TOML file, the default below. Nothing else in Pixiu reads the environment; the command line reads the settings
once and passes each part the smallest piece it needs::

    settings = load_settings(Path("pixiu.toml"), environ=os.environ, overrides={"queue.port": 0})
    settings.journal.flush    # 'always'

What is unknown, of the wrong type or out of bounds refuses to start with a line that names the key, the value
and the bound. ``examples/pixiu.toml`` and the table in ``docs/operations.md`` are made from this file.
"""

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_args, get_origin, get_type_hints

from pixiu.model.errors import ConfigError

__all__ = [
    "Bounds",
    "DelaySettings",
    "HttpSettings",
    "JournalSettings",
    "LifetimeSettings",
    "LogSettings",
    "QueueSettings",
    "ReplicationSettings",
    "Section",
    "Settings",
    "TopicSettings",
    "key_types",
    "load_settings",
    "parse_assignment",
    "sections",
]

ENVIRONMENT_PREFIX = "PIXIU_"

_TYPE_NAMES: dict[object, str] = {int: "a whole number", bool: "true or false", str: "a text"}


@dataclass(frozen=True, slots=True)
class Bounds:
    """The smallest and largest value that a number may have; None is no bound."""

    at_least: int | None = None
    at_most: int | None = None


class Section:
    """A group of settings that checks its own values as it is made."""

    __slots__ = ()
    name_in_file: ClassVar[str]
    may_be_empty: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        for key, hint in key_types(type(self)).items():
            value = getattr(self, key)
            _check(f"{self.name_in_file}.{key}", value, hint)
            if value == "" and key not in self.may_be_empty:
                raise ConfigError(f"{self.name_in_file}.{key} must not be empty")


Port = Annotated[int, Bounds(0, 65535)]
Count = Annotated[int, Bounds(0)]
Positive = Annotated[int, Bounds(1)]
Milliseconds = Annotated[int, Bounds(1, 7 * 86_400_000)]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings(Section):
    """The queue's port, and what one client may ask of it."""

    name_in_file: ClassVar[str] = "queue"

    host: str = "127.0.0.1"
    """Address to listen on. The protocol has no passwords: keep it on loopback or on a trusted network."""

    port: Port = 12301
    """Port of the queue's protocol; 0 picks a free one."""

    connections_max: Positive = 10_000
    """Connections above this many are closed at once; those that are open go on."""

    payload_bytes_max: Annotated[int, Bounds(1024, 2**31 - 1)] = 16 * 2**20
    """Largest payload of one publish or delay; a larger one is refused before any of it is kept."""

    subscriber_name_bytes_max: Annotated[int, Bounds(1, 65535)] = 1024
    """Longest name of a subscriber."""

    pending_bytes_max: Annotated[int, Bounds(65536)] = 64 * 2**20
    """Bytes that may wait for the writer over all connections. At this mark the queue stops reading from
    publishers until some are written."""

    idle_timeout_ms: Milliseconds = 30 * 60_000
    """A connection that sent nothing for this long, and subscribes to nothing, is closed."""

    keep_alive_ms: Annotated[int, Bounds(1, 34_999)] = 30_000
    """How often an idle subscriber or follower hears from the server; smss's clients give up after 35 s."""

    write_timeout_ms: Milliseconds = 5_000
    """A client that takes none of its answers for this long is cut."""

    replica_write_timeout_ms: Milliseconds = 120_000
    """A follower that takes nothing for this long is cut."""

    ack_timeout_default_ms: Milliseconds = 3_000
    """How long a subscriber that named no timeout may take to ack."""

    no_cache: bool = False
    """Ask the system not to keep written segments in its page cache."""

    read_cache_bytes: Count = 8 * 2**20
    """Bytes of topic logs kept in memory for subscribers that follow closely."""

    open_topics_max: Annotated[int, Bounds(8)] = 256
    """Topic logs kept open at a time; the least used one is closed first."""

    keys_max: Positive = 100_000
    """Keys of recent conditional appends that the writer remembers."""

    node_id: Annotated[int, Bounds(0, 1023)] = 0
    """This node's number inside the message ids that it gives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalSettings(Section):
    """The one global log under the queue: order, recovery, replication."""

    name_in_file: ClassVar[str] = "journal"

    segment_bytes: Annotated[int, Bounds(4096, 2**40)] = 2**30
    """Roll to a new segment file past this size."""

    flush: Literal["none", "interval", "always"] = "always"
    """When records reach the disk: none (when the system likes), interval, or always (before each answer)."""

    flush_interval_ms: Annotated[int, Bounds(1, 60_000)] = 1_000
    """Longest time that an answered record may sit in the page cache, with flush = "interval"."""

    retention_days: Annotated[int, Bounds(0, 36_500)] = 0
    """Remove journal segments older than this; 0 keeps them for ever."""

    retention_bytes: Count = 0
    """Remove the oldest journal segments while the journal is larger than this; 0 is no limit."""

    free_bytes_min: Count = 256 * 2**20
    """With less free space than this on the disk, publishes are refused until there is more."""

    checkpoint_bytes: Annotated[int, Bounds(4096)] = 16 * 2**20
    """Write a checkpoint after this much journal, so that a restart replays no more than that."""

    checkpoint_interval_ms: Milliseconds = 5_000
    """Write a checkpoint at least this often while records come in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings(Section):
    """The per-topic logs that subscribers read."""

    name_in_file: ClassVar[str] = "topics"

    segment_bytes: Annotated[int, Bounds(4096, 2**40)] = 64 * 2**20
    """Roll a topic to a new segment file past this size."""

    retention_days: Annotated[int, Bounds(0, 36_500)] = 0
    """Remove topic segments older than this; 0 keeps them for ever."""

    retention_bytes: Count = 0
    """Remove a topic's oldest segments while the topic is larger than this; 0 is no limit."""

    retention_interval_ms: Milliseconds = 300_000
    """How often to look for segments that may go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DelaySettings(Section):
    """Delayed messages."""

    name_in_file: ClassVar[str] = "delays"

    first_scan_ms: Annotated[int, Bounds(0, 86_400_000)] = 0
    """How long after the start to look for due messages for the first time."""

    scan_interval_ms: Milliseconds = 1_000
    """Look at the clock at least this often, whatever the timers say; what is due earlier has its own timer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LifetimeSettings(Section):
    """Topics that end by themselves."""

    name_in_file: ClassVar[str] = "lifetimes"

    scan_interval_ms: Milliseconds = 1_000
    """Look at the clock at least this often, whatever the timers say; what ends earlier has its own timer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationSettings(Section):
    """Leader and followers of the queue."""

    name_in_file: ClassVar[str] = "replication"
    may_be_empty: ClassVar[frozenset[str]] = frozenset({"name"})

    name: str = ""
    """This node's name among its peers; empty is the address it listens on."""

    acknowledge: Literal["local", "in-sync"] = "local"
    """When a publish is answered: once the local journal has it, or every in-sync follower as well."""

    min_isr: Annotated[int, Bounds(1, 100)] = 1
    """With acknowledge = "in-sync": fewer nodes in sync than this (the leader counts) refuse publishes."""

    in_sync_timeout_ms: Milliseconds = 10_000
    """A follower that has not caught up for this long leaves the in-sync set."""

    heartbeat_ms: Annotated[int, Bounds(1, 30_000)] = 1_000
    """How often leader and follower tell each other how far they are."""

    reconnect_ms: Milliseconds = 2_000
    """How long a follower waits before it connects again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings(Section):
    """What Pixiu tells about itself."""

    name_in_file: ClassVar[str] = "log"

    path: str = "stderr"
    """Where to: stderr, stdout, or a directory in which pixiu.log is kept and rotated."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least serious level that is logged."""

    format: Literal["auto", "human", "json"] = "auto"
    """How: auto is human on a terminal and JSON lines elsewhere."""

    sample: Count = 10_000
    """Log one of this many publishes and topic commands; 1 logs each, 0 none."""

    rotate_bytes: Annotated[int, Bounds(4096)] = 500 * 2**20
    """Start a new log file past this size."""

    rotate_backups: Count = 10
    """Rotated log files kept; 0 keeps all."""

    rotate_days: Count = 14
    """Rotated log files older than this are removed; 0 keeps all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings(Section):
    """The HTTP port: health, readiness, metrics."""

    name_in_file: ClassVar[str] = "http"

    host: str = "127.0.0.1"
    """Address to listen on."""

    port: Port = 8400
    """Port to listen on; 0 picks a free one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings, checked. Tests build one directly, ``load_settings`` from the outside world."""

    queue: QueueSettings = field(default_factory=QueueSettings)
    journal: JournalSettings = field(default_factory=JournalSettings)
    topics: TopicSettings = field(default_factory=TopicSettings)
    delays: DelaySettings = field(default_factory=DelaySettings)
    lifetimes: LifetimeSettings = field(default_factory=LifetimeSettings)
    replication: ReplicationSettings = field(default_factory=ReplicationSettings)
    log: LogSettings = field(default_factory=LogSettings)
    http: HttpSettings = field(default_factory=HttpSettings)


def sections() -> dict[str, type[Section]]:
    """The sections of the file, in order, with their classes."""
    hints = get_type_hints(Settings)
    return {section.name: hints[section.name] for section in fields(Settings)}


def key_types(section: type[Section]) -> dict[str, Any]:
    """The keys of a section, in order, with their annotated types."""
    hints = get_type_hints(section, include_extras=True)
    return {key.name: hints[key.name] for key in fields(section)}  # type: ignore[arg-type]


def load_settings(
    path: Path | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    overrides: Mapping[str, object] | None = None,
) -> Settings:
    """Read the defaults, then ``path``, then ``environ``, then ``overrides`` (by ``section.key``)."""
    values: dict[str, dict[str, object]] = {section: {} for section in sections()}
    if path is not None:
        _take_file(path, values)
    _take_environment(environ or {}, values)
    for key, value in (overrides or {}).items():
        section, _, name = key.partition(".")
        _require_known(section, name)
        values[section][name] = value
    return Settings(**{section: kind(**values[section]) for section, kind in sections().items()})  # type: ignore[arg-type]


def parse_assignment(text: str) -> tuple[str, object]:
    """The key and value of ``section.key=value``, as the command line has it."""
    key, equals, value = text.partition("=")
    section, _, name = key.strip().partition(".")
    if not equals:
        raise ConfigError(f"write SECTION.KEY=VALUE, not {text!r}")
    _require_known(section, name)
    return key.strip(), _from_text(key.strip(), value.strip(), key_types(sections()[section])[name])


def _take_file(path: Path, values: dict[str, dict[str, object]]) -> None:
    """Add what a TOML file says."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the settings in {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
    for section, keys in content.items():
        _require_known_section(section)
        if not isinstance(keys, dict):
            raise ConfigError(f"{section} is a section: write [{section}] above its keys in {path}")
        for name, value in keys.items():
            _require_known(section, name)
            values[section][name] = value


def _take_environment(environ: Mapping[str, str], values: dict[str, dict[str, object]]) -> None:
    """Add what the variables PIXIU_SECTION__KEY say. Others that only look alike are refused, not ignored."""
    for variable, text in sorted(environ.items()):
        if not variable.startswith(ENVIRONMENT_PREFIX):
            continue
        section, double, name = variable.removeprefix(ENVIRONMENT_PREFIX).lower().partition("__")
        if double:
            _require_known(section, name)
            values[section][name] = _from_text(variable, text, key_types(sections()[section])[name])
        elif any(section.startswith(f"{known}_") for known in sections()):
            raise ConfigError(f"unknown variable {variable}{_nearest(variable, _variables())}")


def _from_text(variable: str, text: str, hint: object) -> object:
    """Turn a variable's text into the type of its setting."""
    kind = _plain_type(hint)
    if kind is bool:
        known = {
            "true": True,
            "1": True,
            "yes": True,
            "on": True,
            "false": False,
            "0": False,
            "no": False,
            "off": False,
        }
        if text.strip().lower() not in known:
            raise ConfigError(f"{variable} must be true or false, not {text!r}")
        return known[text.strip().lower()]
    if kind is int:
        try:
            return int(text.strip().replace("_", ""))
        except ValueError:
            raise ConfigError(f"{variable} must be a whole number, not {text!r}") from None
    return text


def _check(key: str, value: object, hint: object) -> None:
    """Raise if a value is not of its setting's type, choices and bounds."""
    kind = _plain_type(hint)
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            choices = ", ".join(map(str, get_args(hint)))
            raise ConfigError(f"{key} must be one of {choices}, not {value!r}")
        return
    # bool is an int to Python; to a person who writes `port = true` it is a slip.
    if type(value) is not kind:
        raise ConfigError(f"{key} must be {_TYPE_NAMES[kind]}, not {value!r}")
    for bounds in get_args(hint)[1:]:
        if bounds.at_least is not None and value < bounds.at_least:
            raise ConfigError(f"{key} must be at least {bounds.at_least}, not {value}")
        if bounds.at_most is not None and value > bounds.at_most:
            raise ConfigError(f"{key} must be at most {bounds.at_most}, not {value}")


def _plain_type(hint: object) -> object:
    """The type under ``Annotated``; a choice is a text."""
    if get_origin(hint) is Literal:
        return str
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _require_known_section(section: str) -> None:
    if section not in sections():
        raise ConfigError(f"unknown section {section}{_nearest(section, sections())}")


def _require_known(section: str, key: str) -> None:
    """Raise for a key that is not there, with the nearest that is."""
    _require_known_section(section)
    keys = key_types(sections()[section])
    if key not in keys:
        raise ConfigError(f"unknown setting {section}.{key}{_nearest(key, keys)}")


def _nearest(word: str, known: Iterable[str]) -> str:
    """A hint for a misspelt name: the nearest, or all."""
    names = list(known)
    near = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    return f"; did you mean {near[0]}?" if near else f"; known: {', '.join(sorted(names))}"


def _variables() -> list[str]:
    return [
        f"{ENVIRONMENT_PREFIX}{section}__{key}".upper()
        for section, kind in sections().items()
        for key in key_types(kind)
    ]
