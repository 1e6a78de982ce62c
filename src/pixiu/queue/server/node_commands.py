"""Commands between nodes, and for their operators: keys, copies of the whole log, promotion, status.

Follow, Snapshot, Replica and Promote always require a key: the node's own (``node.key``) or one of the cluster's
secrets. A connection shows it with ``Authorize``, or proves it without sending it by ``Challenge`` and ``Prove``.
smss's followers cannot show a key; ``replication.smss_followers`` admits them to Replica. smss's clients need no key.
"""

from __future__ import annotations

import json
import logging
import secrets
from hmac import compare_digest
from struct import Struct
from typing import TYPE_CHECKING

from pixiu.machines.queue_wire import commands as wire
from pixiu.machines.queue_wire.proof import NONCE_BYTES, accept_proof
from pixiu.machines.queue_wire.responses import encode_sized
from pixiu.model.errors import NotAllowed, NotLeader, RequestError
from pixiu.model.version import __version__
from pixiu.queue.replication.feed_stream import FeedStream, whole_records_before
from pixiu.queue.replication.replica_stream import JournalReader, ReplicaStream
from pixiu.queue.server.answers import OK
from pixiu.queue.server.parts import feed_part
from pixiu.queue.storage.snapshot import SnapshotStream
from pixiu.queue.storage.topic_size import size_of_topic

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.queue.engine import Engine
    from pixiu.queue.server.connection import Connection, Request

__all__ = ["NODE_HANDLERS"]

log = logging.getLogger(__name__)

COUNTED_PER_COST = 20
"""Messages of a topic that cost one unit to count for Status."""

KEY_NEEDED = f"{wire.KEY_NEEDED}: show node.key of its data directory, or the cluster's secret (--secret-file FILE)"

_I64 = Struct("<q")
_U16 = Struct("<H")
_FOLLOW = Struct("<qIIB")


def authorize(engine: Engine, connection: Connection, request: Request) -> None:
    """Authorize: show the node's key."""
    fits = [compare_digest(request.part, key.encode()) for key in engine.node_keys]
    if not any(fits):
        engine.key_refusals.note("a connection has shown a wrong key, and was refused", connection.transport)
        raise NotAllowed(wire.WRONG_KEY)
    connection.is_node = True
    connection.answer(OK)


def challenge(_engine: Engine, connection: Connection, _request: Request) -> None:
    """Challenge: something that no proof was made of yet."""
    connection.challenge = secrets.token_bytes(NONCE_BYTES)
    connection.answer(encode_sized(connection.challenge))


def prove(engine: Engine, connection: Connection, request: Request) -> None:
    """Prove: the key is the same at both ends, and neither has said it."""
    asked, connection.challenge = connection.challenge, b""
    answer = accept_proof([key.encode() for key in engine.node_keys], asked, request.part)
    if answer is None:
        engine.key_refusals.note("a connection has shown a wrong key, and was refused", connection.transport)
        raise NotAllowed(wire.WRONG_KEY)
    connection.is_node = True
    connection.answer(encode_sized(answer))


def _check_key(engine: Engine, connection: Connection, what: str) -> None:
    """Refuse a copy of the log, or a change of leader, to a connection that has not shown a key."""
    if not connection.is_node:
        engine.key_refusals.note(f"{what} was refused without a key", connection.transport)
        raise NotAllowed(KEY_NEEDED)


def follow(engine: Engine, connection: Connection, request: Request) -> None:
    """Follow: the journal as Pixiu's followers read it."""
    _check_key(engine, connection, "Follow")
    part = request.part
    (size,) = _U16.unpack_from(part) if len(part) >= 2 else (0,)
    if engine.replication is None or len(part) != 2 + size + _FOLLOW.size:
        raise RequestError(wire.BAD_EXTENSION_PART)
    name = part[2 : 2 + size].decode(errors="replace")
    last_event_id, last_epoch, highest_epoch, flags = _FOLLOW.unpack_from(part, 2 + size)
    if not 0 <= last_event_id < 2**62:
        raise RequestError(wire.BAD_EXTENSION_PART)
    has_stamps = bool(flags & wire.FOLLOW_FLAG_STAMPS)
    engine.replication.follow_asked(connection, name, last_event_id, last_epoch, highest_epoch, has_stamps=has_stamps)


