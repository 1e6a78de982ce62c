"""What ``pixiu doctor`` looks at where the log is in Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pixiu.cli.finding import Check
from pixiu.config.extras import how_to_install
from pixiu.model.errors import ConfigError, PixiuError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pixiu.cli.finding import State
    from pixiu.config import Settings

__all__ = ["kafka_checks"]


def kafka_checks(settings: Settings) -> Iterator[Check]:
    """Does it answer, and is the log safe there?"""
    try:
        from pixiu.backends.kafka.address import client_options, parse_address

        address, options = parse_address(settings.engines.log), client_options(settings.kafka.client)
        from pixiu.backends.kafka.topics import Topics

        for found in Topics(address, options).look():
            yield Check(found.name, cast("State", found.state), found.text, found.advice)
    except ConfigError as error:
        yield Check("kafka", "fail", str(error), f"mend engines.log, or install its package: {how_to_install('kafka')}")
    except PixiuError as error:
        yield Check("kafka", "fail", str(error), "start it, or name another one in engines.log")
