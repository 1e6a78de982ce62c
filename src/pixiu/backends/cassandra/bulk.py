"""Cassandra filled in bulk: the rows of timelines that were made elsewhere, as a node would have written them.

They come from embedded stores, which hold the same rows and the bodies that their content is made of. The position is
written last: tables without one count for nothing. A note says from which node's log they come, so that node takes them
for its own when it is told to keep its timelines here, and nobody else does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.backends.cassandra.timelines import CassandraTimelines
from pixiu.backends.embedded import bulk
from pixiu.model.errors import Conflict
from pixiu.model.timeline import GroupRow, PrivateRow
from pixiu.ports.stores import Lane

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pixiu.backends.cassandra.address import Address
    from pixiu.ports.bodies import Bodies
    from pixiu.ports.keyvalue import KeyValue

__all__ = ["check_empty", "fill"]

COMMIT_ROWS = 2_000


def check_empty(address: Address, node: str) -> None:
    """Raise ``Conflict`` unless its tables are empty, or were left by a filling of this node's that did not end."""
    part = CassandraTimelines(address, lambda _: {})
    try:
        if part.link.filled_by(node) == 0:
            return
        table = part.link.first_row()
        if table:
            raise Conflict(
                f"keyspace {address.keyspace} is not empty: {table} has rows. Name another keyspace; a node's own one "
                "is emptied and filled by pixiu rebuild"
            )
    finally:
        part.close()


def fill(
    address: Address, node: str, made: KeyValue, bodies: Bodies, through: int, tell: Callable[[str, int], object]
) -> int:
    """Write every row of the timelines in embedded stores that stand at event ``through``. Returns how many."""
    part = CassandraTimelines(address, bodies.get, is_patient=True)
    try:
        if part.link.filled_by(node) == 0:
            part.clear()
        part.link.note_filled(node, 0)
        total = 0
        for table, rows in (("pchat", _private(part, made)), ("gchat", _group(part, made))):
            count = 0
            for count in rows:
                if count % COMMIT_ROWS == 0:
                    part.commit({})
                    tell(table, count)
            part.commit({})
            tell(table, count)
            total += count
        part.commit({Lane.TIMELINES: through})
        part.flush()
        part.link.note_filled(node, through)
        return total
    finally:
        part.close()


def _private(part: CassandraTimelines, made: KeyValue) -> Iterator[int]:
    for count, row in enumerate(bulk.stored_private_rows(made), 1):
        user, message_id, peer, is_incoming, state, delivered_at, read_at = row
        part.load_private(user, PrivateRow(message_id, peer, is_incoming, state, delivered_at, read_at))
        yield count


def _group(part: CassandraTimelines, made: KeyValue) -> Iterator[int]:
    for count, (group, *row) in enumerate(bulk.stored_group_rows(made), 1):
        part.load_group(group, GroupRow(*row))
        yield count
