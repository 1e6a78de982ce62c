"""A client's local store: one SQLite file with its messages, its cursor and its gaps.

    messages       message_id, where it was said, its place in the order of arrival, the message as the server said it
    gaps           what is known to be missing, by conversation
    facts          whose store it is, the cursor, how far the program has read

Whatever arrives is written here with its cursor in one transaction, before it is acked. A crash of the program loses
nothing; a power cut may lose the last moments, cursor and messages alike: then the server tells a gap, and the client
closes it. The store keeps ``messages_max`` messages: beyond it the oldest that the program has read are deleted; the
server's history has them still.
"""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from pixiu.machines.client_session.values import Gap, Message, Page, Place, number
from pixiu.model.errors import Conflict, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

__all__ = ["MESSAGES_MAX", "Store"]

MESSAGES_MAX = 100_000
TRIM_EVERY = 1_000
FORMAT = 1

_SCHEMA = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS messages (
    message_id INTEGER PRIMARY KEY, kind TEXT NOT NULL, name TEXT NOT NULL,
    arrival INTEGER, is_late INTEGER NOT NULL DEFAULT 0, content BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS by_place ON messages (kind, name, message_id);
CREATE UNIQUE INDEX IF NOT EXISTS by_arrival ON messages (arrival) WHERE arrival IS NOT NULL;
CREATE TABLE IF NOT EXISTS gaps (
    kind TEXT NOT NULL, name TEXT NOT NULL, after INTEGER NOT NULL, before INTEGER NOT NULL,
    is_trimmed INTEGER NOT NULL,
    PRIMARY KEY (kind, name, after)
) WITHOUT ROWID;
"""
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode
Raw = dict[str, Any]
_KEPT = ("message_id", "from", "to", "group", "at", "kind")
"""What is left of a message that was taken back."""


class Store:
    """The local store of one user on one device. Reads work without a connection."""

    def __init__(self, path: str | Path, *, messages_max: int = MESSAGES_MAX) -> None:
        self.path = str(path)
        self._messages_max = max(messages_max, 1)
        try:
            self._db = sqlite3.connect(self.path, timeout=0.2, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")
            self._db.executescript(_SCHEMA)
        except sqlite3.Error as error:
            raise Unavailable(f"the store {self.path} cannot be opened: {error}") from error
        found = self._fact("format")
        if found and int(found) > FORMAT:
            raise Conflict(f"the store {self.path} is of a newer format ({found}); this program knows {FORMAT}")
        self._set("format", FORMAT)
        self.user = self._fact("user")
        """Whose store it is; empty while it is new."""
        self.cursor = int(self._fact("cursor") or 0)
        self.taken = int(self._fact("taken") or 0)
        """The program has read everything through this arrival."""
        self.last_id = int(self._fact("last_id") or 0)
        """The newest message that came through the inbox."""
        owed = self._fact("owed")
        self.owed = int(owed) if owed else None
        """The inbox has lost something behind this message, and nobody has asked for it yet."""
        row = self._db.execute("SELECT max(arrival) FROM messages").fetchone()
        self._arrival = max(row[0] or 0, self.taken)
        self._since_trim = 0

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    def claim(self, user: str) -> None:
        """It belongs to this user from now on. Raises ``Conflict`` if it is someone else's."""
        if self.user and self.user != user:
            raise Conflict(f"the store {self.path} is {self.user!r}'s, not {user!r}'s; take another file")
        if not self.user:
            self.user = user
            self._set("user", user)

    # Written by the client.

    def arrived(self, messages: list[tuple[Raw, bool]], cursor: int, *, is_late: bool = False) -> int:
        """Messages, each with whether the program is to be shown it; and the cursor behind them.

        Returns how many are new to the program. Raises ``Unavailable``; then nothing of it is here.
        """
        with self._writing():
            return self._arrived(messages, cursor, is_late=is_late)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Whatever SQLite has against it (a full disk, a store that is closed) is ``Unavailable``."""
        try:
            yield
        except sqlite3.Error as error:
            raise Unavailable(f"the store {self.path} cannot be written: {error}") from error

    def _arrived(self, messages: list[tuple[Raw, bool]], cursor: int, *, is_late: bool) -> int:
        fresh, arrival, last_id = 0, self._arrival, self.last_id
        with self._db:
            self._db.execute("BEGIN")
            for message, is_shown in messages:
                place = None
                if is_shown and not self._has_arrived(number(message.get("message_id"))):
                    fresh += 1
                    arrival += 1
                    place = arrival
                if self._write(message, place, is_late=is_late) and cursor:
                    last_id = max(last_id, number(message.get("message_id")))
            if cursor:
                self._set("cursor", cursor)
                self._set("last_id", last_id)
        self._arrival, self.last_id = arrival, last_id
        self.cursor = cursor or self.cursor
        self._since_trim += len(messages)
        if self._since_trim >= TRIM_EVERY or self._messages_max < TRIM_EVERY:
            self._since_trim = 0
            self._trim()
        return fresh

    def _has_arrived(self, message_id: int) -> bool:
        row = self._db.execute("SELECT arrival FROM messages WHERE message_id = ?", (message_id,)).fetchone()
        return row is not None and row[0] is not None

    def add(self, messages: Iterable[Raw]) -> None:
        """Messages that the program knows already: its own, or pages that it has asked for."""
        with self._writing(), self._db:
            self._db.execute("BEGIN")
            for message in messages:
                self._write(message, None, is_late=False)

    def _write(self, message: Raw, arrival: int | None, *, is_late: bool) -> bool:
        message_id = number(message.get("message_id"))
        if not message_id:
            return False
        if message.get("kind") == "delete" and "ref" in message:
            self.recalled(number(message["ref"]))
        place = Message.read(message).place(self.user)
        self._db.execute(
            "INSERT INTO messages (message_id, kind, name, arrival, is_late, content) VALUES (?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (message_id) DO UPDATE SET content = excluded.content, "
            "arrival = coalesce(messages.arrival, excluded.arrival)",
            (message_id, *place, arrival, is_late, _encode(message)),
        )
        return True

    def recalled(self, message_id: int) -> None:
        """A message was taken back: its content goes."""
        with self._writing():
            content = self._content(message_id)
            if content is not None:
                kept = {name: content[name] for name in _KEPT if name in content}
                self._update(message_id, kept | {"recalled": True})

    def receipt(self, message_ids: Iterable[int], fields: Mapping[str, int]) -> None:
        """Someone got or read these."""
        with self._writing():
            for message_id in message_ids:
                content = self._content(message_id)
                if content is not None:
                    self._update(message_id, {**fields, **content})

    def took(self, arrival: int) -> None:
        """The program has read everything through here."""
        if arrival > self.taken:
            self.taken = arrival
            with self._writing():
                self._set("taken", arrival)

    def owe(self, after: int | None) -> None:
        """Something is missing behind this message, wherever it is; None: no more."""
        self.owed = after
        with self._writing():
            self._set("owed", "" if after is None else after)

    def put_gap(self, gap: Gap) -> None:
        """Something is missing."""
        with self._writing():
            self._db.execute(
                "INSERT INTO gaps VALUES (?, ?, ?, ?, ?) "
                "ON CONFLICT DO UPDATE SET before = max(before, excluded.before)",
                (*gap.place, gap.after, gap.before, gap.is_trimmed),
            )

    def close_gap(self, gap: Gap, messages: Iterable[Raw], rest: Gap | None) -> None:
        """A page of it is here; ``rest`` is what is still missing."""
        with self._writing(), self._db:
            self._db.execute("BEGIN")
            for message in messages:
                self._write(message, None, is_late=False)
            self._db.execute("DELETE FROM gaps WHERE kind = ? AND name = ? AND after = ?", (*gap.place, gap.after))
            if rest is not None:
                self._db.execute(
                    "INSERT INTO gaps VALUES (?, ?, ?, ?, ?)", (*rest.place, rest.after, rest.before, rest.is_trimmed)
                )

    # Read by the program.

    def history(
        self, *, with_: str | None = None, group: str | None = None, before: int = 0, after: int = 0, limit: int = 100
    ) -> Page:
        """A page of what is here, newest first; both bounds are exclusive. ``gaps`` says what is missing between."""
        where = ["message_id > ?"]
        values: list[object] = [after]
        if with_ is not None or group is not None:
            where.append("kind = ? AND name = ?")
            values += ["with", with_] if with_ is not None else ["group", group]
        if before:
            where.append("message_id < ?")
            values.append(before)
        query = f"SELECT content FROM messages WHERE {' AND '.join(where)} ORDER BY message_id DESC LIMIT ?"
        rows = self._db.execute(query, (*values, limit + 1)).fetchall()
        messages = tuple(Message.read(_decode(content)) for (content,) in rows[:limit])
        newest, oldest = (messages[0].message_id, messages[-1].message_id) if messages else (0, 0)
        return Page(messages, len(rows) > limit, oldest, newest)

    def gaps(self, *, with_: str | None = None, group: str | None = None) -> list[Gap]:
        """What is known to be missing: in one conversation, or in all; newest first."""
        rows = self._db.execute("SELECT kind, name, after, before, is_trimmed FROM gaps ORDER BY before DESC")
        found = [
            Gap(Place(kind, name), after, before, bool(is_trimmed)) for kind, name, after, before, is_trimmed in rows
        ]
        if with_ is None and group is None:
            return found
        wanted = Place("with", with_) if with_ is not None else Place("group", group or "")
        return [gap for gap in found if gap.place == wanted]

    def conversations(self) -> dict[Place, int]:
        """Every conversation with its newest message here; the newest conversation first."""
        rows = self._db.execute(
            "SELECT kind, name, max(message_id) AS last FROM messages GROUP BY kind, name ORDER BY last DESC"
        )
        return {Place(kind, name): last for kind, name, last in rows}

    def has(self, message_id: int) -> bool:
        """Is this message here?"""
        return self._db.execute("SELECT 1 FROM messages WHERE message_id = ?", (message_id,)).fetchone() is not None

    def untaken(self, after: int, limit: int) -> list[tuple[int, Raw, bool]]:
        """What the program has not read yet, in the order of arrival."""
        rows = self._db.execute(
            "SELECT arrival, content, is_late FROM messages WHERE arrival > ? ORDER BY arrival LIMIT ?", (after, limit)
        )
        return [(arrival, _decode(content), bool(is_late)) for arrival, content, is_late in rows]

    def waiting(self, after: int) -> int:
        """How many it has not read."""
        row = self._db.execute("SELECT count(*) FROM messages WHERE arrival > ?", (after,)).fetchone()
        return int(row[0])

    # Inside.

    def _trim(self) -> None:
        (count,) = self._db.execute("SELECT count(*) FROM messages").fetchone()
        if count > self._messages_max:
            self._db.execute(
                "DELETE FROM messages WHERE message_id IN (SELECT message_id FROM messages "
                "WHERE arrival IS NULL OR arrival <= ? ORDER BY message_id LIMIT ?)",
                (self.taken, count - self._messages_max),
            )

    def _content(self, message_id: int) -> Raw | None:
        row = self._db.execute("SELECT content FROM messages WHERE message_id = ?", (message_id,)).fetchone()
        return None if row is None else _decode(row[0])

    def _update(self, message_id: int, content: Raw) -> None:
        self._db.execute("UPDATE messages SET content = ? WHERE message_id = ?", (_encode(content), message_id))

    def _fact(self, name: str) -> str:
        row = self._db.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return "" if row is None else str(row[0])

    def _set(self, name: str, value: object) -> None:
        self._db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, str(value)))
