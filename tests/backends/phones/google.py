"""A provider on loopback with a token endpoint, that answers as Google's documents say.

``answers`` are given first to whoever sends a message, ``grants`` to whoever asks for an access token.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import h11
import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from pixiu.config import PhoneSettings

PROJECT, EMAIL = "chat-1", "horn@chat-1.example"
FCM_ERROR = "type.googleapis.com/google.firebase.fcm.v1.FcmError"
BAD_REQUEST = "type.googleapis.com/google.rpc.BadRequest"

Reply = tuple[int, dict[str, Any], dict[str, str]]
"""Status, content, header fields."""


def refusal(status: int, word: str, code: str = "", fields: tuple[str, ...] = (), **headers: str) -> Reply:
    """An error as FCM writes it."""
    details: list[dict[str, Any]] = [{"@type": FCM_ERROR, "errorCode": code}] if code else []
    if fields:
        details.append({"@type": BAD_REQUEST, "fieldViolations": [{"field": field} for field in fields]})
    error = {"code": status, "message": "no", "status": word, "details": details}
    return status, {"error": error}, {name.replace("_", "-"): value for name, value in headers.items()}


@lru_cache
def _key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


class Google:
    """What a test sees of it."""

    def __init__(self, folder: Path) -> None:
        self.private = _key()
        self.url = ""
        self.account_file = folder / "account.json"
        self.answers: list[Reply] = []
        self.grants: list[Reply] = []
        self.gone: set[str] = set()
        self.invalid: set[str] = set()
        self.issued: list[str] = []
        self.revoked: set[str] = set()
        self.expires_in = 3600
        self.assertions: list[dict[str, Any]] = []
        self.messages: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.writers: list[asyncio.StreamWriter] = []

    def write_account(self) -> None:
        form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        content = {
            "type": "service_account",
            "project_id": PROJECT,
            "private_key_id": "key-1",
            "private_key": self.private.private_bytes(serialization.Encoding.PEM, form, plain).decode(),
            "client_email": EMAIL,
            "token_uri": f"{self.url}/token",
        }
        self.account_file.write_text(json.dumps(content))
        self.account_file.chmod(0o600)

    def settings(self, **more: Any) -> PhoneSettings:
        return PhoneSettings(fcm_account_file=str(self.account_file), fcm_url=self.url, **more)

    def answer(self, path: str, headers: dict[str, str], body: bytes) -> Reply:
        self.paths.append(path)
        if path == "/token":
            return self._grant(headers, body)
        message = json.loads(body)["message"]
        self.messages.append(message)
        if self.answers:
            return self.answers.pop(0)
        scheme, _, access = headers.get("authorization", "").partition(" ")
        if scheme != "Bearer" or access not in self.issued or access in self.revoked:
            return refusal(401, "UNAUTHENTICATED")
        if path != f"/v1/projects/{PROJECT}/messages:send":
            return refusal(404, "NOT_FOUND")
        if message["token"] in self.gone:
            return refusal(404, "NOT_FOUND", "UNREGISTERED")
        if message["token"] in self.invalid:
            return refusal(400, "INVALID_ARGUMENT", "INVALID_ARGUMENT", ("message.token",))
        return 200, {"name": f"projects/{PROJECT}/messages/{len(self.messages)}"}, {}

    def _grant(self, headers: dict[str, str], body: bytes) -> Reply:
        if self.grants:
            return self.grants.pop(0)
        form = {name: values[0] for name, values in parse_qs(body.decode()).items()}
        assert headers["content-type"] == "application/x-www-form-urlencoded"
        assert form["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
        try:
            claims = jwt.decode(
                form["assertion"], self.private.public_key(), algorithms=["RS256"], audience=f"{self.url}/token"
            )
        except jwt.PyJWTError:
            return 400, {"error": "invalid_grant"}, {}
        if claims["iss"] != EMAIL:
            return 400, {"error": "invalid_grant"}, {}
        self.assertions.append(claims)
        self.issued.append(f"access-{len(self.issued)}")
        return 200, {"access_token": self.issued[-1], "expires_in": self.expires_in, "token_type": "Bearer"}, {}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        try:
            server = h11.Connection(h11.SERVER)
            while await self._exchange(server, reader, writer):
                server.start_next_cycle()
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _exchange(
        self, server: h11.Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        path, headers, body = "", dict[str, str](), b""
        while True:
            event = server.next_event()
            if event is h11.NEED_DATA:
                server.receive_data(await reader.read(65536))
            elif isinstance(event, h11.Request):
                path = event.target.decode()
                headers = {name.decode(): value.decode() for name, value in event.headers}
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                break
            else:
                return False
        status, content, more = self.answer(path, headers, body)
        data = json.dumps(content).encode()
        fields = [("Content-Type", "application/json"), ("Content-Length", str(len(data))), *more.items()]
        for each in (h11.Response(status_code=status, headers=fields), h11.Data(data=data), h11.EndOfMessage()):
            writer.write(server.send(each) or b"")
        await writer.drain()
        return True


@asynccontextmanager
async def google_server(folder: Path) -> AsyncIterator[Google]:
    google = Google(folder)
    server = await asyncio.start_server(google.serve, "127.0.0.1", 0)
    google.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    google.write_account()
    try:
        yield google
    finally:
        server.close()
        for writer in google.writers:
            writer.close()
        await asyncio.sleep(0.01)  # until they are gone
