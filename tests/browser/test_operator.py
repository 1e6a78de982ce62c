"""The operator pages in a real browser, over a real server."""

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import websockets
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from pixiu.queue.client import BlockingClient
from tests.browser.chromium import ARGUMENTS, CHROMIUM, require_chromium
from tests.servers import free_port, wait_for

pytestmark = pytest.mark.serial

PAGES = (
    "live",
    "topics",
    "topics/orders",
    "topics/pixiu.main",
    "dead-letters",
    "sessions",
    "audit",
    "cluster",
    "pipeline",
)


class Served:
    """``pixiu serve`` whose notifications all fail at once, so that there are dead letters."""

    def __init__(self, data: Path, *options: str) -> None:
        self.data = data
        self.port, self.queue_port = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        settings = {
            "horn.provider": "webhook", "horn.webhook_url": "http://127.0.0.1:9/", "horn.collapse_ms": "0",
            "carrier.task_retries_max": "0",
        }  # fmt: skip
        command = [sys.executable, "-m", "pixiu", "serve", "--data", str(data), "--port", str(self.port), *options]
        command += ["--queue-port", str(self.queue_port)]
        for name, value in settings.items():
            command += ["--set", f"{name}={value}"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(self.is_ready, what="the server to be ready", timeout_s=30)

    def is_ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/readyz", timeout=1).status_code == 200
        except httpx.HTTPError:
            return False

    def token(self, user: str, **claims: object) -> str:
        return str(httpx.post(f"{self.url}/v1/dev/token", json={"user": user, **claims}).json()["token"])

    def act(self, user: str, action: str, **params: object) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self.token(user)}"}
        answer = httpx.post(f"{self.url}/v1/actions/{action}", json=params, headers=headers)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def publish(self, topic: str, *bodies: bytes) -> None:
        with BlockingClient(f"127.0.0.1:{self.queue_port}") as client:
            if topic not in {each.name for each in client.topics()}:
                client.create_topic(topic)
            for body in bodies:
                client.publish(topic, body)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    server = Served(tmp_path_factory.mktemp("operator") / "data", "--dev")
    server.publish("orders", b'{"order": 1}')
    yield server
    server.process.terminate()
    server.process.wait(20)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    require_chromium()
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield found
        found.close()


OpenWindow = Callable[..., Page]


@pytest.fixture
def window(browser: Browser, served: Served) -> Iterator[OpenWindow]:
    """Opens windows of people who have logged in by name. Nothing in them may go wrong unseen."""
    contexts: list[BrowserContext] = []
    problems: list[str] = []

    def opened(user: str, **options: Any) -> Page:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, "locale": "en", **options})
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on(
            "console", lambda message: problems.append(message.text) if "Content Security" in message.text else None
        )
        page.goto(served.url)
        page.locator("input[name=user]").fill(user)
        page.locator("button[type=submit]").click()
        expect(page.locator("nav.rail")).to_be_attached()
        return page

    yield opened
    for context in contexts:
        context.close()
    assert problems == []


def show(page: Page, served: Served, name: str) -> None:
    page.goto(f"{served.url}/#/{name}")
    current = page.locator(f'nav.rail a[aria-current=page][href="#/{name.split("/")[0]}"]')
    expect(current).to_be_attached()
    expect(page.locator(".page h1")).to_be_visible()
    expect(page.locator(".page .spinner")).to_have_count(0)


def test_a_topic_is_found_opened_by_keyboard_and_followed_live(served: Served, window: OpenWindow) -> None:
    page = window("ops")
    show(page, served, "topics")
    row = page.get_by_role("row").filter(has_text="orders")
    expect(row).to_contain_text("nobody reads it")
    expect(page.get_by_role("row").filter(has_text="pixiu.main")).to_contain_text("Pixiu")
    row.focus()
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("orders")
    tail = page.locator(".tail li")
    expect(tail.first).to_contain_text('{"order": 1}')
    served.publish("orders", b'{"order": 2, "who": "\xe8\xb2\x94\xe8\xb2\x85"}')
    expect(tail.first).to_contain_text('{"order": 2, "who": "貔貅"}')
    page.get_by_role("tab", name="Hex").click()
    expect(tail.first.locator("pre")).to_contain_text("000000  7b 22 6f 72 64 65 72 22 3a 20 32")
    page.get_by_role("button", name="Pause").click()
    served.publish("orders", b"unseen")
    page.wait_for_timeout(1500)
    assert tail.count() == 2
    page.get_by_role("button", name="Go on").click()
    expect(tail).to_have_count(3)
    page.get_by_role("button", name="All topics").click()
    expect(page.locator("h1")).to_have_text("Topics")


