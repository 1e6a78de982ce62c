"""A provider on loopback that speaks HTTP/2 over TLS and answers as Apple's documents say.

It checks the signed token, the header fields and the payload of every request; what phones it knows, and when others
were gone, is set by the test. ``answers`` are given first, whatever was asked.
"""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, RequestReceived, StreamEnded

from pixiu.config import PhoneSettings
from tests.certificates import Authority

KEY_ID, TEAM_ID, TOPIC = "KEY4567890", "TEAM567890", "com.example.chat"
TOKEN_SECONDS = 3600


class Apple:
    """What a test sees of it."""

    def __init__(self, folder: Path) -> None:
        self.private = ec.generate_private_key(ec.SECP256R1())
        self.key_file = folder / "AuthKey.p8"
        form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        self.key_file.write_bytes(self.private.private_bytes(serialization.Encoding.PEM, form, plain))
        self.key_file.chmod(0o600)
        self.authority = Authority(folder, "apple")
        self.certificate, self.certificate_key = folder / "apple-chain.pem", folder / "apple-key.pem"
        self.authority.certify(self.certificate, self.certificate_key)
        self.url = ""
        self.now_seconds = 0
        """For the age of tokens; 0: their own time."""
        self.gone: dict[str, int] = {}
        """Tokens with the time at which they were gone, in milliseconds."""
        self.unknown: set[str] = set()
        self.answers: list[tuple[int, str]] = []
        self.headers: list[dict[str, str]] = []
        self.payloads: list[dict[str, Any]] = []
        self.connections = 0
        self.open_now = self.open_most = 0
        self.delay_seconds = 0.0
        self.bearers: set[str] = set()
        self.transports: list[asyncio.Transport] = []

    def hang_up(self) -> None:
        """Cut every connection."""
        for transport in self.transports:
            transport.abort()

    def settings(self, **more: Any) -> PhoneSettings:
        return PhoneSettings(
            apns_key_file=str(self.key_file), apns_key_id=KEY_ID, apns_team_id=TEAM_ID, apns_topic=TOPIC,
            apns_url=self.url, ca_file=str(self.authority.path), **more,
        )  # fmt: skip

    def answer(self, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, Any]]:
        self.headers.append(headers)
        self.payloads.append(json.loads(body))
        if self.answers:
            status, reason = self.answers.pop(0)
            return status, {"reason": reason} if status != 200 else {}
        refusal = self._credential(headers)
        if refusal:
            return 403, {"reason": refusal}
        if headers.get("apns-topic") != TOPIC:
            return 400, {"reason": "TopicDisallowed"}
        if len(body) > 4096:
            return 413, {"reason": "PayloadTooLarge"}
        if len(headers.get("apns-collapse-id", "")) > 64:
            return 400, {"reason": "BadCollapseId"}
        token = headers[":path"].removeprefix("/3/device/")
        if token in self.unknown:
            return 400, {"reason": "BadDeviceToken"}
        if token in self.gone:
            return 410, {"reason": "Unregistered", "timestamp": self.gone[token]}
        return 200, {}

    def _credential(self, headers: dict[str, str]) -> str:
        scheme, _, text = headers.get("authorization", "").partition(" ")
        if scheme != "bearer":
            return "MissingProviderToken"
        self.bearers.add(text)
        try:
            claims = jwt.decode(
                text, self.private.public_key(), algorithms=["ES256"], options={"verify_iat": False}
            )  # fmt: skip
        except jwt.PyJWTError:
            return "InvalidProviderToken"
        if jwt.get_unverified_header(text).get("kid") != KEY_ID or claims.get("iss") != TEAM_ID:
            return "InvalidProviderToken"
        is_old = self.now_seconds and self.now_seconds - claims["iat"] > TOKEN_SECONDS
        return "ExpiredProviderToken" if is_old else ""


class _Connection(asyncio.Protocol):
    """One connection: streams in, streams out."""

    def __init__(self, apple: Apple) -> None:
        self._apple = apple
        self._h2 = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        self._streams: dict[int, tuple[dict[str, str], bytearray]] = {}
        self._transport: asyncio.Transport | None = None
        self._timers: set[asyncio.TimerHandle] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        chosen = transport.get_extra_info("ssl_object").selected_alpn_protocol()
        assert chosen == "h2", chosen
        self._apple.connections += 1
        self._apple.transports.append(transport)
        self._transport = transport
        self._h2.initiate_connection()
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in self._timers:
            timer.cancel()

    def data_received(self, data: bytes) -> None:
        for event in self._h2.receive_data(data):
            if isinstance(event, RequestReceived):
                self._streams[event.stream_id] = {str(name): str(value) for name, value in event.headers}, bytearray()
                self._apple.open_now += 1
                self._apple.open_most = max(self._apple.open_most, self._apple.open_now)
            elif isinstance(event, DataReceived):
                self._streams[event.stream_id][1].extend(event.data)
                self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, StreamEnded):
                headers, body = self._streams.pop(event.stream_id)
                loop = asyncio.get_running_loop()
                delay = self._apple.delay_seconds
                self._timers.add(loop.call_later(delay, self._reply, event.stream_id, headers, bytes(body)))
        self._flush()

    def _reply(self, stream_id: int, headers: dict[str, str], body: bytes) -> None:
        assert self._transport is not None
        self._apple.open_now -= 1
        if self._transport.is_closing():
            return
        status, content = self._apple.answer(headers, body)
        fields = [(":status", str(status)), ("apns-id", headers.get("apns-id", ""))]
        self._h2.send_headers(stream_id, fields, end_stream=not content)
        if content:
            self._h2.send_data(stream_id, json.dumps(content).encode(), end_stream=True)
        self._flush()

    def _flush(self) -> None:
        assert self._transport is not None
        self._transport.write(self._h2.data_to_send())


@asynccontextmanager
async def apple_server(folder: Path) -> AsyncIterator[Apple]:
    apple = Apple(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(apple.certificate, apple.certificate_key)
    context.set_alpn_protocols(["h2"])
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(apple), "127.0.0.1", 0, ssl=context)
    apple.url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield apple
    finally:
        server.close()
        apple.hang_up()
        await asyncio.sleep(0.01)  # until they are gone
