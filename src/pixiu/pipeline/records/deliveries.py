"""Ledgers as rows of ``deliveries``, column by column: a busy log has about as many of them as messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from pixiu.machines.ledger import stamps_of
from pixiu.pipeline.records.schema import SCHEMAS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pixiu.model.pixiu_pb2 import Record, Rows

__all__ = ["delivery_rows", "is_sound"]

_KINDS = ("expired", "dead", "handed", "resent", "acked")
"""In the order in which a ledger is applied."""

_SCHEMA = SCHEMAS["deliveries"]


class _Part(NamedTuple):
    """The rows of one kind of one ledger."""

    event_id: int
    at_ms: int
    first_part: int
    kind: int
    rows: Rows
    platforms: Sequence[str]
    gateways: Sequence[str]


def delivery_rows(ledgers: Iterable[tuple[int, Record]]) -> Any:
    """One Arrow batch of records that hold a ledger, each with its event id."""
    parts = [part for event_id, record in ledgers for part in _parts(event_id, record)]
    sizes = np.array([len(part.rows.user) for part in parts], dtype=np.int64)
    first_parts = np.array([part.first_part for part in parts], dtype=np.int64)
    begins, count = np.cumsum(sizes) - sizes, int(sizes.sum())

    def repeated(values: list[int]) -> Any:
        return np.repeat(np.array(values, dtype=np.int64), sizes)

    columns = {
        "event_id": pa.array(repeated([part.event_id for part in parts])),
        "part": pa.array((np.arange(count) - np.repeat(begins - first_parts, sizes)).astype(np.int32)),
        "noted_at": pa.array(repeated([part.at_ms * 1000 for part in parts])).view(_SCHEMA.field("noted_at").type),
        "what": pa.array(_KINDS, pa.string()).take(pa.array(repeated([part.kind for part in parts]))),
        "user_id": _numbers(parts, "user"),
        "platform": _platforms(parts),
        "first_useq": _numbers(parts, "first"),
        "through_useq": _numbers(parts, "through"),
        **_stamps(parts),
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in _SCHEMA.names], schema=_SCHEMA)


def is_sound(rows: Rows, platform_count: int) -> bool:
    """Do the columns of a ledger fit together?"""
    size = len(rows.user)
    fits = len(rows.platform) == len(rows.first) == len(rows.through) == size
    return fits and (not size or int(np.asarray(rows.platform).max()) < platform_count)


def _parts(event_id: int, record: Record) -> Iterator[_Part]:
    ledger = record.ledger
    platforms, gateways, count = list(ledger.platforms), list(ledger.gateways), 0
    for kind, name in enumerate(_KINDS):
        rows: Rows = getattr(ledger, name)
        if rows.user and is_sound(rows, len(platforms)):
            yield _Part(event_id, record.at, count, kind, rows, platforms, gateways)
            count += len(rows.user)


def _joined(arrays: list[Any]) -> Any:
    return np.concatenate([np.zeros(0, dtype=np.int64), *arrays])


def _numbers(parts: list[_Part], name: str) -> Any:
    """One column of all parts; protobuf gives each to numpy as a whole."""
    return pa.array(_joined([np.array(getattr(part.rows, name), dtype=np.int64) for part in parts]))


def _platforms(parts: list[_Part]) -> Any:
    """Names by their places in the list of their ledger."""
    names: dict[str, int] = {}
    codes = []
    for part in parts:
        places = np.array([names.setdefault(name, len(names)) for name in part.platforms], dtype=np.int64)
        codes.append(places[np.array(part.rows.platform, dtype=np.int64)])
    return pa.array(list(names), pa.string()).take(pa.array(_joined(codes)))


def _stamps(parts: list[_Part]) -> dict[str, Any]:
    """What hand-overs say beside their entries; most rows say nothing."""
    found: list[tuple[Any, Any, Any]] = []
    for part in parts:
        size = len(part.rows.user)
        if part.rows.message:
            messages, gateways, waited = stamps_of(part.rows, part.gateways)
            found.append((np.array(messages), pa.array(gateways, pa.string()), pa.array(waited, pa.bool_())))
        else:
            found.append((np.zeros(size, np.int64), pa.nulls(size, pa.string()), pa.nulls(size, pa.bool_())))
    return {
        "message_id": pa.array(_joined([messages for messages, _, _ in found])),
        "gateway": pa.concat_arrays([pa.nulls(0, pa.string()), *(gateways for _, gateways, _ in found)]),
        "waited": pa.concat_arrays([pa.nulls(0, pa.bool_()), *(waited for _, _, waited in found)]),
    }
