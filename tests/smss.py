"""An smss server for tests, made from its documented formats: its files, and the part of its wire that followers use.

The original is not in this repository. ``SmssData`` writes the binlog and the topics' logs as it does; ``SmssLeader``
answers List and Replica from them, with the original's positions: an id that begins no record is answered with EOF.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

__all__ = ["SmssData", "SmssLeader", "message"]

PUB, CREATE, DELETE, DELAY, FIRE = 1, 2, 3, 16, 101


def message(body: bytes, **headers: str) -> bytes:
    packed = b"".join(
        struct.pack("<I", len(part)) + part for pair in headers.items() for part in (pair[0].encode(), pair[1].encode())
    )
    return struct.pack("<II", len(packed) + len(body), len(headers)) + packed + body


class SmssData:
    """The directory of one server, written as its only writer does. Times are in ms and rise by one per record."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.next_event_id = 1
        self.last_event_id = 0
        """Of the newest record: ids behind it may be burnt."""
        self.now_ms = 1_794_705_511_000
        self.file = 0
        self.topics: dict[str, dict[str, int]] = {}
        self.records: list[tuple[int, bytes]] = []
        """First event id and block of every record in the binlog."""
        self.lock = threading.Lock()
        self._delayed: dict[int, tuple[int, str, bytes]] = {}
        (root / "binlog").mkdir(parents=True)
        (root / "topic").mkdir()
        (root / "meta").mkdir()

    def create(self, topic: str, expires_at: int = 0) -> int:
        event_id = self._log(CREATE, topic, struct.pack("<q", expires_at), 1)
        self.topics[topic] = {"at": self.now_ms, "event": event_id, "expires": expires_at}
        self._folder(topic).mkdir(parents=True, exist_ok=True)
        return event_id

    def publish(self, topic: str, *messages: bytes, is_written_to_topic: bool = True) -> int:
        place = self.file, self._size()
        event_id = self._log(PUB, topic, b"".join(messages), len(messages))
        if is_written_to_topic:
            self._to_topic(topic, event_id, messages, place)
        return event_id

    def delay(self, topic: str, payload: bytes, due_ms: int) -> int:
        event_id = self.next_event_id
        head = struct.pack("<qq", due_ms, event_id)
        self._delayed[event_id] = due_ms, topic, payload
        return self._log(DELAY, topic, head + payload, 1)

    def fire(self, delayed: int) -> int:
        due_ms, topic, payload = self._delayed.pop(delayed)
        place = self.file, self._size()
        event_id = self._log(FIRE, topic, struct.pack("<qq", due_ms, delayed) + payload, 1)
        self._to_topic(topic, event_id, (payload,), place)
        return event_id

    def delete(self, topic: str) -> int:
        event_id = self._log(DELETE, topic, b"", 1)
        del self.topics[topic]
        folder = self._folder(topic)
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
        return event_id

    def burn(self, count: int) -> None:
        """A write failed: its ids are gone."""
        self.next_event_id += count

    def restart(self) -> None:
        """Every start begins new files."""
        self.file += 1

    def retain(self) -> None:
        """Remove all binlog files but the newest."""
        for number in range(self.file):
            (self.root / "binlog" / f"{number}.log").unlink()
        blocks = self._journal().read_bytes()
        self.records = [(event, block) for event, block in self.records if block in blocks]

    def listed(self) -> bytes:
        rows = [
            {"name": name, "createTimeStamp": row["at"], "expireAt": row["expires"], "createEventId": row["event"],
             "stateChangeTime": row["at"], "stateChangeEventId": row["event"], "state": 0, "topicRoot": f"/3/3/{name}"}
            for name, row in sorted(self.topics.items())
        ]  # fmt: skip
        return json.dumps(rows, separators=(",", ":")).encode() if rows else b""

    def _log(self, command: int, topic: str, payload: bytes, count: int) -> int:
        self.now_ms += 1
        event_id = self.next_event_id
        size = len(payload) + 1 if payload else 0
        line = f"{self.now_ms}\t{command}\t{event_id}\t{self.now_ms}\t{topic}\t{size}\n".encode()
        block = struct.pack("<I", len(line)) + line + (payload + b"\n" if payload else b"")
        with self.lock:
            with self._journal().open("ab") as file:
                file.write(block)
            self.records.append((event_id, block))
            self.next_event_id += count
            self.last_event_id = self.next_event_id - 1
        return event_id

    def _to_topic(self, topic: str, event_id: int, messages: tuple[bytes, ...], place: tuple[int, int]) -> None:
        with (self._folder(topic) / f"{self.file}.log").open("ab") as file:
            for index, each in enumerate(messages):
                fields = (self.now_ms, event_id + index, self.now_ms, len(each) + 1, index, *place)
                line = "\t".join(map(str, fields)).encode() + b"\n"
                file.write(struct.pack("<I", len(line)) + line + each + b"\n")

    def _journal(self) -> Path:
        return self.root / "binlog" / f"{self.file}.log"

    def _size(self) -> int:
        return self._journal().stat().st_size if self._journal().exists() else 0

    def _folder(self, topic: str) -> Path:
        return self.root / "topic" / "3" / str(len(topic) % 10) / topic


class SmssLeader:
    """Answers List, Replica and Alive over TCP, one thread per connection."""

    def __init__(self, data: SmssData, *, is_follower: bool = False) -> None:
        self.data = data
        self.is_follower = is_follower
        self.asked: list[int] = []
        """The event id of every Replica."""
        self.cut_after: int | None = None
        """Close a stream after so many bytes of it, once."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        self._is_closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"smss://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_closed = True
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """End every connection."""
        for connection in self._open:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        self._open.clear()

    def _accept(self) -> None:
        while not self._is_closed:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection, connection.makefile("rb") as reader:
                while len(head := reader.read(20)) == 20:
                    reader.read(struct.unpack_from("<H", head, 1)[0] + head[19])
                    if head[0] == 100:
                        body = self.data.listed()
                        connection.sendall(struct.pack("<HI4x", 200, len(body)) + body)
                    elif head[0] == 64:
                        self._stream(connection, *struct.unpack("<q", reader.read(8)))
                    else:
                        connection.sendall(_refusal("don't support action"))
        except OSError:
            pass

    def _stream(self, connection: socket.socket, after: int) -> None:
        self.asked.append(after)
        if self.is_follower:
            connection.sendall(_refusal("don't support action"))
            return
        ids = [event for event, _ in self.data.records]
        if after and after not in ids:
            connection.sendall(_refusal("EOF"))
            return
        at, sent = (ids.index(after) + 1 if after else 0), 0
        while not self._is_closed and connection.fileno() >= 0:
            with self.data.lock:
                blocks = [block for _, block in self.data.records[at:]]
            at += len(blocks)
            data = b"".join(struct.pack("<H8xI", 200, len(block)) + block for block in blocks)
            if self.cut_after is not None and sent + len(data) > self.cut_after:
                connection.sendall(data[: self.cut_after - sent])
                self.cut_after = None
                connection.shutdown(socket.SHUT_RDWR)
                return
            sent += len(data)
            if data:
                connection.sendall(data)
            else:
                time.sleep(0.01)


def _refusal(text: str) -> bytes:
    return struct.pack("<HH6x", 400, len(text)) + text.encode()
