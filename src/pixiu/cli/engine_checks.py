"""What ``pixiu doctor`` looks at in the engines that the settings name: versions, and settings that lose data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.backends.cassandra.address import SCHEME, Address
from pixiu.backends.cassandra.checks import examine
from pixiu.cli.finding import Check
from pixiu.cli.kafka_checks import kafka_checks
from pixiu.cli.redis_checks import redis_checks
from pixiu.config.engines import EMBEDDED
from pixiu.model.errors import ConfigError, PixiuError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pixiu.config import Settings

__all__ = ["engine_checks"]


def engine_checks(settings: Settings, data: Path) -> Iterator[Check]:
    """Look at every engine that the settings name, or that the data directory was served with."""
    from pixiu.node.logs import noted_settings
    from pixiu.node.remembered import remembered

    engines = settings.engines
    store = engines.store
    if store == EMBEDDED:
        try:
            store = remembered(data).store
        except PixiuError as error:
            yield Check("engines", "fail", str(error), "remove it: the next start writes it again")
    if store != EMBEDDED:
        yield from redis_checks(store)
    if engines.timelines.startswith(SCHEME):
        yield from _cassandra(engines.timelines)
    try:
        named = settings if engines.log != EMBEDDED else noted_settings(data)
    except PixiuError as error:
        yield Check("log.json", "fail", str(error), "bring it back: it says which log the stores were made from")
    else:
        if named.engines.log != EMBEDDED:
            yield from kafka_checks(named)


def _cassandra(place: str) -> Iterator[Check]:
    try:
        address = Address.parse(place)
    except ConfigError as error:
        yield Check("timelines", "fail", str(error), "correct it in the settings")
        return
    for finding in examine(address):
        yield Check(*finding)
