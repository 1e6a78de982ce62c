"""gomsg's services over gRPC, by their own names: ``msgpb.Msg``, ``pushpb.Push``; beside them ``sessionpb.Session``.

The token is in the metadata, as in HTTP: ``authorization: Bearer TOKEN``. A client that resumes says where it was in
``pixiu-cursor``. Errors have gRPC's own codes; how a client's stream ends says gomsg's code too, as a status detail.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf.empty_pb2 import Empty
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from pixiu.api.admin import REASON_BYTES_MAX, ROWS, ROWS_MAX
from pixiu.api.administration import now
from pixiu.api.grpc.stream import Ending, LoopStream, details_of
from pixiu.machines.session.events import read_cursor
from pixiu.model.errors import PixiuError, RequestError, Unauthenticated
from pixiu.model.gomsg.push_pb2 import PushRequest
from pixiu.model.gomsg.session_pb2 import Connected, KickRequest, KickResponse, ListRequest, ListResponse
from pixiu.model.names import check_text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from pixiu.api.addresses import AddressRates
    from pixiu.api.administration import Administration
    from pixiu.api.bridge import Bridge
    from pixiu.im.draft import Params
    from pixiu.model.gomsg.push_pb2 import PlatformConfig
    from pixiu.ports.clients import Clients

__all__ = ["GrpcServer", "push_params_of"]

log = logging.getLogger(__name__)

STOP_SECONDS = 5.0
KEEPALIVE_MS = 30_000
KEEPALIVE_TIMEOUT_MS = 20_000
SERVICES = ("", "msgpb.Msg", "pushpb.Push", "sessionpb.Session")
"""What the health service tells of; the empty name is the whole."""

_CODES = {
    "unauthenticated": grpc.StatusCode.UNAUTHENTICATED,
    "forbidden": grpc.StatusCode.PERMISSION_DENIED,
    "not_found": grpc.StatusCode.NOT_FOUND,
    "conflict": grpc.StatusCode.ABORTED,
    "too_large": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "rate_limited": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "busy": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "unavailable": grpc.StatusCode.UNAVAILABLE,
}


class GrpcServer:
    """The door, on a port of its own."""

    def __init__(
        self,
        bridge: Bridge,
        administration: Administration,
        clients: Clients,
        rates: AddressRates,
        *,
        output_mark_bytes: int,
        timeout_seconds: float,
        certificate: tuple[Path, Path] | None = None,
        client_ca: Path | None = None,
    ) -> None:
        """``certificate`` is the chain and the key; files that are renewed count from the next connection.

        ``client_ca``: only peers with a certificate of this authority are let in.
        """
        self._bridge = bridge
        self._administration = administration
        self._clients = clients
        self._rates = rates
        self._mark_bytes = output_mark_bytes
        self._timeout_seconds = timeout_seconds
        self._certificate = certificate
        self._client_ca = client_ca
        self._server: Any = None
        self._health: Any = None

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port."""
        options = [
            ("grpc.max_receive_message_length", self._clients.frame_bytes_max),
            ("grpc.so_reuseport", 0),
            ("grpc.keepalive_time_ms", KEEPALIVE_MS),
            ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
        ]
        self._server = grpc.aio.server(options=options)
        self._server.add_generic_rpc_handlers(tuple(self._services()))
        self._health = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        for name in SERVICES:
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            if self._certificate is None:
                bound = self._server.add_insecure_port(where)
            else:
                bound = self._server.add_secure_port(where, _credentials(*self._certificate, self._client_ca))
        except RuntimeError as error:  # how grpc says that a port is taken
            raise PixiuError(f"cannot listen for gRPC on {where}: it is in use, or may not be used") from error
        await self._server.start()
        return int(bound)

    async def stop(self) -> None:
        """Say that it is over; then end what is under way."""
        if self._server is not None:
            await self._health.enter_graceful_shutdown()
            await self._server.stop(STOP_SECONDS)

    def _services(self) -> list[Any]:
        loop = grpc.stream_stream_rpc_method_handler(self._loop)
        push = self._unary(self._push, PushRequest.FromString)
        sessions = {
            "List": self._unary(self._list, ListRequest.FromString),
            "Kick": self._unary(self._kick, KickRequest.FromString),
        }
        return [
            grpc.method_handlers_generic_handler("msgpb.Msg", {"LoopV1": loop}),
            grpc.method_handlers_generic_handler("pushpb.Push", {"Push": push}),
            grpc.method_handlers_generic_handler("sessionpb.Session", sessions),
        ]

    def _unary(self, perform: Callable[[Any, Any], Awaitable[Any]], decode: Callable[[bytes], Any]) -> Any:
        return grpc.unary_unary_rpc_method_handler(
            partial(self._guarded, perform), request_deserializer=decode, response_serializer=_encode
        )

    async def _guarded(self, perform: Callable[[Any, Any], Awaitable[Any]], request: Any, context: Any) -> Any:
        """How often, how long, and what becomes of errors."""
        try:
            self._rates.take(_host_of(context.peer()))
            async with asyncio.timeout(self._timeout_seconds):
                return await perform(request, context)
        except TimeoutError:
            text = f"no answer within {self._timeout_seconds:g} s; what was asked may still be done"
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, text)
        except PixiuError as error:
            await context.abort(_status_of(error), str(error))
        except (asyncio.CancelledError, grpc.aio.AbortError):
            raise
        except Exception:
            log.exception("a call failed")
            await context.abort(grpc.StatusCode.INTERNAL, "the call failed; the log says why")

    async def _loop(self, payloads: AsyncIterator[bytes], context: Any) -> None:
        """``LoopV1``: a client's channel."""
        metadata = _metadata(context)
        stream = LoopStream(context, mark_bytes=self._mark_bytes)
        try:
            cursor = read_cursor(metadata.get("pixiu-cursor", "0"))
            token = _token(metadata)
            await stream.run(self._clients, payloads, token=token, cursor=cursor)
        except Ending as ending:
            await context.abort(ending.status, str(ending), details_of(ending))
        except PixiuError as error:
            await context.abort(_status_of(error), str(error))

    async def _push(self, request: PushRequest, context: Any) -> Empty:
        metadata = _metadata(context)
        actor = await self._bridge.identify_admin(metadata.get("authorization", ""))
        params = push_params_of(request)
        if metadata.get("idempotency-key"):
            params["send_id"] = metadata["idempotency-key"]
        await self._bridge.act(actor, "push", params)
        return Empty()

    async def _list(self, request: ListRequest, context: Any) -> ListResponse:
        await self._bridge.identify_admin(_metadata(context).get("authorization", ""))
        if not 0 <= request.limit <= ROWS_MAX or request.after < 0:
            raise RequestError(f"limit must be 0 to {ROWS_MAX}, and after a session's id")
        found = await now(self._administration.sessions(request.uid or None, request.after, request.limit or ROWS))
        return ListResponse(sessions=[_connected(each) for each in found])

    async def _kick(self, request: KickRequest, context: Any) -> KickResponse:
        await self._bridge.identify_admin(_metadata(context).get("authorization", ""))
        reason = request.reason or "kicked"
        check_text(reason, what="reason", bytes_max=REASON_BYTES_MAX)
        return KickResponse(kicked=await now(self._administration.kick(request.uid, request.sid or None, reason)))


