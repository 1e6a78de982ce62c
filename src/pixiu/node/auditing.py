"""An audit beside other work: of a whole node, and of one partition of a cluster.

How the log is read differs, how the books are taken does not.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from pixiu.ports.log import LogRecord
    from pixiu.ports.stores import Stores
    from pixiu.roles.carrier.audit import Audit, AuditReport
    from pixiu.roles.carrier.cut import Cut

__all__ = ["take_books"]


async def take_books(
    audit: Audit,
    cut: Cut,
    stores: Stores,
    *,
    scan: Callable[[int, int], AsyncIterator[list[LogRecord]]],
    reach: Callable[[], Awaitable[int]],
) -> AuditReport:
    """Replay the log up to a cut, and compare: what waits, then what was said. A few at a time: others get their turns.

    ``scan`` gives the records behind one event and through another. ``reach`` waits until the stores have applied all
    that is committed now, and returns the event that this is.
    """
    async for records in scan(0, cut.event_id):
        for _ in audit.taking(records):
            await asyncio.sleep(0)
    for _ in audit.closing(cut):
        await asyncio.sleep(0)
    histories = audit.histories(stores)
    for has_doubts in histories.comparing():
        if has_doubts:
            reached = await reach()
            async for records in scan(histories.through, reached):
                for _ in histories.replaying(records):
                    await asyncio.sleep(0)
            histories.through = reached
        await asyncio.sleep(0)
    return audit.report
