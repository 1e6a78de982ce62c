"""One message's way from the lake, where the log has it no more. DuckDB alone: no Spark, no server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pixiu.pipeline.query import open_duckdb
from pixiu.roles.carrier.explain import Message, Waterfall

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["explain_from_lake"]

_MESSAGE = """
SELECT event_id, unix_millis(accepted_at), unix_millis(written_at), sender_id, recipient_id, group_id, kind, bytes,
       notice, sender, recipient, group_name
FROM messages WHERE message_id = ?
"""

_AUDIENCE = """
SELECT user_id FROM members WHERE group_id = ? AND joined_event <= ? AND (left_event IS NULL OR left_event > ?)
"""

_LEDGER = """
SELECT what, user_id, platform, unix_millis(noted_at), first_useq, through_useq, message_id, gateway, waited
FROM lake_deliveries WHERE event_id > ? AND user_id IN (SELECT unnest(?)) ORDER BY event_id, part
"""

_FLUSH = """
SELECT after_event, through_event, unix_millis(happened_at), us
FROM lake_traces WHERE what = 'flush' AND after_event < ? AND through_event >= ?
"""


def explain_from_lake(data: Path, message_id: int) -> dict[str, Any] | None:
    """As ``pixiu.node.explain`` answers; None if the archive does not have it."""
    with open_duckdb(data) as lake:
        found = lake.execute(_MESSAGE, [message_id]).fetchone()
        if found is None:
            return None
        event_id, accepted, written, sender, recipient, group, kind, size, notice, *names = found
        message = Message(message_id, event_id, accepted, written, sender, recipient, group, kind, size)
        audience, why_none = {sender, recipient} - {0}, ""
        if group:
            audience = {user for (user,) in lake.execute(_AUDIENCE, [group, event_id, event_id]).fetchall()}
            (large,) = lake.execute(
                "SELECT min(large_since_event) FROM chat_groups WHERE group_id = ?", [group]
            ).fetchone() or (None,)
            if large is not None and large <= event_id:
                audience, why_none = set(), "a large group's messages enter no inboxes"
        elif notice == "push":
            pushed = "SELECT user_id FROM lake_changes WHERE what = 'push' AND event_id = ?"
            audience = {user for (user,) in lake.execute(pushed, [event_id]).fetchall()}
        waterfall = Waterfall(message, audience, why_none=why_none)
        for row in lake.execute(_FLUSH, [event_id, event_id]).fetchall():
            waterfall.flushed(*row)
        rows = lake.execute(_LEDGER, [event_id, sorted(audience)]).fetchall()
        for what, user, platform, at, first, through, last, gateway, waited in rows:
            if what != "handed":
                waterfall.noted(what, user, platform, at, first, through)
            elif last:
                waterfall.handed(user, platform, at, first, through, last, gateway or "", is_waited=bool(waited))
        users = dict(lake.execute("SELECT user_id, public_id FROM users").fetchall())
        return waterfall.as_json(
            lambda number: str(users.get(number, number)), lambda number: str(names[2] or number), "lake"
        )
