"""Header values that no client should send: each request gets a 4xx or its answer, never a 500 or a traceback."""

import asyncio
import itertools
import logging
from pathlib import Path

import pytest

from pixiu.config.security import SecuritySettings
from pixiu.console import console_pages
from pixiu.ports.authentication import Identity
from tests.api.test_server import serving
from tests.api.world import open_world

VALUES = (
    "", " ", "[", "]", "[::1", "[::1]x", "::1]", "[v1.x", "[::1%25]", "[::ffff:1.2.3.4]:80", "a:b", "a:99999", "a:-1",
    "//x", "http://[::1", "https://[", "null", "\x80\xff", "\xe2\x82", "%", "%zz", "\t", ",", ";", "=", "*", "0",
    "-1", "1e9", "99999999999999999999", "bytes=0-", "bytes=-1", "bytes=9-1,0-", "bytes=x", "Bearer", "Bearer ",
    "Bearer a.b.c", "Basic !", "for=[::1", 'for="[::1"', "text/html;q=x", "application/json;charset=[", 'W/"', '"',
    "gzip, [", "a" * 4000,
)  # fmt: skip
NAMES = (
    "Host", "Origin", "Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "Authorization", "Content-Length",
    "Content-Type", "Content-Encoding", "Range", "If-None-Match", "If-Modified-Since", "Idempotency-Key", "Accept",
    "Accept-Encoding", "Expect", "Transfer-Encoding", "Connection", "Upgrade", "Access-Control-Request-Method",
    "Access-Control-Request-Headers", "Cookie",
)  # fmt: skip
REQUESTS = (
    b"GET /healthz", b"POST /v1/dev/token", b"POST /v1/actions/user", b"GET /pixiu.js", b"OPTIONS /v1/dev/token",
)  # fmt: skip


async def status_of(port: int, request: bytes) -> int:
    """The status of the answer; 0 if the server closes without one."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        async with asyncio.timeout(20):
            line = await reader.readline()
        return int(line.split(b" ", 2)[1]) if line else 0
    except ConnectionResetError:
        return 0
    finally:
        writer.close()


def waits_for_more(name: str, value: str) -> bool:
    """Would the server wait for a body that is longer than ours?"""
    return name == "Content-Length" and value.isdigit() and 16 < int(value) < 2**20


@pytest.mark.parametrize("share", [pytest.param(7, id="some"), pytest.param(1, id="all", marks=pytest.mark.long)])
async def test_no_header_value_causes_an_internal_error(
    tmp_path: Path, share: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    async with (
        open_world(
            tmp_path,
            issue_token=lambda identity: identity.user,
            pages=console_pages(is_dev=True),
            security=SecuritySettings(cors_origins="http://localhost:5173", requests_per_second=0),
        ) as world,
        serving(world) as (_, port),
    ):
        good = world.tokens.issue(Identity("alice"))
        for name, value, request in itertools.islice(itertools.product(NAMES, VALUES, REQUESTS), 0, None, share):
            if waits_for_more(name, value):
                continue
            headers = {"Host": "127.0.0.1", "Content-Type": "application/json", "Content-Length": "16"}
            headers |= {"Authorization": f"Bearer {good}", name: value}
            lines = [request + b" HTTP/1.1", *(f"{key}: {text}".encode("latin-1") for key, text in headers.items())]
            status = await status_of(port, b"\r\n".join(lines) + b'\r\n\r\n{"user":"alice"}')
            assert status < 500 or (status == 501 and name == "Transfer-Encoding"), (request, name, value, status)
    assert not caplog.records, caplog.text


async def test_malformed_host_is_a_bad_request(tmp_path: Path) -> None:
    async with open_world(tmp_path, issue_token=lambda identity: identity.user) as world:
        for path in ("/healthz", "/v1/dev/token", "/", "/v1/actions/user"):
            for host in ("[::1", "[", "a:b", "[::1]x", "a b", "x/y", "u@h", "a:99999", "[127.0.0.1:80", "[:::1]"):
                answer = await world.client.post(path, json={"user": "alice"}, headers={"Host": host})
                assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_request"), answer.text
                assert "Host" in answer.json()["error"]["message"]
