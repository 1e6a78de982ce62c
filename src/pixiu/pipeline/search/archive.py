"""Looking through the whole archive, as its operator: no user's rights, so this is for who has the data directory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pixiu.backends.tantivy.reader import IndexReader
from pixiu.machines.search import highlights, parse_query
from pixiu.model.errors import NotFound
from pixiu.pipeline.query import open_duckdb
from pixiu.ports.search import Asked

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["search_archive"]


def search_archive(
    data: Path, q: str, *, limit: int = 20, cursor: int = 0, is_by_relevance: bool = False
) -> dict[str, Any]:
    """What the archive holds, whoever said it to whom; like the answer of the action ``search``.

    Recalled messages are not in it. ``from:`` and ``in:`` take any user, and any group.
    """
    wanted = parse_query(q)
    with open_duckdb(data) as connection:

        def numbers(name: str, table: str, column: str) -> list[int]:
            rows = connection.execute(f"SELECT {column} FROM {table} WHERE public_id = ?", [name]).fetchall()
            return [int(number) for (number,) in rows]

        senders = [number for name in wanted.senders for number in _one(numbers(name, "users", "user_id"), name)]
        groups = [number for name in wanted.places for number in numbers(name, "chat_groups", "group_id")]
        users = [number for name in wanted.places for number in numbers(name, "users", "user_id")]
        if wanted.places and not groups and not users:
            raise NotFound(f"the archive has no user and no group named {wanted.places[0]!r}")
        asked = Asked(
            wanted.phrases, 0, dict.fromkeys(groups, 0), tuple(users), tuple(senders),
            at_least=wanted.first_id, before=wanted.end_id(0 if is_by_relevance else cursor),
            is_by_relevance=is_by_relevance, skip=cursor if is_by_relevance else 0, limit=limit + 1,
        )  # fmt: skip
        hits = IndexReader(data).find_everywhere(asked).hits
        found = connection.execute(
            "SELECT message_id, sender, recipient, group_id, group_name, epoch_ms(accepted_at), kind, text "
            "FROM messages WHERE message_id IN (SELECT unnest(?)) AND text IS NOT NULL",
            [[hit.message_id for hit in hits[:limit]] or [0]],
        ).fetchall()
    by_id = {row[0]: row[1:] for row in found}
    messages = []
    for hit in hits[:limit]:
        if hit.message_id in by_id:
            sender, recipient, group, group_name, at, kind, text = by_id[hit.message_id]
            place = {"group": group_name or str(group)} if hit.group else {"to": recipient or "0"}
            marked = [list(span) for span in highlights(text, wanted.phrases)]
            messages.append(
                {"message_id": str(hit.message_id), "from": sender or "0", **place, "at": at, "kind": kind}
                | {"text": text, "highlights": marked}
            )
    has_more = len(hits) > limit
    last = cursor + limit if is_by_relevance else hits[limit - 1].message_id if has_more else 0
    return {"messages": messages, "has_more": has_more, "cursor": str(last) if has_more else None}


def _one(found: list[int], name: str) -> list[int]:
    if not found:
        raise NotFound(f"the archive has no user {name!r}")
    return found
