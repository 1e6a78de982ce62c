"""Pages of what waits for its time: by event id, a bounded walk in each turn of the loop.

Most of what waits may be somebody else's: whoever asks for the few of one topic walks over a million of another, and
everyone else is served meanwhile.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pixiu.machines.queue_wire.responses import encode_refused
from pixiu.model.errors import PixiuError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.queue.delays import Delayed
    from pixiu.queue.engine import Engine
    from pixiu.queue.server.connection import Connection

__all__ = ["answer_page"]

WALK_COUNT = 500
"""Of those that wait, in one turn: a few milliseconds."""


def answer_page(
    engine: Engine,
    connection: Connection,
    after: int,
    limit: int,
    is_wanted: Callable[[Delayed], bool],
    encode: Callable[[list[Delayed]], bytes],
) -> None:
    """Answer with those behind event ``after`` that are wanted, ``limit`` at most. Later commands wait for that."""
    rows: list[Delayed] = []
    connection.block()

    def step(after: int) -> None:
        try:
            reached = _walk(engine, after, limit, is_wanted, rows)
        except PixiuError as error:
            connection.answered(encode_refused(str(error)))
            return
        if reached is None:
            connection.answered(encode(rows))
        else:
            engine.scheduler.soon(partial(step, reached))

    step(after)


def _walk(
    engine: Engine, after: int, limit: int, is_wanted: Callable[[Delayed], bool], rows: list[Delayed]
) -> int | None:
    """Some more of them. Where to go on; None when the page is done."""
    for walked, delayed in enumerate(engine.state.delays.after(after)):
        if len(rows) >= limit:
            return None
        if walked >= WALK_COUNT:
            return after
        after = delayed.event_id
        if is_wanted(delayed):
            rows.append(delayed)
    return None
