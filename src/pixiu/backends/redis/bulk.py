"""Redis filled in bulk: the rows of stores that were made elsewhere, written as a node's commits would have done.

The rows come from embedded stores, which hold the same tables. Each is put as what will be, like everything in the
overlay, and every few megabytes are one commit. Until the last one the layout says that it is being filled, so nobody
takes a part for the whole: a node that finds it so, or the next filling, empties it first.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from pixiu.backends.embedded import bulk
from pixiu.backends.redis.commit import first_key
from pixiu.backends.redis.connection import RedisClient
from pixiu.backends.redis.layout import FILLING, Keys, hex_of
from pixiu.model.errors import Conflict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pixiu.backends.redis.address import RedisAddress
    from pixiu.backends.redis.stores import RedisStores
    from pixiu.model.inbox import Entry
    from pixiu.ports.keyvalue import KeyValue

__all__ = ["check_empty", "fill"]

COMMIT_BYTES = 8 * 2**20
"""About what one commit of a filling writes: a call that Redis is through with in a fraction of a second."""
_ARGUMENTS_MAX = 500

_entry = Struct(">QQqIQ")
_sent = Struct(">QQq")


def check_empty(address: RedisAddress) -> None:
    """Raise ``Conflict`` unless it is empty, or was left by a filling that did not end. Changes nothing."""
    client, keys = RedisClient(address), Keys(address.layout)
    try:
        found = first_key(client, keys)
        if found and int(client.ask([("HGET", keys.meta, "layout")])[0] or 0) != FILLING:
            raise Conflict(
                f"Redis at {address.where} is not empty: it has the key {found}. Name an empty database; a node's own "
                "one is emptied and filled by pixiu rebuild"
            )
    finally:
        client.close()


def fill(stores: RedisStores, made: KeyValue, newest: int, tell: Callable[[str, int], object]) -> int:
    """Write every row that messages make, out of embedded stores; ``newest`` is the highest message id.

    Users, contacts and groups are not among them. ``tell`` is called with a table and how many of its rows are there.
    Returns how many rows were written. The caller has noted that it is being filled, and notes the layout when all the
    rest is there, too.
    """
    overlay, keys = stores.overlay, stores.keys_of
    overlay.put_field(keys.meta, "high:bodies", newest)
    total = 0
    for table, rows in (
        ("bodies", _bodies(stores, made)),
        ("inboxes", _inboxes(stores, made)),
        ("unread", _unread(stores, made)),
        ("send keys", _keys(stores, made)),
    ):
        count = 0
        for count in rows:
            if overlay.pending_bytes >= COMMIT_BYTES:
                stores.commit({})
                tell(table, count)
        stores.commit({})
        tell(table, count)
        total += count
    return total


# Each yields how many rows it has put, one after the other.


def _bodies(stores: RedisStores, made: KeyValue) -> Iterable[int]:
    put, keys = stores.overlay.put, stores.keys_of
    for count, (message_id, references, body) in enumerate(bulk.stored_bodies(made), 1):
        put(keys.body % message_id, body)
        put(keys.references % message_id, references)
        yield count


def _inboxes(stores: RedisStores, made: KeyValue) -> Iterable[int]:
    overlay, keys = stores.overlay, stores.keys_of
    for count, (desk, waiting) in enumerate(bulk.stored_desks(made), 1):
        user = desk.user
        overlay.put_score(keys.all_inboxes, hex_of(user), 0)
        for platform, inbox in desk.inboxes.items():
            counts = inbox.number, inbox.floor, inbox.latest, inbox.waiting, inbox.event_id, inbox.oldest_at
            overlay.put_field(keys.inboxes % user, platform, " ".join(map(str, counts)))
            entries = waiting.get(inbox.number, [])
            _put_entries(stores, keys.waiting % (user, platform), keys.entries % (user, inbox.number), entries)
        yield count


def _put_entries(stores: RedisStores, waiting: str, entries: str, rows: Sequence[Entry]) -> None:
    for at in range(0, len(rows), _ARGUMENTS_MAX // 2):
        ids: list[object] = []
        packed: list[object] = []
        for useq, message_id, event_id, sent_at, options, session in rows[at : at + _ARGUMENTS_MAX // 2]:
            ids += (sent_at // 1000, message_id)
            packed += (useq, _entry.pack(message_id, event_id, sent_at, options, session))
        stores.overlay.step("ZADD", waiting, *ids)
        stores.overlay.step("ZADD", entries, *packed)
        if stores.overlay.pending_bytes >= COMMIT_BYTES:  # an inbox may be longer than a commit
            stores.commit({})


def _unread(stores: RedisStores, made: KeyValue) -> Iterable[int]:
    overlay, keys = stores.overlay, stores.keys_of
    for number, (user, kind, owner, count, event_id) in enumerate(bulk.stored_counters(made), 1):
        overlay.put_score(keys.unread % user, f"{kind}:{owner}", count)
        overlay.put_field(keys.unread_events % user, f"{kind}:{owner}", event_id)
        yield number


def _keys(stores: RedisStores, made: KeyValue) -> Iterable[int]:
    overlay, pattern = stores.overlay, stores.keys_of.send_keys
    for count, (key, message_id, event_id, at) in enumerate(bulk.stored_keys(made), 1):
        user = int.from_bytes(key[:8], "big")
        overlay.step("HSET", pattern % user, key, _sent.pack(message_id, event_id, at))
        yield count
