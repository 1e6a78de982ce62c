"""What HTTP says: results as JSON, errors as a status with ``{"error": {"code", "message"}}``."""

from __future__ import annotations

from http import HTTPStatus

import msgspec
from starlette.responses import Response

from pixiu.model.errors import PixiuError, RequestError, Unavailable

__all__ = ["STATUSES", "TooSlow", "error_answer", "error_body", "json_answer", "refusal"]

STATUSES = {
    "bad_request": 400,
    "unauthenticated": 401,
    "forbidden": 403,
    "not_found": 404,
    "conflict": 409,
    "too_large": 413,
    "rate_limited": 429,
    "internal": 500,
    "busy": 503,
    "unavailable": 503,
}
"""The wire codes of Pixiu's errors, and what HTTP calls them."""


class TooSlow(RequestError):
    """The client took too long over its own request."""


def json_answer(content: object, *, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A JSON answer."""
    body = msgspec.json.encode(content) + b"\n"
    return Response(body, status_code=status, media_type="application/json", headers=headers)


def error_body(code: str, message: str) -> dict[str, object]:
    """An error in the shape that it has everywhere."""
    return {"error": {"code": code, "message": message}}


def refusal(status: int, code: str, message: str, headers: dict[str, str] | None = None) -> Response:
    """An error answer."""
    return json_answer(error_body(code, message), status=status, headers=headers)


def error_answer(error: PixiuError, *, is_read: bool) -> Response:
    """What a caller is told of an error. ``is_read``: the whole request is here, and another may follow it."""
    headers: dict[str, str] = {} if is_read else {"Connection": "close"}
    status = HTTPStatus.REQUEST_TIMEOUT if isinstance(error, TooSlow) else STATUSES[error.code]
    if status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = 'Bearer realm="pixiu"'
    if isinstance(error, Unavailable) and error.retry_after_ms > 0:
        headers["Retry-After"] = str(-(-error.retry_after_ms // 1000))
    # What went wrong inside is for the log.
    message = str(error) if error.code != "internal" else "the request failed; the log says why"
    return refusal(status, error.code, message, headers)