def test_pixius_own_topics_show_who_and_not_what(served: Served, window: OpenWindow) -> None:
    page = window("ops")
    show(page, served, "topics/pixiu.main")
    served.act("alice", "send", to="bob", text="a secret")
    item = page.locator(".tail li").filter(has_text="alice").filter(has_text="bob")
    expect(item.first).to_contain_text("message")
    expect(page.get_by_text("What people say is not shown to admins.")).to_be_visible()
    assert "secret" not in page.content()


@pytest.mark.feature("P11")
def test_dead_letters_are_inspected_and_given_back_one_and_all(served: Served, window: OpenWindow) -> None:
    headers = {"Authorization": f"Bearer {served.token('ops', admin=True)}"}

    def letters() -> list[dict[str, Any]]:
        return list(httpx.get(f"{served.url}/v1/admin/dead-letters", headers=headers).json()["dead_letters"])

    for number in range(3):
        served.act("alice", "send", to="somebody-away", text=f"a secret {number}")
    wait_for(lambda: len(letters()) >= 3, what="three dead letters", timeout_s=20)
    before = {letter["id"] for letter in letters()}
    page = window("ops")
    show(page, served, "dead-letters")
    first = page.get_by_role("row").filter(has_text="somebody-away").first
    expect(first).to_contain_text("refused")
    first.click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("notify")
    assert "secret" not in page.content()
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    first.get_by_role("button", name="Give back").click()
    dialog.get_by_role("button", name="Cancel").click()
    assert before <= {letter["id"] for letter in letters()}
    first.get_by_role("button", name="Give back").click()
    dialog.get_by_role("button", name="Give back").click()
    expect(page.locator(".toast")).to_contain_text("1 given back")
    wait_for(
        lambda: len(before - {letter["id"] for letter in letters()}) == 1, what="one to be given back", timeout_s=20
    )
    page.get_by_role("button", name="Give all back").click()
    dialog.get_by_role("button", name="Give back").click()
    expect(page.locator(".toast").filter(has_text=re.compile(r"^[2-9] given back"))).to_be_visible()
    wait_for(lambda: not before & {letter["id"] for letter in letters()}, what="all to be given back", timeout_s=20)


@pytest.mark.feature("P24")
def test_a_session_is_found_and_kicked_and_the_other_window_is_told(served: Served, window: OpenWindow) -> None:
    page, other = window("ops"), window("mallory")
    expect(other.locator(".banner")).to_have_count(0)
    show(page, served, "sessions")
    expect(page.get_by_role("row").filter(has_text="ops")).to_contain_text("you")
    expect(page.get_by_role("row").filter(has_text="mallory")).to_be_visible()
    page.get_by_role("searchbox").fill("mallory")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"#/sessions/mallory$"))
    expect(page.get_by_role("row").filter(has_text="ops")).to_have_count(0)
    page.get_by_role("button", name="Kick mallory").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill("spam")
    dialog.get_by_role("button", name="Kick").click()
    expect(page.locator(".toast")).to_contain_text("1 session closed")
    expect(other.locator(".banner")).to_contain_text("spam")
    expect(page.get_by_text("mallory has no session here")).to_be_visible()
    show(page, served, "sessions/nobody-at-all")
    expect(page.get_by_text("There is no user nobody-at-all")).to_be_visible()


async def talk(served: Served) -> None:
    """Two people in a room, and messages that are acked."""
    sockets = []
    for user in ("alice", "bob"):
        token = await asyncio.to_thread(served.token, user)
        socket = await websockets.connect(f"ws://127.0.0.1:{served.port}/ws?token={token}")
        await socket.send(json.dumps({"id": 1, "action": "enter", "params": {"room": "lobby"}}))
        sockets.append(socket)

    async def acking(socket: Any) -> None:
        async for frame in socket:
            message = json.loads(frame)
            if "cursor" in message:
                await socket.send(json.dumps({"id": 2, "action": "ack", "params": {"cursor": message["cursor"]}}))

    tasks = [asyncio.create_task(acking(socket)) for socket in sockets]
    for number in range(40):
        say = {"id": 3, "action": "say", "params": {"room": "lobby", "text": "hello"}}
        send = {"id": 4, "action": "send", "params": {"to": "bob", "text": "hello", "send_id": f"talk {number}"}}
        await sockets[0].send(json.dumps(say))
        await sockets[0].send(json.dumps(send))
        await asyncio.sleep(0.05)
    await asyncio.sleep(1.5)  # a room reports once a second
    for task, socket in zip(tasks, sockets, strict=True):
        task.cancel()
        await socket.close()


@contextmanager
def talking(served: Served) -> Iterator[None]:
    """In a process of its own: playwright's loop is this thread's."""
    code = "import asyncio, sys; from tests.browser.test_operator import talk, Served\n"
    code += f"served = Served.__new__(Served); served.port = {served.port}; served.url = {served.url!r}\n"
    code += "asyncio.run(talk(served))"
    root = Path(__file__).resolve().parents[2]
    process = subprocess.Popen([sys.executable, "-c", code], cwd=root)
    yield
    assert process.wait(30) == 0


