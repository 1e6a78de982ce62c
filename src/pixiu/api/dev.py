"""Tokens for the asking, so that the console can be tried at once. Only ``pixiu serve --dev`` has this path.

Such a server listens on loopback alone, and every program on this machine may have a token for any name. A web page of
another origin may not, unless ``security.cors_origins`` names its origin: browsers send such a request only after a
preflight, its ``Origin`` differs from our ``Host``, and a DNS name of the attacker's that resolves to this machine is
not a loopback name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.routing import Route

from pixiu.api.answers import json_answer
from pixiu.api.bodies import read_object
from pixiu.im import params as read
from pixiu.model.errors import NotAllowed, RequestError
from pixiu.model.hosts import host_name, is_loopback
from pixiu.ports.authentication import Identity

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.responses import Response

__all__ = ["DevRoutes"]

PATH = "/v1/dev/token"
_KNOWN = frozenset({"user", "platform", "device", "admin"})


class DevRoutes:
    """``POST /v1/dev/token``."""

    def __init__(self, issue: Callable[[Identity], str], *, bytes_max: int, origins: frozenset[str]) -> None:
        """``origins``: pages of other origins that may have tokens. ``*`` among them allows none: name each one."""
        self._issue = issue
        self._origins = origins
        self._bytes_max = bytes_max

    def routes(self) -> list[Route]:
        """All of them."""
        return [Route(PATH, self._token, methods=["POST"])]

    async def _token(self, request: Request) -> Response:
        self._check_near(request)
        params = await read_object(request, bytes_max=self._bytes_max)
        read.check_known("dev/token", params, _KNOWN)
        user = read.public_id_text(params.get("user"), "user")
        platform, device = params.get("platform") or "web", params.get("device") or ""
        is_admin = params.get("admin") or False
        if type(platform) is not str or type(device) is not str or type(is_admin) is not bool:
            raise RequestError("platform and device are texts, admin is true or false")
        return json_answer({"user": user, "token": self._issue(Identity(user, platform, device, is_admin))})

    def _check_near(self, request: Request) -> None:
        """Raise unless the request names a loopback address and comes from no page, our own, or a configured one."""
        host = request.headers.get("host", "").lower()
        if not is_loopback(host_name(host)):
            raise NotAllowed("this path gives tokens at a loopback address only, such as http://127.0.0.1")
        origin = request.headers.get("origin")
        if origin is None or origin.lower() in self._origins or origin.lower().partition("://")[2] == host:
            return
        raise NotAllowed(
            f"this path gives no tokens to pages of the origin {origin[:100]!r}; if it is yours, "
            "add it to security.cors_origins and gateway.origins"
        )


def dev_paths() -> dict[str, Any]:
    """What OpenAPI is told of it."""
    text = {"type": "string"}
    body = {
        "type": "object",
        "properties": {"user": text, "platform": text, "device": text, "admin": {"type": "boolean"}},
        "required": ["user"],
        "additionalProperties": False,
    }
    answer = {"type": "object", "properties": {"user": text, "token": text}, "required": ["user", "token"]}
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    operation = {
        "operationId": "dev_token",
        "summary": "A token for any name. Only with --dev, on loopback.",
        "security": [],
        "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
        "responses": {
            "200": {"description": "Done.", "content": {"application/json": {"schema": answer}}},
            "default": {"description": "Refused.", "content": error},
        },
    }
    return {PATH: {"post": operation}}
