"""What a data directory notes about a log that is not its own (``log.json``): where it is, and which one.

Readable by the owner alone: the options of the client may hold a password. Whoever only reads needs nothing else of a
node, so this imports nothing of one.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pixiu.model.errors import CorruptData

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["NOTE", "has_log", "noted_log", "read_note"]

NOTE = "log.json"


def read_note(root: Path) -> dict[str, str] | None:
    """log, client, cluster_id and topic_id; None where the log is the node's own."""
    try:
        text = (root / NOTE).read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        found = json.loads(text)
        return {key: str(found[key]) for key in ("log", "client", "cluster_id", "topic_id")}
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptData(f"{root / NOTE} cannot be read: {error}") from error


def has_log(root: Path) -> bool:
    """Is the log of a node here, or is it noted where that is?"""
    return (root / "queue").is_dir() or (root / NOTE).exists()


def noted_log(root: Path) -> str:
    """The Kafka that has the log of a data directory; empty if that is the node's own."""
    noted = read_note(root)
    return "" if noted is None else noted["log"]
