"""Traces as rows: flushes, timings, sessions that came and went, what rooms had."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any

from pixiu.machines.traces import HOPS, flushes_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pixiu.model.pixiu_pb2 import Flushes, Record, RoomRows, SessionRows, Timings

__all__ = ["trace_rows"]

Row = dict[str, Any]


def trace_rows(record: Record) -> Iterator[Row]:
    """The rows of one record; columns that do not fit together make none. Times are in microseconds."""
    traces = record.traces
    yield from _flushes(traces.flushes)
    yield from _timings(traces.timings, record.at)
    yield from _sessions(traces.sessions, record.at)
    yield from _rooms(traces.rooms)


def _flushes(rows: Flushes) -> Iterator[Row]:
    for after, through, at, us in flushes_in(rows):
        yield {"what": "flush", "happened_at": at * 1000, "after_event": after, "through_event": through, "us": us}


def _timings(rows: Timings, at: int) -> Iterator[Row]:
    links = list(rows.links)
    if not len(rows.hop) == len(rows.link) == len(rows.us) or max(rows.link, default=0) > len(links):
        return
    for hop, link, us in zip(rows.hop, rows.link, rows.us, strict=True):
        if hop in HOPS and link < len(links):
            yield {"what": HOPS[hop], "happened_at": at * 1000, "link": links[link], "us": us}


def _sessions(rows: SessionRows, at: int) -> Iterator[Row]:
    columns = (rows.session, rows.user, rows.platform, rows.gateway, rows.at, rows.is_open)
    platforms, gateways = list(rows.platforms), list(rows.gateways)
    if len({len(column) for column in columns}) == 1:
        ids, times = accumulate(rows.session), accumulate(rows.at)
        for session, user, platform, gateway, moment, is_open in zip(
            ids, rows.user, rows.platform, rows.gateway, times, rows.is_open, strict=True
        ):
            if platform < len(platforms) and gateway < len(gateways):
                yield {
                    "what": "connected" if is_open else "disconnected",
                    "happened_at": moment * 1000,
                    "link": gateways[gateway],
                    "platform": platforms[platform],
                    "user_id": user,
                    "session_id": session,
                }
    if rows.peak or rows.session:
        yield {"what": "sessions", "happened_at": at * 1000, "sessions": rows.now, "peak": rows.peak}


def _rooms(rows: RoomRows) -> Iterator[Row]:
    names = ("room", "messages", "deliveries", "bytes", "members", "users")
    columns = [getattr(rows, name) for name in names]
    if len({len(column) for column in columns}) == 1:
        for values in zip(*columns, strict=True):
            yield {"what": "room", "happened_at": rows.since * 1000, **dict(zip(names, values, strict=True))}