def test_rates_latencies_and_hot_rooms_are_shown_as_they_happen(served: Served, window: OpenWindow) -> None:
    page = window("ops")
    show(page, served, "live")
    expect(page.locator("canvas")).to_have_count(4)
    with talking(served):
        expect(page.get_by_role("row").filter(has_text="lobby")).to_be_visible(timeout=15_000)
        for hop in ("accept", "apply", "deliver", "ack"):
            row = page.get_by_role("row").filter(has=page.locator("b", has_text=re.compile(f"^{hop}$")))
            expect(row.locator("td").nth(4)).to_contain_text(re.compile(r"\d (µs|ms)"), timeout=15_000)
        expect(page.locator(".stat").first.locator("dd")).not_to_have_text("0/s")


def test_the_audit_shows_the_books_as_an_equation(served: Served, window: OpenWindow) -> None:
    served.act("alice", "send", to="bob", text="one more")
    page = window("ops")
    show(page, served, "audit")
    page.get_by_role("button", name="Take the books").click()
    expect(page.locator(".verdict.good")).to_contain_text("The books balance")
    intended, *parts = (int(text.replace(",", "")) for text in page.locator(".term .value").all_inner_texts())
    assert intended == sum(parts) > 0
    expect(page.locator(".equation .sign").first).to_have_text("=")


def test_books_that_do_not_balance_are_told_in_red_with_what_is_lost(served: Served, window: OpenWindow) -> None:
    page = window("ops")
    lost = {"message_id": "77", "user": "5", "platform": "web", "useq": 3, "reason": "not in the inbox"}
    report = {
        "accepted": 2, "intended": 4, "acked": 1, "waiting": 2, "expired": 0, "dead": 0, "resent": 0, "stored": 0,
        "cut": 9, "undecodable": 0, "lost": [lost], "lost_count": 1, "duplicates": [], "duplicate_count": 0,
        "balanced": False,
    }  # fmt: skip
    page.route("**/v1/admin/audit*", lambda route: route.fulfill(json=report))
    show(page, served, "audit")
    page.get_by_role("button", name="Take the books").click()
    expect(page.locator(".verdict.bad")).to_contain_text("1 lost")
    expect(page.locator(".equation .sign").first).to_have_text("≠")
    expect(page.get_by_role("row").filter(has_text="77")).to_contain_text("not in the inbox")


def test_every_page_speaks_both_languages_and_says_what_is_not_there_yet(served: Served, window: OpenWindow) -> None:
    page = window("ops", locale="zh-CN")
    for name in PAGES:
        show(page, served, name)
        shown = page.locator(".page").inner_text()
        assert re.search(r"[\u4e00-\u9fff]", shown), name
        assert not re.search(rf"\b{name.split('/')[0]}\.[a-z]+\b(?<!pixiu\.main)", shown), shown
    missing = page.evaluate("import('/i18n.js').then((module) => module.untranslated())")
    assert missing == []
    english = window("ops")
    for name in ("cluster", "pipeline"):
        show(english, served, name)
        expect(english.locator(".empty")).to_contain_text("does not have yet")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_a_phone_in_light_and_dark(served: Served, window: OpenWindow, scheme: str) -> None:
    page = window("ops", viewport={"width": 360, "height": 780}, color_scheme=scheme)
    for name in PAGES:
        show(page, served, name)
        wide = page.evaluate(
            "[...document.querySelectorAll('.page, .page .card, .page-head, .page-head *')]"
            ".filter((each) => each.getBoundingClientRect().right > innerWidth + 1).map((each) => each.className)"
        )
        assert wide == [], (name, wide)
    assert page.evaluate("document.documentElement.dataset.theme") == scheme


def test_whoever_is_no_admin_is_told_how_to_become_one(browser: Browser, tmp_path: Path) -> None:
    data = tmp_path / "data"

    def token(*arguments: str) -> str:
        command = [sys.executable, "-m", "pixiu", "token", *arguments, "--data", str(data)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    token("--new-key")
    server = Served(data)
    try:
        admin = {"Authorization": f"Bearer {token('ops', '--admin')}"}
        made = httpx.post(
            f"{server.url}/v1/actions/create_user", json={"user": "alice", "name": "alice"}, headers=admin
        )
        assert made.status_code == 200
        for options, is_admin in (([], False), (["--admin"], True)):
            page = browser.new_page(locale="en")
            page.goto(server.url)
            page.locator("textarea[name=token]").fill(token("alice", *options))
            page.locator("button[type=submit]").click()
            expect(page.locator("nav.rail")).to_be_attached()
            for name in ("live", "topics", "dead-letters", "sessions"):
                show(page, server, name)
                told = page.locator(".empty").filter(has_text="pixiu token NAME --admin")
                expect(told).to_have_count(0 if is_admin else 1)
            page.close()
    finally:
        server.process.terminate()
        server.process.wait(20)