def push_params_of(request: PushRequest) -> Params:
    """A PushRequest of gomsg as the params of the action ``push``."""
    params: Params = {
        "uids": list(request.uids),
        "msg_bodies": [{"@type": each.type_url, "value": each.value} for each in request.msg_bodies],
        "msg_options": int(request.msg_options),
        "exclusive_platform_config": {
            user: _platforms(chosen) for user, chosen in request.exclusive_platform_config.items()
        },
        "exclusive_msg_options": {user: int(option) for user, option in request.exclusive_msg_options.items()},
    }
    if request.HasField("platform_config"):
        params["platform_config"] = _platforms(request.platform_config)
    return params


def _platforms(chosen: PlatformConfig) -> dict[str, object]:
    return {"platforms": list(chosen.platforms), "without_platforms": list(chosen.without_platforms)}


def _connected(row: Any) -> Connected:
    return Connected(
        sid=int(row["session_id"]), uid=row["user"], platform=row["platform"], device=row["device"],
        gateway=row["gateway"],
    )  # fmt: skip


def _metadata(context: Any) -> dict[str, str]:
    return {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}


def _token(metadata: dict[str, str]) -> str:
    kind, _, token = metadata.get("authorization", "").partition(" ")
    if kind.lower() != "bearer" or not token.strip():
        raise Unauthenticated("a token is needed in the metadata: authorization: Bearer TOKEN")
    return token.strip()


def _host_of(peer: str) -> str:
    return peer.partition(":")[2].rpartition(":")[0]


def _encode(message: Any) -> bytes:
    encoded: bytes = message.SerializeToString()
    return encoded


def _status_of(error: PixiuError) -> Any:
    default = grpc.StatusCode.INVALID_ARGUMENT if isinstance(error, RequestError) else grpc.StatusCode.INTERNAL
    return _CODES.get(error.code, default)


def _credentials(certificate: Path, key: Path, client_ca: Path | None) -> Any:
    """Looked at for every handshake, so that a renewed certificate counts at once."""

    def fetch() -> Any:
        try:
            pair = (key.read_bytes(), certificate.read_bytes())
            authority = None if client_ca is None else client_ca.read_bytes()
        except OSError as error:
            log.error("the certificate cannot be read; the one before is used", extra={"reason": error.strerror})
            return None
        return grpc.ssl_server_certificate_configuration([pair], authority)

    first = fetch()
    if first is None:
        raise PixiuError(f"the certificate {certificate} or its key cannot be read")
    return grpc.dynamic_ssl_server_credentials(first, fetch, client_ca is not None)
