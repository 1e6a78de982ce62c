"""Make the stores anew from the log: for a lost store, a new one, or to see whether it is what it should be."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from pixiu.ports.log import MAIN
from pixiu.roles.carrier.appliers import LANES, Appliers, parse

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.ports.log import Log
    from pixiu.ports.stores import Stores

__all__ = ["rebuild"]

log = logging.getLogger(__name__)

_BATCH = 2000
_COMMIT_BYTES = 16 * 2**20


def rebuild(queue: Log, stores: Stores, progress: Callable[[int, int], object] | None = None) -> int:
    """Apply the whole log, as it is committed now, to stores that begin empty or where they were interrupted.

    Nobody is woken and nothing is written to the log. ``progress`` is told (event_id, last) after every batch. Returns
    how many records made no sense. Tasks are not touched: they are the running carrier's.
    """
    appliers = Appliers(stores)
    last = queue.committed
    after = min(stores.applied(lane) for lane in LANES)
    skipped = 0
    while after < last:
        records = queue.read(after, _BATCH)
        for record in records:
            if record.topic == MAIN and record.event_id <= last:
                try:
                    appliers.apply(record, parse(record))
                except (DecodeError, ValueError) as error:
                    skipped += 1
                    for lane in LANES:
                        appliers.skip(lane, record.event_id)
                    log.warning("record skipped", extra={"event_id": record.event_id, "reason": str(error)})
        after = min(records[-1].event_id, last) if records else last
        appliers.forget_news()
        if stores.pending_bytes >= _COMMIT_BYTES:
            stores.commit({lane: max(after, stores.applied(lane)) for lane in LANES})
        if progress is not None:
            progress(after, last)
    stores.commit({lane: max(after, stores.applied(lane)) for lane in LANES})
    return skipped
