"""Which engines keep what: one line each. ``embedded`` is Pixiu's own, in the data directory."""

from dataclasses import dataclass
from typing import ClassVar

from pixiu.config.section import Section

__all__ = ["EMBEDDED", "EngineSettings"]

EMBEDDED = "embedded"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings(Section):
    """The engines. In the file these may stand above all sections, without one: ``store = "redis://…"``."""

    name_in_file: ClassVar[str] = "engines"
    may_be_empty: ClassVar[frozenset[str]] = frozenset({"registry"})

    log: str = EMBEDDED
    """Where the log is: ``embedded``, or ``kafka://HOST:PORT[,…][?tls=…&user=…]`` (docs/engines.md)."""
    store: str = EMBEDDED
    """Where inboxes, bodies, unread counts, groups, contacts and users are: ``embedded``, or ``redis://HOST:PORT``."""
    timelines: str = EMBEDDED
    """Where history is: ``embedded``, or ``cassandra://HOST[:PORT][,…][/KEYSPACE][?layout=…]`` (docs/engines.md)."""
    registry: str = ""
    """Where a cluster's registry is, for ``pixiu role``: ``zk://HOST:PORT[,…]/PATH``. A node of its own has none."""
