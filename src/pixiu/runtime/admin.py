"""A small HTTP server for people and machines that look after Pixiu: health, readiness, metrics.

It answers GET and HEAD on a handful of paths and nothing else, from memory, without a task per connection::

    admin = AdminServer({"/healthz": lambda request: Response.json(200, {"status": "ok"})})
    address = await admin.start("127.0.0.1", 8400)
    …
    await admin.close()

Everything a client can make it hold is bounded: the number of connections, the bytes of a request, and the
time that a connection may sit idle, dawdle over a request or leave an answer unread.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self, cast

import h11

__all__ = ["AdminServer", "Handler", "Request", "Response", "standard_routes"]

log = logging.getLogger(__name__)

CONNECTIONS_MAX = 64
REQUEST_BYTES_MAX = 16 * 1024
BODY_BYTES_MAX = 64 * 1024
IDLE_SECONDS = 30.0
REQUEST_SECONDS = 5.0
WRITE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked: the path and its query apart, and the ``Accept`` header."""

    method: str
    path: str
    accept: str
    query: str = ""


@dataclass(frozen=True, slots=True)
class Response:
    """What is answered."""

    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"

    @classmethod
    def json(cls, status: int, content: object) -> Self:
        """A JSON answer."""
        body = json.dumps(content, ensure_ascii=False).encode() + b"\n"
        return cls(status, body, "application/json")

    @classmethod
    def error(cls, status: int, code: str, message: str) -> Self:
        """A JSON error, in the shape of every error of Pixiu."""
        return cls.json(status, {"error": {"code": code, "message": message}})


Handler = Callable[[Request], Response]


def standard_routes(
    *,
    reasons: Callable[[], Mapping[str, str]],
    metrics: Callable[[str], tuple[bytes, str]],
    about: Callable[[], str],
    notes: Callable[[], Mapping[str, str]] | None = None,
) -> dict[str, Handler]:
    """The paths that every node has.

    ``reasons`` names the needed parts that are down, and why; ``metrics`` renders for an ``Accept`` header;
    ``about`` is the text of the page at ``/``; ``notes`` names what is missing and does not keep it from serving.
    """

    def readiness(request: Request) -> Response:
        down = dict(reasons())
        told: dict[str, object] = {"ready": not down, "reasons": down}
        if notes is not None:
            told["notes"] = dict(notes())
        return Response.json(503 if down else 200, told)

    def exposition(request: Request) -> Response:
        body, content_type = metrics(request.accept)
        return Response(200, body, content_type)

    return {
        "/": lambda request: Response(200, about().encode()),
        "/healthz": lambda request: Response.json(200, {"status": "ok"}),
        "/readyz": readiness,
        "/metrics": exposition,
    }


class AdminServer:
    """Serves a table of paths until it is closed."""

    def __init__(
        self,
        routes: Mapping[str, Handler],
        *,
        connections_max: int = CONNECTIONS_MAX,
        idle_seconds: float = IDLE_SECONDS,
        request_seconds: float = REQUEST_SECONDS,
        write_seconds: float = WRITE_SECONDS,
    ) -> None:
        self.routes = routes
        self.idle_seconds = idle_seconds
        self.request_seconds = request_seconds
        self.write_seconds = write_seconds
        self.connections_max = connections_max
        self.connections: set[_Connection] = set()
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen. Return the address, with the port that was picked where ``port`` is 0."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self, loop), host, port)
        address: tuple[str, int] = self._server.sockets[0].getsockname()[:2]
        return address

    async def close(self) -> None:
        """Stop listening and cut every connection: no request here is worth waiting for."""
        if self._server is None:
            return
        self._server.close()
        for connection in list(self.connections):
            connection.abort()
        await self._server.wait_closed()
        self._server = None

    def answer(self, request: Request) -> Response:
        """Find the handler and run it. The door where a handler's failure becomes a 500, logged once."""
        handler = self.routes.get(request.path)
        if handler is None:
            known = ", ".join(sorted(self.routes))
            return Response.error(404, "not_found", f"there is no {request.path} here; there is {known}")
        if request.method not in ("GET", "HEAD"):
            return Response.error(405, "bad_request", f"{request.path} takes GET, not {request.method}")
        try:
            return handler(request)
        except Exception:
            log.exception("request failed", extra={"path": request.path})
            return Response.error(500, "internal", "the request failed; the log says why")


