"""What waits in the stores at one event id, as rows: the side of the audit that is counted and not computed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pixiu.model.errors import Unavailable
from pixiu.runtime.datadir import DataDirectory, find_server

if TYPE_CHECKING:
    from pathlib import Path

    from pixiu.roles.carrier.audit import Cut

__all__ = ["CUT", "rows_of_cut", "take_cut_of"]

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
