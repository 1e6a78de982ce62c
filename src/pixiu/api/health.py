"""Health, readiness and metrics: the table of the node's small server, served by this application."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import Response
from starlette.routing import Route

from pixiu.runtime import admin

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.requests import Request

__all__ = ["health_routes"]


def health_routes(table: Mapping[str, admin.Handler], *, with_front_page: bool) -> list[Route]:
    """A route for each path; the front page only where there is no better one."""
    return [
        Route(path, _endpoint(handler), methods=["GET"])
        for path, handler in table.items()
        if path != "/" or with_front_page
    ]


def _endpoint(handler: admin.Handler) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        asked = admin.Request(request.method, request.scope["path"], request.headers.get("accept", ""))
        answer = handler(asked)
        headers = {"content-type": answer.content_type}
        return Response(answer.body, status_code=answer.status, headers=headers)

    return endpoint
