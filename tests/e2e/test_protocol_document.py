"""docs/protocol-client.md is played against a real server, line by line: what it shows is what happens.

A block of the document that begins with ``transcript`` has lines of these forms::

    bob connects /ws?token=TOKEN&cursor=2            a WebSocket; TOKEN is replaced by a token of that client
    bob connects /ws?token=TOKEN as pixiu.proto.v1   with a subprotocol
    bob connects tcp                                 the other port
    bob > {"id": 1, "action": "ping"}                what the client sends
    bob < {"id": 1, "result": {"at": 1760000000000}} what comes next from the server
    bob is closed 4401 unauthenticated               by the server; over TCP just "is closed"
    bob closes                                       by the client

How many are in a room is told some time later: such a push is passed over. Binary frames are hexadecimal digits.
Numbers of 13 and more digits are of one run: the first that stands for another one is bound to it, in what the client
sends later as well. Everything else must be equal.
"""

from __future__ import annotations

import json
import re
import socket
import struct
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from google.protobuf.json_format import MessageToDict
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from pixiu.config import SecuritySettings
from pixiu.model.frames_pb2 import ClientFrame, ServerFrame
from pixiu.ports.authentication import Identity
from pixiu.runtime.clock import SystemClock
from pixiu.runtime.keys import Keyring
from pixiu.runtime.tokens import Tokens
from tests.e2e.test_surfaces import Served
from tests.servers import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from websockets.sync.client import ClientConnection

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "protocol-client.md"
WAIT_SECONDS = 10
PHONES = {"phone": "bob", "stolen": "bob"}
"""Clients that are one device of a user, by their names in the document; the others are users in a browser."""
OF_ONE_RUN = re.compile(r"\d{13,19}")


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", DOCUMENT.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


class WebSocketClient:
    def __init__(self, url: str, subprotocol: str) -> None:
        offered = [Subprotocol(subprotocol)] if subprotocol else None
        self._open = ExitStack()
        connecting = connect(url, subprotocols=offered, open_timeout=WAIT_SECONDS)
        self._socket: ClientConnection = self._open.enter_context(connecting)

    def send(self, frame: str | bytes) -> None:
        self._socket.send(frame)

    def receive(self) -> str | bytes:
        return self._socket.recv(timeout=WAIT_SECONDS)

    def closed(self) -> str:
        with pytest.raises(ConnectionClosed) as caught:
            self._socket.recv(timeout=WAIT_SECONDS)
        assert caught.value.rcvd is not None
        return f"{caught.value.rcvd.code} {caught.value.rcvd.reason}"

    def close(self) -> None:
        self._open.close()


class TcpClient:
    """Frames behind their lengths: four bytes, the highest first."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=WAIT_SECONDS)

    def send(self, frame: str | bytes) -> None:
        data = frame.encode() if isinstance(frame, str) else frame
        self._socket.sendall(struct.pack(">I", len(data)) + data)

    def receive(self) -> str | bytes:
        (size,) = struct.unpack(">I", self._read(4))
        return self._read(size).decode()

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            assert more, "the server has hung up"
            data += more
        return data

    def closed(self) -> str:
        assert self._socket.recv(1) == b""
        return ""

    def close(self) -> None:
        self._socket.close()


class Player:
    """Plays the document. What is of one run is bound as it comes."""

    def __init__(self, served: Served, tcp_port: int) -> None:
        self._served = served
        self._tcp_port = tcp_port
        self._clients: dict[str, WebSocketClient | TcpClient] = {}
        self._bound: dict[str, str] = {}
        self._tokens = Tokens(Keyring(served.data, SystemClock()), SystemClock(), SecuritySettings())

    def play(self, line: str) -> str:
        """One line; returns it as it happened."""
        who, what, rest = (*line.split(" ", 2), "")[:3]
        if what == "connects":
            self._connect(who, rest)
        elif what == ">":
            self._clients[who].send(self._frame(self._with_token(who, rest)))
        elif what == "<":
            return f"{who} < {self._hear(who, rest)}"
        elif what == "closes":
            self._clients.pop(who).close()
        elif what == "is":
            client = self._clients.pop(who)
            closed = client.closed()
            client.close()
            assert rest == f"closed {closed}".strip(), f"{line}: it was closed {closed}"
        else:
            raise AssertionError(f"no such line: {line}")
        return line

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    def _connect(self, who: str, rest: str) -> None:
        if rest == "tcp":
            self._clients[who] = TcpClient(self._tcp_port)
            return
        path, _, subprotocol = rest.partition(" as ")
        url = f"ws://127.0.0.1:{self._served.port}{self._with_token(who, path)}"
        self._clients[who] = WebSocketClient(url, subprotocol)

    def _with_token(self, who: str, text: str) -> str:
        user = PHONES.get(who, who)
        platform, device = ("ios", "phone-1") if who in PHONES else ("web", "")
        if "TOKEN" in text:
            text = text.replace("TOKEN", self._tokens.issue(Identity(user, platform, device)))
        return OF_ONE_RUN.sub(lambda found: self._bound.get(found.group(), found.group()), text)

    @staticmethod
    def _frame(text: str) -> str | bytes:
        return text if not re.fullmatch(r"[0-9a-f]{2}( [0-9a-f]{2})*", text) else bytes.fromhex(text)

    def _hear(self, who: str, expected: str) -> str:
        heard = self._clients[who].receive()
        while isinstance(heard, str) and heard.startswith('{"push":"presence","room"'):
            heard = self._clients[who].receive()
        if isinstance(heard, bytes):
            wanted = MessageToDict(ServerFrame.FromString(bytes.fromhex(expected))) if expected != "?" else None
            found: Any = MessageToDict(ServerFrame.FromString(heard))
            shown = heard.hex(" ")
        else:
            wanted = json.loads(expected) if expected != "?" else None
            found, shown = json.loads(heard), heard
        if wanted is not None:
            self._compare(wanted, found, f"{who} < {shown}")
        return shown

    def _compare(self, wanted: Any, found: Any, line: str) -> None:
        if isinstance(wanted, dict):
            assert isinstance(found, dict) and wanted.keys() == found.keys(), line
            for name, each in wanted.items():
                self._compare(each, found[name], line)
        elif isinstance(wanted, list):
            assert isinstance(found, list) and len(wanted) == len(found), line
            for one, other in zip(wanted, found, strict=True):
                self._compare(one, other, line)
        elif OF_ONE_RUN.fullmatch(str(wanted)):
            assert type(wanted) is type(found), line
            assert OF_ONE_RUN.fullmatch(str(found)), line
            if isinstance(wanted, str):
                assert self._bound.setdefault(wanted, str(found)) == str(found), line
        else:
            assert wanted == found, line


@pytest.fixture
def player(tmp_path: Path) -> Iterator[Player]:
    tcp_port = free_port()
    served = Served(tmp_path / "data", f"gateway.tcp_port={tcp_port}")
    served.start()
    playing = Player(served, tcp_port)
    yield playing
    playing.close()
    served.stop()


@pytest.mark.feature("R15", "R16", "R18", "P25")
def test_what_the_document_shows_happens(player: Player) -> None:
    lines = [line for block in blocks("transcript") for line in block.splitlines() if line.strip()]
    assert len(lines) > 60
    for line in lines:
        player.play(line)


def test_frames_in_hexadecimal_are_what_the_document_says() -> None:
    shown = re.findall(r"> ((?:[0-9a-f]{2} ?)+)$", "".join(blocks("transcript")), flags=re.MULTILINE)
    assert [ClientFrame.FromString(bytes.fromhex(each)).WhichOneof("what") for each in shown] == ["request", "ack"]
