"""Platforms of a push, through a real server: names with a dash, declared platforms, names in notifications."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from pixiu.config import load_settings
from pixiu.model.errors import ConfigError
from tests.e2e.test_surfaces import Served, read
from tests.roles.horn.http_server import HttpServer, http_server

ALL = 7
"""gomsg's options: needs an ack, waits for an absent user, notifies."""


class PlatformServed(Served):
    def push(self, uid: str, text: str, **more: Any) -> None:
        headers = {"Authorization": f"Bearer {self.token('ops', '--admin')}"}
        request = {"uids": [uid], "msg_bodies": [text], "msg_options": ALL, **more}
        answer = httpx.post(f"{self.url}/v1/push", json=request, headers=headers)
        assert answer.status_code == 200, answer.text

    async def waiting(self, user: str, platform: str) -> list[str]:
        """The texts that wait in an inbox. A message sent to oneself marks the end of what waited."""
        token = self.token(user, platform=platform)
        found: list[str] = []
        async with self.socket(token) as socket:
            await socket.send(json.dumps({"id": 1, "action": "send", "params": {"to": user, "text": "end"}}))
            while True:
                frame = json.loads(await asyncio.wait_for(socket.recv(), 10))
                if frame.get("push") == "message":
                    found.append(frame["message"]["text"])
                elif frame.get("id") == 1:
                    return found

    def audit(self) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self.token('ops', '--admin')}"}
        return dict(httpx.get(f"{self.url}/v1/admin/audit", headers=headers, timeout=30).json())


@pytest.fixture
async def hook() -> AsyncIterator[HttpServer]:
    async with http_server() as server:
        yield server


async def notified(hook: HttpServer, count: int) -> set[str]:
    async with asyncio.timeout(10):
        while len(hook.bodies) < count:
            await asyncio.sleep(0.02)
    return {str(body["platform"]) for body in hook.bodies}


@pytest.mark.feature("P03", "P04")
async def test_a_push_for_all_platforms_waits_for_each_declared_one_opened_or_not(
    tmp_path: Path, hook: HttpServer
) -> None:
    settings = ["gateway.platforms=mobile, desk-top, web", "horn.provider=webhook", f"horn.webhook_url={hook.url}"]
    node = PlatformServed(tmp_path / "data", *settings, "horn.collapse_ms=0")
    await asyncio.to_thread(node.start)
    try:
        await asyncio.to_thread(node.push, "kim", "for all")
        assert await notified(hook, 3) == {"mobile", "desk-top", "web"}, "by the names that were declared"
        await asyncio.to_thread(node.push, "kim", "not for the web", platform_config={"without_platforms": ["web"]})
        await asyncio.to_thread(node.push, "kim", "for the tv", platform_config={"platforms": ["tv"]})
        own = {"exclusive_platform_config": {"kim": {}}, "platform_config": {"platforms": ["tv"]}}
        await asyncio.to_thread(node.push, "kim", "for all again", **own)
        assert await node.waiting("kim", "desk-top") == ["for all", "not for the web", "for all again"]
        assert await node.waiting("kim", "mobile") == ["for all", "not for the web", "for all again", "end"]
        assert await node.waiting("kim", "web") == ["for all", "for all again", "end", "end"]
        assert await node.waiting("kim", "tv") == ["for the tv", "for all again", "end", "end", "end"]
        assert (await asyncio.to_thread(node.audit))["balanced"] is True
    finally:
        await asyncio.to_thread(node.stop)


@pytest.mark.feature("P03")
async def test_platform_names_may_hold_a_dash_and_first_is_shown_to_no_provider(
    tmp_path: Path, hook: HttpServer
) -> None:
    settings = ["horn.provider=webhook", f"horn.webhook_url={hook.url}", "horn.collapse_ms=0"]
    node = PlatformServed(tmp_path / "data", *settings)
    await asyncio.to_thread(node.start)
    try:
        await asyncio.to_thread(node.push, "lee", "anywhere")
        assert await notified(hook, 1) == {""}, "a user without a platform has no platform's name"
        hook.bodies.clear()
        beta = {"platforms": ["ios-beta"]}
        await asyncio.to_thread(node.push, "lee", "to the beta", platform_config=beta)
        assert await notified(hook, 1) == {"ios-beta"}
        async with node.socket(node.token("lee", platform="ios-beta")) as socket:
            texts = [(await read(socket, "message"))["message"]["text"] for _ in range(2)]
            headers = {"Authorization": f"Bearer {node.token('ops', '--admin')}"}
            listed = httpx.get(f"{node.url}/v1/admin/sessions", headers=headers).json()["sessions"]
        assert texts == ["anywhere", "to the beta"]
        assert [each["platform"] for each in listed] == ["ios-beta"]
    finally:
        await asyncio.to_thread(node.stop)


@pytest.mark.parametrize("platforms", ["web, first", "web, web", "x" * 33, ", ".join(map(str, range(17)))])
def test_a_wrong_list_of_declared_platforms_is_refused_at_the_start(platforms: str) -> None:
    with pytest.raises(ConfigError, match=r"gateway\.platforms (must|may)"):
        load_settings(overrides={"gateway.platforms": platforms})
