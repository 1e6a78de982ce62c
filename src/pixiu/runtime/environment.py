"""The environment of processes that are started."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["environment_with"]


def environment_with(more: Mapping[str, str]) -> dict[str, str]:
    """What this process was started with, and more: settings that must not stand in a list of processes."""
    return {**os.environ, **more}
