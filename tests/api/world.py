"""A real node with the HTTP application over it, and callers with real tokens."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

import pixiu
from pixiu.api.app import HttpApi
from pixiu.config import Settings
from pixiu.config.security import SecuritySettings
from pixiu.node.admin.administration import NodeAdministration
from pixiu.node.embedded import EmbeddedNode
from pixiu.ports.authentication import Authentication, Identity
from pixiu.ports.clock import Clock
from pixiu.runtime.admin import standard_routes
from pixiu.runtime.clock import SystemClock
from pixiu.runtime.keys import Keyring
from pixiu.runtime.metrics import Metrics
from pixiu.runtime.tokens import Tokens

__all__ = ["World", "open_world"]


@dataclass(frozen=True)
class World:
    node: EmbeddedNode
    tokens: Tokens
    api: HttpApi
    client: httpx.AsyncClient
    down: dict[str, str]
    """What readiness complains about."""

    def bearer(self, user: str, *, admin: bool = False, platform: str = "web") -> dict[str, str]:
        token = self.tokens.issue(Identity(user, platform, "d1", admin))
        return {"Authorization": f"Bearer {token}"}

    async def act(
        self, user: str, action: str, params: Mapping[str, object] | None = None, *, admin: bool = False, **headers: str
    ) -> httpx.Response:
        sent = {**self.bearer(user, admin=admin), **{name.replace("_", "-"): text for name, text in headers.items()}}
        return await self.client.post(f"/v1/actions/{action}", json=params or {}, headers=sent)

    async def push(self, body: object, *, user: str = "backend", admin: bool = True) -> httpx.Response:
        return await self.client.post("/v1/push", json=body, headers=self.bearer(user, admin=admin))

    async def get(self, path: str, user: str = "alice", *, admin: bool = False) -> httpx.Response:
        return await self.client.get(path, headers=self.bearer(user, admin=admin))


def make_api(
    node: EmbeddedNode,
    authentication: Authentication,
    security: SecuritySettings,
    down: dict[str, str],
    *,
    clock: Clock | None = None,
    **more: Any,
) -> HttpApi:
    messaging = node.messaging

    def reasons() -> dict[str, str]:
        problems = messaging.problems()
        return {**down, "messaging": "; ".join(problems)} if problems else down

    return HttpApi(
        act=messaging.act,
        find_user=messaging.proxy.find_user,
        authentication=authentication,
        administration=NodeAdministration(node.host),
        health=standard_routes(reasons=reasons, metrics=Metrics().render, about=lambda: "Pixiu is here.\n"),
        settings=security,
        clock=clock or SystemClock(),
        **more,
    )


@asynccontextmanager
async def open_world(
    path: Path,
    *,
    security: SecuritySettings | None = None,
    settings: Settings | None = None,
    creates_users: bool = False,
    users: tuple[str, ...] = ("alice", "bob"),
    authentication: Authentication | None = None,
    **more: Any,
) -> AsyncIterator[World]:
    chosen = security or SecuritySettings()
    async with pixiu.Node.embedded(path, settings=settings, creates_users=creates_users) as node:
        keys = Keyring(path, SystemClock())
        if not keys.keys:
            keys.create("EdDSA")
        tokens = Tokens(keys, SystemClock(), chosen)
        for user in users:
            await node.create_user(user)
        down: dict[str, str] = {}
        api = make_api(node, authentication or tokens, chosen, down, **more)
        transport = httpx.ASGITransport(app=api, raise_app_exceptions=True)
        async with httpx.AsyncClient(transport=transport, base_url="http://pixiu.test") as client:
            yield World(node, tokens, api, client, down)
