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
    """Where a queue finds its peers: a session with the registry, and the folder of its partition there."""

    registry: Registry
    folder: str
    keys: tuple[str, ...] = ()
    """The cluster's secrets, beside the data directory's key; they may change."""
    place: str = ""
    """The registry, as a person writes it."""
    close: Callable[[], object] | None = None
    """Ends the session; None where whoever opened it does."""
    keys_changed: list[Callable[[tuple[str, ...]], object]] = field(default_factory=list)
    """Told when the secrets have changed."""