def feed(engine: Engine, connection: Connection, request: Request) -> None:
    """Feed: the committed journal, from behind an event."""
    if not connection.is_node:
        raise NotAllowed(wire.TOPIC_RESERVED)
    if not engine.is_leader:
        raise NotLeader(wire.LEADER_DECIDES)
    reader = JournalReader(engine, whole_records_before(engine, feed_part(request.part)))
    stream = FeedStream(engine, connection, reader)
    connection.begin_stream(stream)
    stream.start()


def promote(engine: Engine, connection: Connection, request: Request) -> None:
    """Promote: this node shall lead."""
    _check_key(engine, connection, "Promote")
    if engine.replication is None or len(request.part) != 1:
        raise RequestError(wire.BAD_EXTENSION_PART)
    engine.replication.promote(connection, force=request.part != b"\0")


def join(engine: Engine, connection: Connection, request: Request) -> None:
    """Join: this node brings the log that it leads to a registry."""
    _check_key(engine, connection, "Join")
    if engine.join_asked is None:
        raise RequestError(wire.DONT_SUPPORT_ACTION)
    registry, rest = _string(request.part)
    secret_file, rest = _string(rest)
    if rest or not registry:
        raise RequestError(wire.BAD_EXTENSION_PART)
    connection.block()
    engine.join_asked(registry, secret_file, connection.answered)


def _string(part: bytes) -> tuple[str, bytes]:
    (size,) = _U16.unpack_from(part) if len(part) >= 2 else (0,)
    if len(part) < 2 + size:
        raise RequestError(wire.BAD_EXTENSION_PART)
    return part[2 : 2 + size].decode(errors="replace"), part[2 + size :]


def status(engine: Engine, connection: Connection, request: Request) -> None:
    """Status: what a person wants to know of this node, or of one topic."""
    if request.name:
        topic = engine.topic_to_read(request.name, connection.is_node)
        size = size_of_topic(engine.files, engine.topics.log_of(topic))
        if size["messages"]:
            connection.charge(size["messages"] // COUNTED_PER_COST)
        connection.answer(encode_sized(json.dumps(size, separators=(",", ":")).encode()))
        return
    if engine.replication is None:
        raise RequestError(wire.DONT_SUPPORT_ACTION)
    counts = {"topics": sum(1 for _ in engine.topics.listed()), "subscribers": engine.counters.subscribers}
    connection.charge(counts["topics"])
    found = {"server": f"pixiu {__version__}", **engine.replication.status(), **counts}
    connection.answer(encode_sized(json.dumps(found, separators=(",", ":"), ensure_ascii=False).encode()))


def snapshot(engine: Engine, connection: Connection, request: Request) -> None:
    """Snapshot: a copy of everything, at one event id."""
    _check_key(engine, connection, "Snapshot")
    stream = SnapshotStream(engine, connection, with_stores=request.name == wire.SNAPSHOT_STORES)
    connection.begin_stream(stream)
    stream.start()


def replica(engine: Engine, connection: Connection, request: Request) -> None:
    """Replica: the journal as smss's followers read it."""
    if not engine.is_leader:
        raise NotLeader(wire.DONT_SUPPORT_ACTION)
    if not engine.all_settings.replication.smss_followers:
        _check_key(engine, connection, "Replica")
    (event_id,) = _I64.unpack(request.part)
    if event_id < 0:
        raise RequestError(wire.BAD_REPLICA_EVENT_ID)
    stream = ReplicaStream(engine, connection, event_id)
    connection.begin_stream(stream)
    stream.start()


NODE_HANDLERS: dict[int, Callable[[Engine, Connection, Request], None]] = {
    wire.AUTHORIZE: authorize,
    wire.CHALLENGE: challenge,
    wire.PROVE: prove,
    wire.FEED: feed,
    wire.FOLLOW: follow,
    wire.PROMOTE: promote,
    wire.JOIN: join,
    wire.STATUS: status,
    wire.SNAPSHOT: snapshot,
    wire.REPLICA: replica,
}