class _Connection(asyncio.Protocol):
    """One client: bytes in, h11 between, answers out, one deadline at a time."""

    def __init__(self, server: AdminServer, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._loop = loop
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=REQUEST_BYTES_MAX)
        self._request: h11.Request | None = None
        self._paused = False
        self._head_began = False
        self._body_bytes = 0
        self._deadline: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are not subclasses of it
        self._server.connections.add(self)
        if len(self._server.connections) > self._server.connections_max:
            self._refuse(Response.error(503, "busy", "too many connections; try again"))
        else:
            self._expect_within(self._server.idle_seconds)

    def data_received(self, data: bytes) -> None:
        if self._transport.is_closing():
            return
        self._http.receive_data(data)
        self._advance()

    def eof_received(self) -> bool:
        if not self._transport.is_closing():
            self._http.receive_data(b"")
            self._advance()
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._server.connections.discard(self)
        if self._deadline is not None:
            self._deadline.cancel()

    def pause_writing(self) -> None:
        """The client does not read: give it a while, and take no more requests from it."""
        self._expect_within(self._server.write_seconds)
        self._paused = True
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._paused = False
        if not self._transport.is_closing():
            self._expect_within(self._server.idle_seconds)
            self._transport.resume_reading()
            self._advance()

    def abort(self) -> None:
        """Cut the connection."""
        self._transport.abort()

    def _advance(self) -> None:
        """Take every complete event that has arrived."""
        try:
            while not self._paused and self._step(self._http.next_event()):
                pass
        except h11.RemoteProtocolError as error:
            self._refuse(Response.error(error.error_status_hint, "bad_request", str(error)))
            return
        began = self._http.their_state is h11.IDLE and bool(self._http.trailing_data[0])
        if began and not self._head_began:  # the rest must follow; a byte now and then buys no time
            self._expect_within(self._server.request_seconds)
        self._head_began = began

    def _step(self, event: h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]) -> bool:
        """Handle one event. Return whether there may be another."""
        if isinstance(event, h11.Request):
            self._request = event
            self._body_bytes = 0
            if not self._head_began:
                self._expect_within(self._server.request_seconds)
            return True
        if isinstance(event, h11.Data):
            self._body_bytes += len(event.data)
            if self._body_bytes > BODY_BYTES_MAX:
                self._refuse(Response.error(413, "too_large", f"a body may have {BODY_BYTES_MAX} bytes"))
                return False
            return True
        if isinstance(event, h11.EndOfMessage):
            self._respond()
            return not self._transport.is_closing()
        if isinstance(event, h11.ConnectionClosed):
            self._transport.close()
        return False

    def _respond(self) -> None:
        """Answer the complete request, then get ready for the next on this connection."""
        request = self._request
        assert request is not None
        self._request = None
        accept = next((value for name, value in request.headers if name == b"accept"), b"")
        path, _, query = request.target.decode("ascii", "replace").partition("?")
        method = request.method.decode("ascii")
        response = self._server.answer(Request(method, path, accept.decode("latin-1"), query))
        self._send(response, bodyless=method == "HEAD")
        if self._http.our_state is h11.MUST_CLOSE:
            self._transport.close()
            return
        self._http.start_next_cycle()
        self._expect_within(self._server.idle_seconds)

    def _send(self, response: Response, *, bodyless: bool = False, close: bool = False) -> None:
        headers = [("content-type", response.content_type), ("content-length", str(len(response.body)))]
        if response.status == 405:
            headers.append(("allow", "GET, HEAD"))
        if close:
            headers.append(("connection", "close"))
        data = self._http.send(h11.Response(status_code=response.status, headers=headers)) or b""
        if not bodyless:
            data += self._http.send(h11.Data(data=response.body)) or b""
        data += self._http.send(h11.EndOfMessage()) or b""
        self._transport.write(data)

    def _refuse(self, response: Response) -> None:
        """Answer what is not worth continuing, where the protocol still allows an answer, and close."""
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._send(response, close=True)
        self._transport.close()
        self._expect_within(self._server.write_seconds)

    def _expect_within(self, seconds: float) -> None:
        """Cut the connection unless something gets on within this time. An unread answer comes first."""
        if self._paused:
            return
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self._loop.call_later(seconds, self._transport.abort)
