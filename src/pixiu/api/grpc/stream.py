"""One client's LoopV1: a gRPC stream as the socket that a gateway expects.

A gateway writes frames behind their lengths, several at a time; gRPC wants one message per write, and says by waiting
when the client does not read. What waits here is counted, and the gateway told, exactly as with a socket, so that its
bounds hold: nothing is kept here that the gateway did not allow.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage

from pixiu.machines.session import GOMSG, LengthPrefixed
from pixiu.model.errors import RateLimited
from pixiu.model.gomsg.error_pb2 import Code, Detail, Status
from pixiu.ports.clients import CloseCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pixiu.ports.clients import Clients, ConnectedClient

__all__ = ["Ending", "LoopStream", "details_of"]

FRAME_MAX = 2**31
"""Our own frames; the gateway has bounded them."""

_STATUS = {
    CloseCode.GOING_AWAY: grpc.StatusCode.UNAVAILABLE,
    CloseCode.TRY_LATER: grpc.StatusCode.UNAVAILABLE,
    CloseCode.TOO_LARGE: grpc.StatusCode.INVALID_ARGUMENT,
    CloseCode.BAD_REQUEST: grpc.StatusCode.INVALID_ARGUMENT,
    CloseCode.UNAUTHENTICATED: grpc.StatusCode.UNAUTHENTICATED,
    CloseCode.IDLE: grpc.StatusCode.DEADLINE_EXCEEDED,
    CloseCode.TOO_MANY: grpc.StatusCode.RESOURCE_EXHAUSTED,
}
"""Everything else is INTERNAL, as gomsg ends the stream of one who is kicked."""

_CODES = {
    "new_session": Code.NEW_SESSION_ON_SAME_PLATFORM,
    "no_ack": Code.NO_ACK,
    "slow": Code.TOO_MANY_MSGS_TO_BE_SENT,
}


class Ending(Exception):
    """How a stream ends when it does not end well."""

    def __init__(self, status: Any, text: str, code: Code = Code.UNKNOWN) -> None:
        super().__init__(text)
        self.status = status
        self.code = code


class LoopStream:
    """``ClientTransport`` over a stream of gRPC."""

    def __init__(self, context: Any, *, mark_bytes: int) -> None:
        self._context = context
        self._mark_bytes = mark_bytes
        self._split = LengthPrefixed(FRAME_MAX)
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._has_more = asyncio.Event()
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._client: ConnectedClient | None = None
        self._is_full = False
        self._ending: Ending | None = None
        self._is_over = False

    async def run(self, clients: Clients, payloads: AsyncIterator[bytes], *, token: str, cursor: int) -> None:
        """From the first payload to the last; returns when the client has half-closed, raises ``Ending`` otherwise."""
        address = _address_of(self._context.peer())
        refusal = clients.refusal(address)
        if refusal is not None:
            status = grpc.StatusCode.RESOURCE_EXHAUSTED if isinstance(refusal, RateLimited) else None
            raise Ending(status or grpc.StatusCode.UNAVAILABLE, str(refusal))
        await self._context.send_initial_metadata(())
        self._client = clients.open(self, codec=GOMSG, is_websocket=False, token=token, cursor=cursor, address=address)
        reading = asyncio.ensure_future(self._read(payloads, self._client))
        writing = asyncio.ensure_future(self._write_out())
        try:
            await asyncio.wait({reading, writing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._is_over = True
            for task in (reading, writing):
                task.cancel()
            await asyncio.gather(reading, writing, return_exceptions=True)
            self._client.lost()
        if self._ending is not None:
            raise self._ending

    async def _read(self, payloads: AsyncIterator[bytes], client: ConnectedClient) -> None:
        with contextlib.suppress(grpc.RpcError):
            async for payload in payloads:
                client.received(payload, is_text=False)
                if not self._may_read.is_set():
                    await self._may_read.wait()

    async def _write_out(self) -> None:
        """Everything that waits, then the end if there is one."""
        client = self._client
        while True:
            while self._waiting:
                frame = self._waiting.popleft()
                if frame:
                    try:
                        await self._context.write(frame)
                    except (grpc.RpcError, grpc.aio.BaseError):
                        return
                elif client is not None:
                    client.heard()  # it was asked for a sign of life: the channel's own keepalive has given it
                self._waiting_bytes -= len(frame)
                if self._is_full and self._waiting_bytes <= self._mark_bytes // 2 and client is not None:
                    self._is_full = False
                    client.resume_writing()
            if self._ending is not None:
                return
            self._has_more.clear()
            await self._has_more.wait()

    # What the gateway says.

    def write(self, data: bytes) -> None:
        """Send what is behind its length already."""
        if self._is_over:
            return
        for frame in self._split.feed(data):
            self._waiting.append(frame)
            self._waiting_bytes += len(frame)
        self._has_more.set()
        if not self._is_full and self._waiting_bytes > self._mark_bytes and self._client is not None:
            self._is_full = True
            self._client.pause_writing()

    def close(self, code: int, reason: str) -> None:
        """End it, after what was written."""
        if self._ending is None:
            status = _STATUS.get(code, grpc.StatusCode.INTERNAL)
            self._ending = Ending(status, reason, _CODES.get(reason, Code.UNKNOWN))
        self._has_more.set()

    def pause_reading(self) -> None:
        """Take no more from this client."""
        self._may_read.clear()

    def resume_reading(self) -> None:
        """Go on."""
        self._may_read.set()

    def pending(self) -> int:
        """Bytes that were written and that gRPC has not taken yet."""
        return self._waiting_bytes

    def outstanding(self) -> int:
        """The same: what gRPC has taken is not known further."""
        return self._waiting_bytes


def details_of(ending: Ending) -> tuple[tuple[str, bytes], ...]:
    """The code of gomsg as gRPC carries details."""
    detail = AnyMessage()
    detail.Pack(Detail(code=ending.code))
    status = Status(code=ending.status.value[0], message=str(ending), details=[detail])
    return (("grpc-status-details-bin", status.SerializeToString()),)


def _address_of(peer: str) -> str:
    """``ipv4:127.0.0.1:51000`` and ``ipv6:[::1]:51000`` without kind and port."""
    kind, _, rest = peer.partition(":")
    if kind not in ("ipv4", "ipv6"):
        return ""
    return rest.rpartition(":")[0].replace("%5B", "").replace("%5D", "").strip("[]")
