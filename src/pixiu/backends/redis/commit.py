"""Commits: numbered, owned, and whole.

On one server a commit is one call. A cluster has no call over several slots: there the commit is first written down
whole in one place (the redo), then applied slot by slot, then its number and the lanes' event ids make it count. Who
finds a redo when it opens the stores applies it again: all commands say what is, so that changes nothing but what was
missing.

Whether one server has lost something is seen from the number of its commit. Of a cluster each master may lose the end
of what it had by itself, and then its slots do not fit to the others': after a failover or a restart of any of them
everything is made again from the log.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any

import msgspec
from valkey.exceptions import ValkeyError

from pixiu.backends.redis.connection import slot_of
from pixiu.backends.redis.server import TextCommand
from pixiu.model.errors import Conflict, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pixiu.backends.redis.connection import RedisClient
    from pixiu.backends.redis.layout import Keys
    from pixiu.backends.redis.server import Command

__all__ = ["Commits", "first_key"]

_SCANNED = 1000
_encode = msgspec.msgpack.Encoder().encode
_text = Struct(">BI").pack
_ROUNDS_MAX = 16
"""Of a commit to a cluster, while streams are written in order: people who answer each other within one commit."""


def first_key(client: RedisClient, keys: Keys) -> str:
    """A key that is Pixiu's, or looks like it; empty if there is none. Changes nothing. Raises ``Unavailable``."""
    try:
        for server in client.servers:
            for pattern in keys.all_patterns:
                cursor = b"0"
                while True:
                    cursor, names = server.ask("SCAN", cursor, "MATCH", pattern, "COUNT", _SCANNED)
                    if names:
                        return str(min(names).decode(errors="replace"))
                    if cursor == b"0":
                        break
    except (ValkeyError, OSError) as error:
        raise Unavailable(f"Redis: {error}") from error
    return ""


