"""What ``pixiu doctor`` looks at in the engines that the settings name: versions, and settings that lose data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.backends.cassandra.address import SCHEME, Address
from pixiu.backends.cassandra.checks import examine
from pixiu.cli.finding import Check
from pixiu.model.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pixiu.config import EngineSettings

__all__ = ["engine_checks"]


def engine_checks(settings: EngineSettings) -> Iterator[Check]:
    """Nothing for what is embedded."""
    if settings.timelines.startswith(SCHEME):
        try:
            address = Address.parse(settings.timelines)
        except ConfigError as error:
            yield Check("timelines", "fail", str(error), "correct it in the settings")
            return
        for finding in examine(address):
            yield Check(*finding)
