"""The file that ``pixiu pipeline plan`` writes, as ``pixiu cluster split --plan`` applies it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from pixiu.model.errors import ConfigError, RequestError
from pixiu.model.names import check_public_id
from pixiu.model.partitions import SLICES, check_count

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Doubling", "SplitPlan", "read_plan"]

VERSION = 1


class Doubling(NamedTuple):
    """A role that should double."""

    role: str
    before: int
    after: int


class SplitPlan(NamedTuple):
    """What a plan asks for."""

    rooms: tuple[str, ...]
    """They should become big."""
    doublings: tuple[Doubling, ...]


def read_plan(path: Path) -> SplitPlan:
    """Read and check a plan. Raises ``ConfigError``."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path} is not JSON: {error}") from error
    if not isinstance(found, dict) or found.get("version") != VERSION:
        raise ConfigError(f"{path} is no plan of version {VERSION}; make one with: pixiu pipeline plan --out FILE")
    try:
        return SplitPlan(
            tuple(_room(row) for row in _rows(found, "virtual_rooms")),
            tuple(_doubling(row) for row in _rows(found, "double")),
        )
    except (ValueError, KeyError, TypeError, RequestError) as error:
        raise ConfigError(f"{path} is no plan: {error}") from None


def _rows(found: dict[str, object], key: str) -> list[dict[str, object]]:
    rows = found.get(key)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"{key} must be a list of objects")
    return rows


def _room(row: dict[str, object]) -> str:
    if row.get("slices") != SLICES:
        raise ValueError(f"a room is divided into {SLICES}, not {row.get('slices')}")
    room = row["room"]
    if not isinstance(room, str):
        raise TypeError(f"{room!r} is no room")
    return check_public_id(room, what="room")


def _doubling(row: dict[str, object]) -> Doubling:
    role, before, after = row["role"], row["from"], row["to"]
    if not isinstance(role, str) or not isinstance(before, int) or not isinstance(after, int):
        raise TypeError("a doubling has a role, and how many partitions it has and should have")
    check_count(after, before=before)
    return Doubling(role, before, after)
