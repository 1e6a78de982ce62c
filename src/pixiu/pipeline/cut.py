"""What waits in the stores at one event id, as rows: the side of the audit that is counted and not computed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pixiu.model.errors import CorruptData, Unavailable
from pixiu.model.inbox import Entry, InboxState
from pixiu.roles.carrier.cut import Cut
from pixiu.runtime.datadir import DataDirectory, find_server

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["CUT", "read_cut", "rows_of_cut", "take_cut_of"]

CUT = pa.schema(
    [
        ("user_id", pa.int64()),
        ("platform", pa.string()),
        ("useq", pa.int64()),
        ("message_id", pa.int64()),
        ("has_body", pa.bool_()),
        ("accepted_ms", pa.int64()),
    ]
)


def take_cut_of(data: Path) -> Cut:
    """The cut of a node that does not run. Raises ``Unavailable`` if one does: its stores are its own."""
    holder = find_server(data)
    if holder is not None:
        raise Unavailable(f"a node runs on {data} (pid {holder.pid}), and what waits in its stores cannot be read")
    from pixiu.node import cut_stopped

    with DataDirectory.open(data):
        return cut_stopped(data)


def read_cut(lines: Iterable[Any]) -> Cut:
    """The cut of a node that runs, from the lines of ``/v1/admin/cut``; one that ends too early is refused."""
    cut: Cut | None = None
    count = 0
    for line in lines:
        if isinstance(line, dict) and "event_id" in line:
            cut = Cut(int(line["event_id"]))
        elif isinstance(line, dict) and cut is not None and line.get("inboxes") == count:
            return cut
        elif isinstance(line, list) and cut is not None:
            user, platform, useqs, ids, times, missing = line
            entries = [
                Entry(useq, message_id, 0, at, 0, 0) for useq, message_id, at in zip(useqs, ids, times, strict=True)
            ]
            # An inbox may come in several lines.
            _, before, gone = cut.inboxes.get((user, platform), (None, [], set()))
            state = InboxState(user, platform, 0, 0, len(before) + len(entries), 0)
            cut.inboxes[user, platform] = (state, before + entries, gone | set(missing))
            count += 1
    raise CorruptData("what waits in the stores was not told to its end")


def rows_of_cut(cut: Cut) -> Any:
    """A cut as an Arrow table."""
    columns: dict[str, list[Any]] = {name: [] for name in CUT.names}
    for (user, platform), (_, entries, missing) in cut.inboxes.items():
        for entry in entries:
            columns["user_id"].append(user)
            columns["platform"].append(platform)
            columns["useq"].append(entry.useq)
            columns["message_id"].append(entry.message_id)
            columns["has_body"].append(entry.message_id not in missing)
            columns["accepted_ms"].append(entry.at)
    return pa.table(columns, schema=CUT)
