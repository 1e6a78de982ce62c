"""What every role process does before and around its own work: settings checked, logs, a loop, signals."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

import uvloop

from pixiu.model.errors import ConfigError
from pixiu.model.partitions import check_count
from pixiu.runtime.logging import configure_logging

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pixiu.node.processes.options import RoleOptions

__all__ = ["run_until_stopped", "run_with_signals"]


def run_until_stopped(options: RoleOptions, run: Callable[[RoleOptions, asyncio.Event], Awaitable[None]]) -> int:
    """Run a role; the event is set by SIGTERM or SIGINT. Returns the exit code."""
    try:
        check_count(options.partitions)
    except ValueError as error:
        raise ConfigError(f"--partitions: {error}") from None
    configure_logging(options.settings.log)
    return uvloop.run(run_with_signals(lambda stop: run(options, stop)))


async def run_with_signals(run: Callable[[asyncio.Event], Awaitable[None]]) -> int:
    """The same on a loop that runs. Returns the exit code."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await run(stop)
    return 0
