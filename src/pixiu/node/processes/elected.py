"""What a node belongs to that elects its leader through a registry."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.ports.registry import Registry

__all__ = ["Elected"]


@dataclass(slots=True)
class Elected:
    """Where a replica finds its peers: a session with the registry, and the folder of its shard there."""

    registry: Registry
    folder: str
    keys: tuple[str, ...] = ()
    """The cluster's secrets, beside the data directory's key; they may change."""
    place: str = ""
    """The registry, as a person writes it."""
    close: Callable[[], object] | None = None
    """Ends the session; None where whoever opened it does."""
    secrets: str = ""
    """The text of the cluster's secret file; empty: the secret of this user on this machine."""
    hub_port: int = 0
    """Where gateways connect; 0: any free port."""
    shard: int = 0
    secrets_changed: list[Callable[[str], object]] = field(default_factory=list)
    """Called with the new text when the secrets have changed."""
    keys_changed: list[Callable[[tuple[str, ...]], object]] = field(default_factory=list)
    """Told when the secrets have changed."""
