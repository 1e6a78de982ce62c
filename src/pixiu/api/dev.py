"""Tokens for the asking, so that the console can be tried at once. Only ``pixiu serve --dev`` has this path.

Such a server listens on loopback alone, and whoever can reach it may be anyone. What is kept out is a web page of
another origin: its requests carry a body that browsers do not send across origins unasked, its ``Origin`` is not ours,
and a name of its own that leads to this machine is not ours either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from starlette.routing import Route

from pixiu.api.answers import json_answer
from pixiu.api.bodies import read_object
from pixiu.im import params as read
from pixiu.model.errors import NotAllowed, RequestError
from pixiu.model.hosts import is_loopback
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

    def __init__(self, issue: Callable[[Identity], str], *, bytes_max: int) -> None:
        self._issue = issue
        self._bytes_max = bytes_max

    def routes(self) -> list[Route]:
        """All of them."""
        return [Route(PATH, self._token, methods=["POST"])]

    async def _token(self, request: Request) -> Response:
        _check_near(request)
        params = await read_object(request, bytes_max=self._bytes_max)
        read.check_known("dev/token", params, _KNOWN)
        user = read.public_id_text(params.get("user"), "user")
        platform, device = params.get("platform") or "web", params.get("device") or ""
        is_admin = params.get("admin") or False
        if type(platform) is not str or type(device) is not str or type(is_admin) is not bool:
            raise RequestError("platform and device are texts, admin is true or false")
        return json_answer({"user": user, "token": self._issue(Identity(user, platform, device, is_admin))})


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


def _check_near(request: Request) -> None:
    """Was it asked for by this machine's own address, and by no page of another origin?"""
    host = urlsplit(f"//{request.headers.get('host', '')}")
    if not is_loopback(host.hostname or ""):
        raise NotAllowed("tokens for the asking are given at a loopback address only, as http://127.0.0.1")
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != host.netloc:
        raise NotAllowed("tokens for the asking are not given to pages of other origins")
