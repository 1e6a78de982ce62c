"""The HTTP application: which path does what.

::

    api = HttpApi(
        act=messaging.act, find_user=messaging.proxy.find_user, authentication=tokens,
        administration=Administration(host), health=standard_routes(…), settings=settings.security, clock=clock,
    )
    server = HttpServer(api, sock)

Order in every request: the address is let in, the token is verified, the body is read (no larger than it may be), the
action is done. ``POST /v1/actions/<action>`` takes the WebSocket's ``params`` and gives its ``result``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route, Router

from pixiu.api.addresses import AddressRates
from pixiu.api.admin import CUT_PATH, AdminRoutes
from pixiu.api.answers import json_answer
from pixiu.api.bodies import read_object
from pixiu.api.bridge import Bridge
from pixiu.api.dev import DevRoutes, dev_paths
from pixiu.api.guard import API_POLICY, Guard
from pixiu.api.health import health_routes
from pixiu.api.metrics import HttpCounters
from pixiu.api.openapi import READS, document
from pixiu.api.push import push_params
from pixiu.api.schemas import Operation, operations
from pixiu.model.errors import NotFound, RequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Receive, Scope, Send

    from pixiu.api.administration import Administration
    from pixiu.api.bridge import Acts, FindUser
    from pixiu.config.security import SecuritySettings
    from pixiu.im.draft import Params
    from pixiu.ports.authentication import Authentication, Identity
    from pixiu.ports.clock import Clock
    from pixiu.runtime.admin import Handler

__all__ = ["HttpApi", "PagesApp"]

AUDIT_SECONDS = 600.0


class PagesApp(Protocol):
    """Files for people, as an ASGI application that raises where there is none."""

    @property
    def policy(self) -> str:
        """Their Content-Security-Policy."""
        ...

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        ...


class HttpApi:
    """The ASGI application."""

    def __init__(
        self,
        *,
        act: Acts,
        find_user: FindUser,
        authentication: Authentication,
        administration: Administration | None,
        health: Mapping[str, Handler],
        settings: SecuritySettings,
        clock: Clock,
        more_actions: Mapping[str, Operation] | None = None,
        pages: PagesApp | None = None,
        issue_token: Callable[[Identity], str] | None = None,
        admit: Callable[[str], object] | None = None,
    ) -> None:
        """``more_actions`` are those of other roles that ``act`` knows. ``pages`` are served at /.

        Without ``administration`` there are no paths for looking after a node: this is a gateway of a cluster.

        ``issue_token`` makes tokens for whoever asks: for ``--dev`` on loopback, and never otherwise.

        ``admit`` is asked for every request with its address, and raises to refuse it; by default it counts.
        """
        self._bridge = self.bridge = Bridge(act, find_user, authentication)
        self.administration = administration
        self._bytes_max = settings.body_bytes_max
        self.operations = {**operations(), **(more_actions or {})}
        self.document = document(self.operations, with_administration=administration is not None)
        self.counters = HttpCounters()
        rates = AddressRates(clock, per_second=settings.requests_per_second, burst=settings.request_burst)
        paths = [*self._routes(), *health_routes(health, with_front_page=pages is None)]
        if administration is not None:
            paths += AdminRoutes(self._bridge, administration, bytes_max=self._bytes_max).routes()
        if issue_token is not None:
            origins = frozenset(origin.lower() for origin in _named(settings.cors_origins))
            paths += DevRoutes(issue_token, bytes_max=self._bytes_max, origins=origins).routes()
            self.document["paths"] |= dev_paths()
        known = {route.path for route in paths}
        # Pages are what no route knows: mounted at / they would take a known path with another method for their own.
        router = Router(paths, redirect_slashes=False, default=pages)
        self._guard = Guard(
            _with_cors(router, settings.cors_origins),
            self.counters,
            admit=rates.take if admit is None else admit,
            timeout_seconds=settings.request_timeout_ms / 1000,
            longer={"/v1/admin/audit": AUDIT_SECONDS, CUT_PATH: AUDIT_SECONDS},
            policy=lambda path: (
                pages.policy if pages is not None and path not in known and not path.startswith("/v1/") else API_POLICY
            ),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        await self._guard(scope, receive, send)

    def _routes(self) -> list[Route]:
        found = [
            Route("/v1/actions/{action}", self._action, methods=["POST"]),
            Route("/v1/push", self._push, methods=["POST"]),
            Route("/openapi.json", self._document, methods=["GET"]),
        ]
        for path, (action, query) in READS.items():
            # A public id may hold a slash.
            found.append(Route(path.replace("}", ":path}"), self._reading(action, query), methods=["GET"]))
        return found

    async def _action(self, request: Request) -> Response:
        actor = await self._bridge.identify(request.headers.get("authorization", ""))
        action = request.path_params["action"]
        if action not in self.operations:
            raise NotFound(f"there is no action {action[:64]!r}; /openapi.json has them all")
        params = await read_object(request, bytes_max=self._bytes_max)
        self._take_key(request, action, params)
        return json_answer(await self._bridge.act(actor, action, params))

    async def _push(self, request: Request) -> Response:
        actor = await self._bridge.identify_admin(request.headers.get("authorization", ""))
        params = push_params(await read_object(request, bytes_max=self._bytes_max))
        self._take_key(request, "push", params)
        return json_answer(await self._bridge.act(actor, "push", params))

    def _take_key(self, request: Request, action: str, params: Params) -> None:
        """``Idempotency-Key`` is HTTP's word for a send_id."""
        key = request.headers.get("idempotency-key")
        properties = self.operations[action].params.get("properties", {})
        if key is not None and "send_id" in properties and params.get("send_id") is None:
            params["send_id"] = key

    def _reading(self, action: str, query: tuple[str, ...]) -> Callable[[Request], object]:
        async def endpoint(request: Request) -> Response:
            actor = await self._bridge.identify(request.headers.get("authorization", ""))
            params: Params = dict(request.path_params)
            for name, value in request.query_params.multi_items():
                if name not in query:
                    raise RequestError(f"{name[:64]!r} is not known here; known: {', '.join(query) or 'none'}")
                if name in params:
                    raise RequestError(f"{name} is given twice")
                params[name] = value
            return json_answer(await self._bridge.act(actor, action, params))

        return endpoint

    async def _document(self, _: Request) -> Response:
        return json_answer(self.document)


def _named(origins: str) -> list[str]:
    return [origin.strip() for origin in origins.split(",") if origin.strip()]


def _with_cors(app: ASGIApp, origins: str) -> ASGIApp:
    """Pages of other origins may call only where they are named. No cookies are ever looked at."""
    named = _named(origins)
    if not named:
        return app
    return CORSMiddleware(
        app,
        allow_origins=named,
        allow_methods=["GET", "POST"],
        allow_headers=["Authorization", "Content-Type", "Idempotency-Key"],
        max_age=600,
    )
