"""Settings of the door: actions that come as entries of a Redis stream."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pixiu.config.section import Bounds, Section

__all__ = ["DoorSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DoorSettings(Section):
    """Whoever may write to the stream ``g:all`` acts as any user (docs/security.md): so it is off unless named."""

    name_in_file: ClassVar[str] = "door"
    may_be_empty: ClassVar[frozenset[str]] = frozenset({"redis"})

    redis: str = ""
    """Where the stream g:all is: empty is nowhere, ``store`` the Redis of the stores, or ``redis://HOST:PORT``."""

    rights: Literal["users", "admins"] = "users"
    """What entries may do: what users may, or what admins may, too."""

    window: Annotated[int, Bounds(1, 4096)] = 256
    """Entries that this node has read and not answered; the others wait in the stream."""

    claim_ms: Annotated[int, Bounds(100, 3_600_000)] = 10_000
    """Entries that another consumer has read, and not touched for this long, are taken over."""

    answers_max: Annotated[int, Bounds(100, 10_000_000)] = 10_000
    """Answers that are kept, and likewise malformed entries: about so many of the newest."""
