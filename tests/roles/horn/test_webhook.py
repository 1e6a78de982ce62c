"""Notifications over HTTP, to a real server; and the whole way from a message to that server."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from pixiu.backends.memory.stores import MemoryStores
from pixiu.config.messaging import CarrierSettings, HornSettings
from pixiu.model.errors import ConfigError
from pixiu.model.inbox import NEED_NOTIFICATION, Entry
from pixiu.model.push_token import PushToken
from pixiu.model.wake import Wake
from pixiu.ports.log import MAIN
from pixiu.ports.notifications import Notification, Refused
from pixiu.roles.carrier.consume import Carrier
from pixiu.roles.carrier.dead_letters import dead_letters
from pixiu.roles.carrier.notify import Notifier
from pixiu.roles.carrier.tasks import GeneralTasks
from pixiu.roles.horn.horn import Horn
from pixiu.runtime.clock import SystemClock
from pixiu.runtime.scheduler import LoopScheduler
from pixiu.runtime.webhook import WebhookNotifications
from pixiu.testing.memory_log import MemoryLog
from tests.roles.carrier.world import opened, send, user
from tests.roles.horn.http_server import HttpServer, http_server

HELLO = Notification("bert", "ios", 2**61, "u:1", "änna", "hello 貔貅", 3)


@pytest.fixture
async def server() -> AsyncIterator[HttpServer]:
    async with http_server() as server:
        yield server


async def post(url: str, *, timeout_ms: int = 5000, notification: Notification = HELLO) -> Refused | None:
    loop = asyncio.get_running_loop()
    webhook = WebhookNotifications(loop, url, timeout_ms=timeout_ms)
    answer: asyncio.Future[Refused | None] = loop.create_future()
    webhook.send(notification, answer.set_result)
    result = await answer
    await webhook.close()
    return result


@pytest.mark.feature("T2")
async def test_a_notification_is_posted_as_json(server: HttpServer) -> None:
    assert await post(server.url) is None
    (request,) = server.requests
    headers = {name.decode(): value.decode() for name, value in request.headers}
    assert (request.method, request.target) == (b"POST", b"/push?app=1")
    assert headers["content-type"] == "application/json"
    assert headers["idempotency-key"] == f"{2**61}/bert/ios"
    assert server.bodies == [
        {
            "user": "bert",
            "platform": "ios",
            "message_id": str(2**61),
            "conversation": "u:1",
            "sender": "änna",
            "text": "hello 貔貅",
            "badge": 3,
        }
    ]


@pytest.mark.parametrize(("status", "is_taken"), [(200, True), (204, True), (302, False), (410, False), (500, False)])
async def test_a_status_below_300_means_that_it_was_taken(server: HttpServer, status: int, is_taken: bool) -> None:
    server.statuses = [status]
    reason = await post(server.url)
    assert (reason is None) is is_taken
    assert is_taken or str(status) in str(reason)


async def test_a_phone_is_posted_with_its_token_and_410_means_that_it_is_gone(server: HttpServer) -> None:
    server.statuses = [410, 503]
    phone = Notification("bert", "ios", 1, "u:1", "anna", "hi", 3, PushToken(2, "ios", "d 1", "webhook", "tok", "app"))
    assert await post(server.url, notification=phone) == Refused("the server answered with status 410", True)
    assert await post(server.url, notification=phone) == Refused("the server answered with status 503")
    assert server.bodies[0].items() >= {"device": "d 1", "token": "tok", "topic": "app"}.items()
    assert dict(server.requests[0].headers)[b"idempotency-key"] == b"1/bert/ios/d 1"


async def test_a_server_that_is_not_there_is_a_failure_with_a_reason() -> None:
    async with http_server() as gone:
        url = gone.url
    assert "onnect" in str(await post(url))


async def test_a_server_that_takes_too_long_is_a_failure(server: HttpServer) -> None:
    server.delay_seconds = 5
    assert await post(server.url, timeout_ms=50) == Refused("no answer within 0.05 s")


async def test_a_server_that_closes_without_an_answer_is_a_failure(server: HttpServer) -> None:
    server.is_rude = True
    assert await post(server.url)


async def test_ids_that_no_header_may_hold_are_escaped(server: HttpServer) -> None:
    assert await post(server.url, notification=Notification("貔貅", "i os", 1, "u:1", "", "", 0)) is None
    assert dict(server.requests[0].headers)[b"idempotency-key"] == rb"1/\u8c94\u8c85/i os"


async def test_requests_under_way_and_waiting_are_bounded(server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pixiu.runtime.webhook.REQUESTS_MAX", 4)
    monkeypatch.setattr("pixiu.runtime.webhook.WAITING_MAX", 16)
    server.delay_seconds = 0.02
    webhook = WebhookNotifications(asyncio.get_running_loop(), server.url, timeout_ms=5000)
    answers: list[Refused | None] = []
    for _ in range(30):
        webhook.send(HELLO, answers.append)
    async with asyncio.timeout(20):
        while len(answers) < 30:
            await asyncio.sleep(0.01)
    assert answers.count(None) == 20
    assert server.open_most <= 4
    assert len(server.bodies) == 20
    await webhook.close()


async def test_closing_gives_up_what_is_under_way(server: HttpServer) -> None:
    server.delay_seconds = 5
    webhook = WebhookNotifications(asyncio.get_running_loop(), server.url, timeout_ms=5000)
    answers: list[Refused | None] = []
    webhook.send(HELLO, answers.append)
    await asyncio.sleep(0.05)
    await webhook.close()
    assert answers == []


@pytest.mark.parametrize("url", ["", "ftp://host/", "http://", "http://host:99999/", "http://a b/", "http://u:p@host/"])
async def test_a_url_that_cannot_work_is_refused_at_the_start(url: str) -> None:
    with pytest.raises(ConfigError, match="webhook_url"):
        WebhookNotifications(asyncio.get_running_loop(), url, timeout_ms=1000)


class Node:
    """Carrier, horn and webhook as a node wires them, with a relay that knows who is online."""

    def __init__(self, url: str, **settings: int) -> None:
        loop = asyncio.get_running_loop()
        self.scheduler, clock = LoopScheduler(loop), SystemClock()
        self.stores = MemoryStores()
        self.log = MemoryLog(clock, self.scheduler)
        self.webhook = WebhookNotifications(loop, url, timeout_ms=2000)
        self.horn = Horn(self.stores.users, self.webhook, self.scheduler, HornSettings(collapse_ms=20))
        self.online: set[tuple[int, str]] = set()
        self.carrier = Carrier(
            self.stores, self.log, clock, self.scheduler, CarrierSettings(**settings),
            wake=self.wake, tell=lambda number, event: None,
            notify=self.horn.perform, schedule=lambda record, parsed, done: done(None),
            general=GeneralTasks(kick=lambda *_: None, flush=lambda *_: None).perform,
        )  # fmt: skip
        self.notifier = Notifier(self.stores, self.log, clock, self.carrier.counters, text_max=200)
        self.carrier.start()

    def wake(self, wakes: list[Wake]) -> None:
        away: dict[int, dict[str, list[Entry]]] = {}
        for wake in wakes:
            if (wake.user, wake.platform) not in self.online:
                asking = [entry for entry in wake.entries if entry.options & NEED_NOTIFICATION]
                away.setdefault(wake.user, {})[wake.platform] = asking
        for number, entries in away.items():
            self.notifier.away(number, entries)

    async def close(self) -> None:
        self.carrier.stop()
        self.horn.stop()
        await self.webhook.close()
        self.scheduler.close()

    async def settle(self, is_there: object) -> None:
        async with asyncio.timeout(20):
            while not is_there():  # type: ignore[operator]
                await asyncio.sleep(0.005)
        await asyncio.sleep(0.1)


def append(node: Node, *records: object) -> None:
    for record in records:
        node.log.append(MAIN, record.SerializeToString(), lambda result: None)  # type: ignore[attr-defined]


@pytest.mark.feature("T2")
async def test_a_message_to_an_offline_platform_calls_the_server_once(server: HttpServer) -> None:
    node = Node(server.url)
    node.online = {(2, "web")}
    append(node, user(1, "anna"), user(2, "bert"), opened(2, "ios"), opened(2, "web"), send(1, 2, "are you there?"))
    await node.settle(lambda: server.bodies)
    assert [(body["user"], body["platform"], body["text"]) for body in server.bodies] == [
        ("bert", "ios", "are you there?")
    ]  # fmt: skip
    assert node.carrier.counters.notifications == node.carrier.counters.tasks == 1
    await node.close()


@pytest.mark.feature("T2", "P22")
async def test_nobody_is_called_when_the_message_is_delivered_or_does_not_ask_for_it(server: HttpServer) -> None:
    node = Node(server.url)
    node.online = {(2, "ios")}
    append(node, user(1), user(2), opened(2, "ios"), send(1, 2))
    await node.settle(lambda: node.carrier.applied_all == 4)
    node.online = set()
    append(node, send(1, 2, options=3))
    await node.settle(lambda: node.carrier.applied_all == 5)
    assert server.bodies == []
    await node.close()


@pytest.mark.feature("T2", "P09", "P11")
async def test_a_server_that_fails_is_called_again_later_and_at_the_limit_the_task_is_a_dead_letter(
    server: HttpServer,
) -> None:
    node = Node(server.url, task_retry_ms=30, task_retries_max=2)
    server.statuses = [500, 500, 500]
    append(node, user(1), user(2, "bert"), send(1, 2))
    await node.settle(lambda: dead_letters(node.log))
    assert len(server.bodies) == 3
    (letter,) = dead_letters(node.log)
    assert letter.task.reason == "the server answered with status 500"
    assert node.carrier.counters.dead_letters == 1
    node.carrier.dead.replay(letter.event_id, lambda error: None)
    await node.settle(lambda: len(server.bodies) == 4)
    assert dead_letters(node.log) == []
    await node.close()
