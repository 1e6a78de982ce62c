"""What a stranger may cost: sizes, depths, rates, times; and what goes out with every answer."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pixiu.api.addresses import AddressRates
from pixiu.config.security import SecuritySettings
from pixiu.console import Pages
from pixiu.model.errors import RateLimited
from tests.api.world import open_world
from tests.runtime.test_tokens import ManualClock

SMALL = SecuritySettings(body_bytes_max=1024)


async def test_a_body_that_says_it_is_too_large_is_not_read(tmp_path: Path) -> None:
    taken = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal taken
        while True:
            taken += 1
            yield b"x" * 100

    async with open_world(tmp_path, security=SMALL) as world:
        headers = {**world.bearer("alice"), "Content-Length": "1025"}
        answer = await world.client.post("/v1/actions/send", content=endless(), headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")
        assert answer.headers["connection"] == "close"
        assert taken == 0


async def test_a_body_without_a_length_is_read_as_far_as_it_may_be(tmp_path: Path) -> None:
    taken = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal taken
        while True:
            taken += 1
            yield b" " * 100

    async with open_world(tmp_path, security=SMALL) as world:
        answer = await world.client.post("/v1/actions/send", content=endless(), headers=world.bearer("alice"))
        assert answer.status_code == 413
        assert taken == 11


async def test_without_a_token_no_body_is_read_at_all(tmp_path: Path) -> None:
    taken = 0

    async def body() -> AsyncIterator[bytes]:
        nonlocal taken
        taken += 1
        yield b"{}"

    async with open_world(tmp_path) as world:
        assert (await world.client.post("/v1/actions/send", content=body())).status_code == 401
        assert (await world.client.post("/v1/push", content=body(), headers=world.bearer("alice"))).status_code == 403
        assert taken == 0


@pytest.mark.parametrize("length", ["-1", "1e3", "ten", "9" * 40])
async def test_a_length_that_is_none_is_refused(tmp_path: Path, length: str) -> None:
    async with open_world(tmp_path, security=SMALL) as world:
        headers = {**world.bearer("alice"), "Content-Length": length}
        answer = await world.client.post("/v1/actions/contacts", content=b"{}", headers=headers)
        assert answer.status_code in (400, 413)


@pytest.mark.parametrize("depth", [33, 900, 100_000])
@pytest.mark.parametrize("opening", ["[", '{"a":'])
async def test_a_deep_body_is_refused(tmp_path: Path, depth: int, opening: str) -> None:
    closing = "]" if opening == "[" else "}"
    body = '{"fields":' + opening * depth + "1" + closing * depth + "}"
    async with open_world(tmp_path) as world:
        answer = await world.client.post("/v1/actions/send", content=body, headers=world.bearer("alice"))
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_request")
        assert "within each other" in answer.text


async def test_a_wide_body_is_not_a_deep_one(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        body = {"message_ids": [str(number) for number in range(1, 200)], "kind": "read"}
        assert (await world.act("alice", "receipt", body)).status_code == 404
        answer = await world.act("alice", "receipt", {"message_ids": [[]] * 100, "kind": "read"})
        assert (answer.status_code, "within each other" in answer.text) == (400, False)


async def test_a_compressed_body_is_refused(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        headers = {**world.bearer("alice"), "Content-Encoding": "gzip"}
        assert (await world.client.post("/v1/actions/contacts", content=b"x", headers=headers)).status_code == 400


async def test_numbers_of_any_size_do_no_harm(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        for text in ("1" * 5000, "-" + "9" * 30, "1e400", "1.5", "true"):
            body = f'{{"message_id": {text}}}'
            answer = await world.client.post("/v1/actions/recall", content=body, headers=world.bearer("alice"))
            assert answer.status_code == 400, text


async def test_an_address_that_asks_too_often_is_told_when_to_come_back(tmp_path: Path) -> None:
    security = SecuritySettings(requests_per_second=1, request_burst=3)
    async with open_world(tmp_path, security=security, clock=ManualClock()) as world:
        statuses = [(await world.client.get("/healthz")).status_code for _ in range(5)]
        assert statuses == [200, 200, 200, 429, 429]
        answer = await world.client.get("/healthz")
        assert int(answer.headers["retry-after"]) >= 1
        assert answer.json()["error"]["code"] == "rate_limited"
        assert world.api.counters.by_status == {200: 3, 429: 3}


async def test_who_is_let_in_can_be_decided_by_others(tmp_path: Path) -> None:
    asked: list[str] = []

    def admit(address: str) -> None:
        asked.append(address)
        raise RateLimited("not you", retry_after_ms=1)

    async with open_world(tmp_path, admit=admit) as world:
        assert (await world.get("/v1/contacts")).status_code == 429
        forged = {**world.bearer("alice"), "X-Forwarded-For": "10.0.0.1", "Forwarded": "for=10.0.0.1"}
        await world.client.get("/v1/contacts", headers=forged)
        assert asked == ["127.0.0.1", "127.0.0.1"]


def test_rates_are_per_address_and_in_bounded_memory() -> None:
    clock = ManualClock()
    rates = AddressRates(clock, per_second=10, burst=2, addresses_max=100)
    for address in ("1.1.1.1", "2.2.2.2", "::ffff:3.3.3.3", "2001:db8:1:1::1"):
        rates.take(address)
        rates.take(address)
    for same in ("1.1.1.1", "2.2.2.2", "3.3.3.3", "2001:db8:1:1:ffff::9"):
        with pytest.raises(RateLimited) as caught:
            rates.take(same)
        assert caught.value.retry_after_ms == 100
    rates.take("2001:db8:1:2::1")
    clock.ms += 100
    rates.take("1.1.1.1")
    for number in range(1000):
        rates.take(f"10.0.{number // 256}.{number % 256}")
    assert len(rates) <= 100
    AddressRates(clock, per_second=0, burst=1).take("x")


async def test_a_body_that_dawdles_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def slow() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.sleep(30)

    async with open_world(tmp_path) as world:
        monkeypatch.setattr("pixiu.api.app.read_object", _hasty)
        answer = await world.client.post("/v1/actions/contacts", content=slow(), headers=world.bearer("alice"))
        assert (answer.status_code, answer.json()["error"]["code"]) == (408, "bad_request")
        assert answer.headers["connection"] == "close"


async def _hasty(request: object, *, bytes_max: int) -> object:
    from pixiu.api.bodies import read_object

    return await read_object(request, bytes_max=bytes_max, seconds=0.05)  # type: ignore[arg-type]


async def test_every_answer_has_its_headers(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        answers = [
            await world.get("/v1/contacts"),
            await world.client.get("/v1/contacts"),
            await world.client.get("/healthz"),
            await world.client.get("/nothing"),
            await world.client.get("/openapi.json"),
            await world.client.put("/v1/push"),
        ]
        assert [each.status_code for each in answers] == [200, 401, 200, 404, 200, 405]
        for answer in answers:
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["x-frame-options"] == "DENY"
            assert answer.headers["referrer-policy"] == "no-referrer"
            assert answer.headers["content-security-policy"].startswith("default-src 'none'")
            assert answer.headers["cache-control"] == "no-store"
            assert "access-control-allow-origin" not in answer.headers
            assert "server" not in answer.headers
            assert "strict-transport-security" not in answer.headers
        secure = await world.client.get("https://pixiu.test/healthz")
        assert secure.headers["strict-transport-security"].startswith("max-age=")


async def test_other_origins_may_call_only_where_they_are_named(tmp_path: Path) -> None:
    asking = {"Origin": "https://chat.example", "Access-Control-Request-Method": "POST"}
    async with open_world(tmp_path / "off") as world:
        preflight = await world.client.options("/v1/actions/send", headers=asking)
        assert preflight.status_code == 405
        assert "access-control-allow-origin" not in preflight.headers
    security = SecuritySettings(cors_origins="https://chat.example, https://other.example")
    async with open_world(tmp_path / "on", security=security) as world:
        asking["Access-Control-Request-Headers"] = "authorization"
        preflight = await world.client.options("/v1/actions/send", headers=asking)
        assert preflight.headers["access-control-allow-origin"] == "https://chat.example"
        assert "access-control-allow-credentials" not in preflight.headers
        evil = await world.client.options("/v1/actions/send", headers={**asking, "Origin": "https://evil.example"})
        assert "access-control-allow-origin" not in evil.headers


async def test_pages_are_served_under_a_policy_and_nothing_beside_them(tmp_path: Path) -> None:
    pages = tmp_path / "pages"
    pages.mkdir()
    (pages / "index.html").write_text("<script src=/app.js></script>")
    (pages / "app.js").write_text("1")
    (tmp_path / "secret.txt").write_text("hidden")
    async with open_world(tmp_path / "data", pages=Pages(pages)) as world:
        front = await world.client.get("/")
        assert (front.status_code, front.headers["content-type"]) == (200, "text/html; charset=utf-8")
        policy = front.headers["content-security-policy"]
        assert "script-src 'self';" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
        assert (await world.client.get("/app.js")).headers["cache-control"] == "no-cache"
        for path in ("/../secret.txt", "/%2e%2e/secret.txt", "/..%2fsecret.txt", "//etc/passwd", "/nothing"):
            answer = await world.client.get(path)
            assert (answer.status_code, b"hidden" in answer.content) == (404, False), path
        for method, path, allow in (
            ("GET", "/v1/actions/send", "POST"), ("DELETE", "/v1/actions/send", "POST"), ("GET", "/v1/push", "POST"),
            ("POST", "/v1/contacts", "GET, HEAD"), ("PUT", "/v1/admin/kick", "POST"), ("POST", "/app.js", "GET, HEAD"),
        ):  # fmt: skip
            answer = await world.client.request(method, path)
            assert (answer.status_code, answer.headers["allow"]) == (405, allow), path
            assert f": use {allow.split(',')[0]}" in answer.json()["error"]["message"]
        assert json.loads((await world.client.get("/healthz")).content) == {"status": "ok"}
        assert (
            (await world.client.get("/v1/contacts")).headers["content-security-policy"].startswith("default-src 'none'")
        )