class Commits:
    """The commits of one owner."""

    def __init__(self, client: RedisClient, keys: Keys, node: str, token: str) -> None:
        self._client = client
        self._keys = keys
        self._node = node
        self._token = token
        self._number = 0
        self._lives: frozenset[bytes] = frozenset()
        self.is_to_clear = False
        """Does nothing count before all of it was removed?"""
        self.lost = ""
        """What Redis was found to have lost; empty if nothing."""

    def open(self) -> None:
        """Become the owner, or be it again. Raises ``Conflict`` if another node is."""
        self._client.gate = ""
        try:
            if self.is_to_clear:
                self.clear()
                self.is_to_clear = False
            self._open()
        except Unavailable:
            self._client.gate = self.lost
            raise
        self.lost = ""

    def _open(self) -> None:
        state, text = self._client.call("open", self._keys.owner, self._node, self._token)
        if state == b"OWNED":
            raise Conflict(
                f"the Redis stores belong to node {text.decode()}, and this is node {self._node}: give each node a "
                f"database of its own, or, if that node is gone for good, delete the key {self._keys.owner}"
            )
        self._number = int(text)
        self._lives = self._client.lives
        redo = self._client.ask([("GET", self._keys.redo)])[0]
        if redo is not None:
            self._apply_in_slots(msgspec.msgpack.decode(redo))

    def check(self) -> None:
        """After a new connection: is Redis where it was?"""
        token, number = self._client.ask([("HMGET", self._keys.owner, "token", "commit")])[0]
        if token is not None and token != self._token.encode():
            raise Unavailable(self._taken())
        if token is None or int(number or 0) not in (self._number, self._number + 1):
            self.has_lost(f"Redis is at commit {int(number or 0)}, and {self._number} were made: it has lost some")

        elif self._client.is_cluster and not self._client.lives <= self._lives:
            self.has_lost("a master of the cluster was replaced or restarted: it may have lost some")
            self.is_to_clear = True

    def has_lost(self, what: str) -> None:
        """Nothing is answered from here on, until ``open``."""
        self.lost = self._client.gate = what

    def commit(self, commands: Iterable[Command]) -> None:
        """Apply all of it, once."""
        if self._client.is_cluster:
            self._commit_in_slots(list(commands))
            return
        self._numbered("commit", [_packed(commands)])
        self._number += 1

    def begin(self, commands: Iterable[Command]) -> None:
        """Have all of it applied, and do not wait. Not in a cluster: there a commit is several calls."""
        before = self._number
        self._client.begin("commit", self._keys.owner, self._token, before, before + 1, _packed(commands))

    def end(self) -> None:
        """What was begun has been applied, or this raises."""
        self._accept(self._client.end())
        self._number += 1

    def clear(self) -> None:
        """Remove every key of the layout, and all that was noted."""
        self._client.settle()
        for server in self._client.servers:
            for pattern in self._keys.all_patterns:
                cursor = b"0"
                while True:
                    cursor, names = server.ask("SCAN", cursor, "MATCH", pattern, "COUNT", _SCANNED)
                    if names:
                        server.send([("UNLINK", name) for name in names])
                        server.receive(len(names))
                    if cursor == b"0":
                        break

    def _numbered(self, function: str, arguments: list[Any]) -> None:
        """Call what only the owner may call, and only where nothing was lost."""
        before = self._number
        self._accept(self._client.call(function, self._keys.owner, self._token, before, before + 1, *arguments))

    def _accept(self, answer: bytes) -> None:
        if answer == b"TAKEN":
            raise Unavailable(self._taken())
        if answer == b"LOST":
            self.has_lost(f"Redis is not at commit {self._number}: it has lost what came before")
            raise Unavailable(self.lost)

    def _commit_in_slots(self, commands: list[Command]) -> None:
        own_slot = slot_of(self._keys.owner)
        last: list[Command] = [("DEL", self._keys.redo)]
        others: list[Command] = []
        for command in commands:
            if command[0] == "POINTS":  # each in its own slot
                body, floor, bound, message_id, *streams = command[1:]
                others += [("POINT", stream, floor, bound, message_id, body) for stream in streams]
            elif command[0] == "TELL":
                body, stream, floor, bound, message_id, *fields = command[1:]
                others.append(("SAY", body, floor, bound, message_id, *fields))
                others.append(("POINT", stream, floor, bound, message_id, body))
            elif slot_of(command[1]) == own_slot and command[0] != "SAY":
                last.append(command)
            else:
                others.append(command)
        if others:
            self._numbered("redo", [self._keys.redo, msgspec.msgpack.encode(others)])
            self._apply_in_slots(others)
        self._numbered("commit", [_packed(last)])
        self._number += 1

    def _apply_in_slots(self, commands: Iterable[Command]) -> None:
        """All but pointers at once; pointers when it is known where the bodies are that they point to.

        Each stream gets its entries in order, as far as ``_ROUNDS_MAX`` round trips will do.
        """
        left = list(commands)
        unsaid = {(command[1], str(command[4])) for command in left if command[0] == "SAY"}
        entries: dict[tuple[str, str], str] = {}
        rounds = 0
        while left:
            now: list[Command] = []
            later: list[Command] = []
            behind: set[str | bytes] = set()
            """Streams whose next entry has to wait."""
            for command in left:
                name, stream = command[0], command[1]
                if name == "POINT" and (command[5], str(command[4])) in unsaid:
                    behind.add(stream)
                    later.append(command)
                elif stream in behind and rounds < _ROUNDS_MAX:
                    later.append(command)
                elif name == "POINT":
                    now.append((*command, entries.get((command[5], str(command[4])), "")))
                else:
                    now.append(command)
            for answer in self._call_slots(now):
                for at in range(0, len(answer), 3):
                    stream, message, entry = (part.decode() for part in answer[at : at + 3])
                    entries[stream, message] = entry
                    unsaid.discard((stream, message))
            left = later
            rounds += 1

    def _call_slots(self, commands: Iterable[Command]) -> list[list[bytes]]:
        """One call per slot, all at once."""
        slots: dict[int, list[Command]] = {}
        for command in commands:
            slots.setdefault(slot_of(command[1]), []).append(command)
        if not slots:
            return []
        return self._client.call_all("apply", [(part[0][1], [_packed(part)]) for part in slots.values()])

    def _taken(self) -> str:
        return f"another process has taken over the Redis stores of node {self._node}: this one must stop"


def _packed(commands: Iterable[Command]) -> bytes:
    """Commands as one argument, as Lua's reader takes them: it knows text alone, and its numbers are exact to 2^53."""
    return _encode([
        command if command.__class__ is TextCommand else [
            part if (kind := part.__class__) is str else str(part) if kind is not bytes else _raw(part)
            for part in command
        ]
        for command in commands
    ])  # fmt: skip


def _raw(part: bytes) -> msgspec.Raw:
    return msgspec.Raw(_text(0xDB, len(part)) + part)
