"""Pages of delayed messages, by event id. Each turn of the loop handles a bounded number of rows and bytes.

A request for one topic may have to pass a million delays of another topic, and a delay may hold 65,536 messages. Other
connections are served between the turns.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar

from pixiu.machines.queue_wire.responses import encode_refused
from pixiu.model.errors import PixiuError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.queue.delays import Delayed
    from pixiu.queue.engine import Engine
    from pixiu.queue.server.connection import Connection

__all__ = ["PAGE_BYTES_MAX", "answer_page"]

Row = TypeVar("Row")

WALK_COUNT = 500
"""Delays handled in one turn: a few milliseconds."""

WALK_BYTES = 1 * 2**20
"""Payload bytes after which a turn ends. They are read from the store, and their messages are counted."""

PAGE_BYTES_MAX = 64 * 2**20
"""Payload bytes after which a page of Delays ends, although it has fewer rows than the client asked for."""


def answer_page(
    engine: Engine,
    connection: Connection,
    after: int,
    limit: int,
    is_wanted: Callable[[Delayed], bool],
    make_row: Callable[[Delayed], Row],
    encode: Callable[[list[Row]], bytes],
    *,
    bytes_max: int | None = None,
) -> None:
    """Answer with the wanted delays after event ``after``, at most ``limit``. Later commands wait for the answer.

    With ``bytes_max`` a page ends early after so many payload bytes, with at least one row. Then only an empty page
    means the end.
    """
    rows: list[Row] = []
    page_bytes = 0
    connection.block()

    def walk(after: int) -> int | None:
        """Handle some delays. Returns where to continue; None when the page is complete."""
        nonlocal page_bytes
        walk_bytes = 0
        for walked, delayed in enumerate(engine.state.delays.after(after)):
            if len(rows) >= limit or (bytes_max is not None and page_bytes >= bytes_max):
                return None
            if walked >= WALK_COUNT or walk_bytes >= WALK_BYTES:
                return after
            after = delayed.event_id
            walk_bytes += len(delayed.payload)
            connection.charge(1)
            if is_wanted(delayed):
                page_bytes += len(delayed.payload)
                rows.append(make_row(delayed))
        return None

    def step(after: int) -> None:
        try:
            reached = walk(after)
        except PixiuError as error:
            connection.answered(encode_refused(str(error)))
            return
        if reached is None:
            connection.answered(encode(rows))
        else:
            connection.in_turn(partial(step, reached))

    step(after)
