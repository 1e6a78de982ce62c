"""Reading a request's JSON without trusting it: its size before its bytes, its depth before its use, its pace."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from pixiu.api.answers import TooSlow
from pixiu.model.errors import RequestError, TooLarge

if TYPE_CHECKING:
    from starlette.requests import Request

    from pixiu.im.draft import Params

__all__ = ["DEPTH_MAX", "read_object"]

DEPTH_MAX = 32
"""Lists and objects within each other; no action has more than four."""

READ_SECONDS = 10.0
"""How long a client may take over its body."""


async def read_object(request: Request, *, bytes_max: int, seconds: float = READ_SECONDS) -> Params:
    """The body as a JSON object; without a body an empty one. Marks the request as read when it is."""
    _check_head(request, bytes_max)
    data = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for chunk in request.stream():
                data += chunk
                if len(data) > bytes_max:
                    raise TooLarge(f"a body may have {bytes_max} bytes; this one has more")
    except TimeoutError:
        raise TooSlow(f"the body did not come within {seconds:g} s") from None
    request.scope["pixiu.is_read"] = True
    return _decoded(bytes(data)) if data.strip() else {}


FORM = "application/x-www-form-urlencoded"
"""What ``curl -d`` calls every body: taken for JSON beside a token in the head, which no page elsewhere can set."""


def _check_head(request: Request, bytes_max: int) -> None:
    headers = request.headers
    size = headers.get("content-length", "0")
    if not size.isascii() or not size.isdigit():
        raise RequestError("content-length must be a whole number")
    if len(size) > 18 or int(size) > bytes_max:
        raise TooLarge(f"a body may have {bytes_max} bytes, not {size[:20]}")
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise RequestError("a body must not be compressed")
    kind = headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    is_from_curl = kind == FORM and "authorization" in headers
    if kind != "application/json" and not is_from_curl:
        raise RequestError(f"content-type must be application/json, not {kind[:60]!r}")


def _decoded(data: bytes) -> Params:
    try:
        value = msgspec.json.decode(data)
    except RecursionError:
        raise RequestError(f"the body has more than {DEPTH_MAX} lists and objects within each other") from None
    except ValueError as error:
        raise RequestError(f"the body is not JSON: {error}") from None
    if type(value) is not dict:
        raise RequestError("the body must be a JSON object")
    if data.count(b"{") + data.count(b"[") > DEPTH_MAX:
        _check_depth(value)
    return value


def _check_depth(value: object) -> None:
    level: list[object] = [value]
    for _ in range(DEPTH_MAX):
        inner: list[object] = []
        for each in level:
            if isinstance(each, dict):
                inner += each.values()
            elif isinstance(each, list):
                inner += each
        if not inner:
            return
        level = inner
    if any(isinstance(each, dict | list) for each in level):
        raise RequestError(f"the body has more than {DEPTH_MAX} lists and objects within each other")
