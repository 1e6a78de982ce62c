"""Which registry a data directory belongs to, once it has joined one.

The file ``joined`` says it. A directory that has it is not led alone again: its log is the cluster's, and another may
lead it by now. It is written before the registry hears of the directory, and taken back if the registry refuses it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from pixiu.model.errors import ConfigError, CorruptData
from pixiu.runtime.files import write_durably

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["JOINED", "Joined", "check_alone", "forget_joined", "joined_of", "note_joined"]

JOINED = "joined"


@dataclass(frozen=True, slots=True)
class Joined:
    """A directory's place."""

    registry: str
    is_founding: bool = False
    """It brings its own log, and does not know yet whether the registry has taken it."""


def joined_of(root: Path) -> Joined | None:
    """The registry of a directory; None for one that is on its own."""
    try:
        found = json.loads((root / JOINED).read_bytes())
        return Joined(str(found["registry"]), bool(found["is_founding"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CorruptData(f"cannot read {root / JOINED}: {error}", path=str(root / JOINED)) from error


def note_joined(root: Path, joined: Joined) -> None:
    """Remember it, on the disk before anything else happens."""
    if joined_of(root) != joined:
        write_durably(root / JOINED, json.dumps(asdict(joined)) + "\n", mode=0o644)


def forget_joined(root: Path) -> None:
    """The registry did not take it."""
    (root / JOINED).unlink(missing_ok=True)


def check_alone(root: Path) -> None:
    """Raise ``ConfigError`` for a directory whose log is a cluster's: two leaders would write two logs."""
    joined = joined_of(root)
    if joined is not None:
        raise ConfigError(
            f"{root} has joined the cluster at {joined.registry}: "
            f"start it with pixiu role shard --registry {joined.registry} --data {root}"
        )
