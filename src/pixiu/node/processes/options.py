"""What ``pixiu role`` is told."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pixiu.config import Settings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pixiu.config.registry import RegistryAddress

__all__ = ["RoleOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleOptions:
    """The command line of one role process."""

    role: str
    registry: RegistryAddress
    partition: int = 0
    partitions: int = 1
    """Written to the registry when the role has no count there yet."""
    bind: str = "127.0.0.1"
    port: int = 0
    data: Path
    secret_file: Path | None = None
    settings: Settings = field(default_factory=Settings)
    started: Callable[..., object] = lambda _address, **_more: None
    """Told once, when it has started: where it listens, and what else is worth knowing."""
