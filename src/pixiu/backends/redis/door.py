"""The stream of actions, as one consumer of its group reads it: blocking, for a thread of its own.

An entry stays pending until its answer is written; acknowledging, answering and removing are one function, so that the
length of the stream is what is left to do, and an entry is answered once even if two consumers had it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from valkey.exceptions import ValkeyError

from pixiu.backends.redis.action_functions import load_functions
from pixiu.backends.redis.connection import RedisClient
from pixiu.backends.redis.layout import Keys
from pixiu.model.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pixiu.backends.redis.address import RedisAddress

__all__ = ["GROUP", "DoorStream", "Entry", "Reply"]

GROUP = "g:group"
_NO_GROUP = "NOGROUP"


class Entry(NamedTuple):
    """An action as somebody added it."""

    entry_id: str
    fields: tuple[tuple[bytes, bytes], ...]
    deliveries: int = 1
    """How often it was given to a consumer."""


class Reply(NamedTuple):
    """What became of an entry."""

    entry_id: str
    fields: tuple[tuple[str, str], ...]
    is_malformed: bool = False


class DoorStream:
    """The consumer ``name``. Every call may raise ``Unavailable``; the next ones go on when Redis is back."""

    def __init__(self, address: RedisAddress, name: str, *, answers_max: int, actions: Sequence[str] = ()) -> None:
        """``actions`` are those that the servers get as functions."""
        self._actions = actions
        self._client = RedisClient(address)
        self._keys = Keys(address.layout)
        self._name = name
        self._answers_max = answers_max
        self._is_grouped = False
        self._own_after = "0"
        """Behind this are entries that are ours and were not looked at; empty if there are none."""
        self._claimed_after: str | bytes = "0-0"
        """Behind this the next look for what others have left begins: of many that are under way it sees some."""
        self.block_ms = max(min(500, address.timeout_ms // 2), 1)
        """How long Redis may hold an answer back: less than what the connection waits for."""
        self.pause_seconds = address.probe_ms / 1000
        self._client.when_connected = self._connected

    @property
    def name(self) -> str:
        """What the group calls this consumer."""
        return self._name

    def read(self, count: int, *, is_waiting: bool) -> list[Entry]:
        """Up to so many entries: first those that a life before had, then new ones. Waits a while if told to."""
        self._open()
        if self._own_after:
            rows = self._read_group(self._own_after, count, 0)
            self._own_after = rows[-1][0].decode() if rows else ""
            if rows:
                return self._counted(self._entries(rows))
        return self._entries(self._read_group(">", count, self.block_ms if is_waiting else 0))

    def claim(self, count: int, idle_ms: int) -> list[Entry]:
        """Take over what other consumers have read, and not touched for so long."""
        self._open()
        key, after = self._keys.actions, self._claimed_after
        answer = self._ask(("XAUTOCLAIM", key, GROUP, self._name, idle_ms, after, "COUNT", count))
        self._claimed_after = answer[0]
        return self._counted(self._entries(answer[1]))

    def keep(self, entry_ids: Sequence[str]) -> None:
        """They are under way here: nobody has to take them over."""
        if entry_ids:
            self._ask(("XCLAIM", self._keys.actions, GROUP, self._name, 0, *entry_ids, "JUSTID"))

    def finish(self, replies: Sequence[Reply]) -> None:
        """Write answers, and let the stream forget what they are answers to."""
        arguments: list[Any] = [GROUP, self._keys.answers, self._keys.malformed, self._answers_max]
        for reply in replies:
            flat = [part for field in reply.fields for part in field]
            arguments += (reply.entry_id, int(reply.is_malformed), len(flat) + 2, "entry", reply.entry_id, *flat)
        self._guarded(lambda: self._client.call("finish", self._keys.actions, *arguments))

    def close(self) -> None:
        """Let go. What was read and not finished stays pending."""
        self._client.close()

    def _connected(self) -> None:
        """A Redis that was away may have lost that something was finished: what is ours there is looked at again."""
        self._is_grouped, self._own_after = False, "0"

    def _open(self) -> None:
        if self._is_grouped:
            return
        try:
            self._client.ask([("XGROUP", "CREATE", self._keys.actions, GROUP, "0", "MKSTREAM")])
        except Unavailable as error:
            if "BUSYGROUP" not in str(error):
                raise
        try:
            load_functions(self._client.servers, self._actions)
        except (ValkeyError, OSError) as error:
            raise Unavailable(f"cannot load functions: {error}") from error
        self._is_grouped = True

    def _ask(self, command: tuple[Any, ...]) -> Any:
        return self._guarded(lambda: self._client.ask([command])[0])

    def _guarded(self, ask: Any) -> Any:
        """Redis was emptied: the group is made again with the next call."""
        try:
            return ask()
        except Unavailable as error:
            if _NO_GROUP in str(error):
                self._connected()
            raise

    def _read_group(self, after: str, count: int, block_ms: int) -> list[Any]:
        wait = ("BLOCK", block_ms) if block_ms else ()
        streams = ("STREAMS", self._keys.actions, after)
        answer = self._ask(("XREADGROUP", "GROUP", GROUP, self._name, "COUNT", count, *wait, *streams))
        return list(answer[0][1]) if answer else []

    def _entries(self, rows: list[Any]) -> list[Entry]:
        """What somebody has deleted from the stream is nobody's any more."""
        found: list[Entry] = []
        gone: list[bytes] = []
        for row in rows:
            if not row:  # before Redis 7 a claimed entry that was deleted
                continue
            entry_id, fields = row
            if fields is None:
                gone.append(entry_id)
            else:
                pairs = zip(fields[::2], fields[1::2], strict=True)
                found.append(Entry(entry_id.decode(), tuple(pairs)))
        if gone:
            self._ask(("XACK", self._keys.actions, GROUP, *gone))
        return found

    def _counted(self, entries: list[Entry]) -> list[Entry]:
        """With how often each was given out: not its first time here."""
        if not entries:
            return entries
        first, last = entries[0].entry_id, entries[-1].entry_id
        most = 10 * len(entries)
        rows = self._ask(("XPENDING", self._keys.actions, GROUP, first, last, most, self._name))
        counts = {row[0].decode(): int(row[3]) for row in rows}
        return [entry._replace(deliveries=counts.get(entry.entry_id, 1)) for entry in entries]
