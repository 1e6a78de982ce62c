"""Every setting of Pixiu, in one place.

A value comes from the first of these that has it: the command line, a variable ``PIXIU_SECTION__KEY``, the
TOML file, the default below. Nothing else in Pixiu reads the environment; the command line reads the settings
once and passes each part the smallest piece it needs::

    settings = load_settings(Path("pixiu.toml"), environ=os.environ, overrides={"queue.port": 0})
    settings.journal.flush    # 'always'

What is unknown, of the wrong type or out of bounds refuses to start with a line that names the key, the value
and the bound. ``examples/pixiu.toml`` and the table in ``docs/operations.md`` are made from this file.
"""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import get_type_hints

from pixiu.config.door import DoorSettings
from pixiu.config.engines import EngineSettings
from pixiu.config.gateway import GatewaySettings
from pixiu.config.kafka import KafkaSettings
from pixiu.config.links import LinkSettings
from pixiu.config.messaging import CarrierSettings, HornSettings, InboxSettings, MessagingSettings
from pixiu.config.phones import PhoneSettings
from pixiu.config.pipeline import PipelineSettings
from pixiu.config.process import HttpSettings, LogSettings
from pixiu.config.queue import (
    DelaySettings,
    JournalSettings,
    LifetimeSettings,
    QueueSettings,
    ReplicationSettings,
    TopicSettings,
)
from pixiu.config.rooms import RoomSettings
from pixiu.config.search import SearchSettings
from pixiu.config.section import Bounds, Section, key_types, plain_type
from pixiu.config.security import SecuritySettings
from pixiu.model.errors import ConfigError
from pixiu.model.hints import nearest

__all__ = [
    "Bounds",
    "CarrierSettings",
    "DelaySettings",
    "DoorSettings",
    "EngineSettings",
    "GatewaySettings",
    "HornSettings",
    "HttpSettings",
    "InboxSettings",
    "JournalSettings",
    "KafkaSettings",
    "LifetimeSettings",
    "LinkSettings",
    "LogSettings",
    "MessagingSettings",
    "PhoneSettings",
    "PipelineSettings",
    "QueueSettings",
    "ReplicationSettings",
    "RoomSettings",
    "SearchSettings",
    "Section",
    "SecuritySettings",
    "Settings",
    "TopicSettings",
    "key_types",
    "load_settings",
    "parse_assignment",
    "sections",
]

ENVIRONMENT_PREFIX = "PIXIU_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings, checked. Tests build one directly, ``load_settings`` from the outside world."""

    queue: QueueSettings = field(default_factory=QueueSettings)
    journal: JournalSettings = field(default_factory=JournalSettings)
    topics: TopicSettings = field(default_factory=TopicSettings)
    delays: DelaySettings = field(default_factory=DelaySettings)
    lifetimes: LifetimeSettings = field(default_factory=LifetimeSettings)
    messaging: MessagingSettings = field(default_factory=MessagingSettings)
    inbox: InboxSettings = field(default_factory=InboxSettings)
    carrier: CarrierSettings = field(default_factory=CarrierSettings)
    horn: HornSettings = field(default_factory=HornSettings)
    phones: PhoneSettings = field(default_factory=PhoneSettings)
    replication: ReplicationSettings = field(default_factory=ReplicationSettings)
    log: LogSettings = field(default_factory=LogSettings)
    http: HttpSettings = field(default_factory=HttpSettings)
    gateway: GatewaySettings = field(default_factory=GatewaySettings)
    rooms: RoomSettings = field(default_factory=RoomSettings)
    search: SearchSettings = field(default_factory=SearchSettings)
    links: LinkSettings = field(default_factory=LinkSettings)
    security: SecuritySettings = field(default_factory=SecuritySettings)
    pipeline: PipelineSettings = field(default_factory=PipelineSettings)
    engines: EngineSettings = field(default_factory=EngineSettings)
    kafka: KafkaSettings = field(default_factory=KafkaSettings)
    door: DoorSettings = field(default_factory=DoorSettings)

    def __post_init__(self) -> None:
        """What one section says must fit to another."""
        history_ms, expire_ms = self.messaging.history_ms, self.inbox.expire_ms
        if 0 < history_ms <= expire_ms:
            raise ConfigError(
                f"messaging.history_ms must be more than inbox.expire_ms ({expire_ms}), or 0, not {history_ms}: what "
                "waits in an inbox must still be found in history"
            )


def sections() -> dict[str, type[Section]]:
    """The sections of the file, in order, with their classes."""
    hints = get_type_hints(Settings)
    return {section.name: hints[section.name] for section in fields(Settings)}


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
        section, name = _split(key)
        _require_known(section, name)
        values[section][name] = value
    return Settings(**{section: kind(**values[section]) for section, kind in sections().items()})  # type: ignore[arg-type]


def parse_assignment(text: str) -> tuple[str, object]:
    """The key and value of ``section.key=value``, as the command line has it."""
    key, equals, value = text.partition("=")
    section, name = _split(key.strip())
    if not equals:
        raise ConfigError(f"write SECTION.KEY=VALUE, not {text!r}")
    _require_known(section, name)
    return f"{section}.{name}", _from_text(key.strip(), value.strip(), key_types(sections()[section])[name])


def _split(key: str) -> tuple[str, str]:
    """Section and name of a key; an engine may be named alone: ``store`` is ``engines.store``."""
    section, dot, name = key.partition(".")
    return ("engines", key) if not dot and key in key_types(EngineSettings) else (section, name)


def _take_file(path: Path, values: dict[str, dict[str, object]]) -> None:
    """Add what a TOML file says."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the settings in {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
    for section, keys in content.items():
        if isinstance(keys, str) and section in key_types(EngineSettings):
            values["engines"][section] = keys  # one line for an engine, above all sections
            continue
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
    kind = plain_type(hint)
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
    near = nearest(word, names)
    return f"; did you mean {near}?" if near else f"; known: {', '.join(sorted(names))}"


def _variables() -> list[str]:
    return [
        f"{ENVIRONMENT_PREFIX}{section}__{key}".upper()
        for section, kind in sections().items()
        for key in key_types(kind)
    ]
