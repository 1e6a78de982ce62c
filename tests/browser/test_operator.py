"""The operator pages in a real browser, over a real server."""

import asyncio
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import websockets
from playwright.sync_api import Page, Route, expect

from pixiu.config.security import SecuritySettings
from pixiu.node.processes.watching import map_routes
from pixiu.ports.authentication import Identity
from pixiu.queue.client import BlockingClient
from pixiu.roles.meta.map import ClusterMap
from pixiu.runtime.admin import AdminServer
from pixiu.runtime.clock import SystemClock
from pixiu.runtime.datadir import find_server
from pixiu.runtime.keys import Keyring
from pixiu.runtime.tokens import Tokens
from tests.browser.world import BrowserWorld, open_world
from tests.servers import wait_for

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


HOPS = ("accept", "apply", "deliver", "ack")

FAILING = {
    "horn.provider": "webhook", "horn.webhook_url": "http://127.0.0.1:9/", "horn.collapse_ms": "0",
    "carrier.task_retries_max": "0",
}  # fmt: skip
"""Every notification fails at once, so that there are dead letters."""

PHONE = {"width": 360, "height": 780}


def token_of(url: str, user: str, **claims: object) -> str:
    return str(httpx.post(f"{url}/v1/dev/token", json={"user": user, **claims}).json()["token"])


def publish(world: BrowserWorld, topic: str, *bodies: bytes) -> None:
    """Into a topic of the queue, which is made where it is missing."""
    holder = find_server(world.data)
    assert holder is not None and holder.address is not None
    with BlockingClient(holder.address) as client:
        if topic not in {each.name for each in client.topics()}:
            client.create_topic(topic)
        for body in bodies:
            client.publish(topic, body)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserWorld]:
    settings = [part for name, value in FAILING.items() for part in ("--set", f"{name}={value}")]
    with open_world(tmp_path_factory.mktemp("operator"), "--dev", *settings) as world:
        publish(world, "orders", b'{"order": 1}')
        yield world


@pytest.fixture
def world(shared: BrowserWorld) -> Iterator[BrowserWorld]:
    yield shared
    shared.close_windows()


def show(page: Page, url: str, name: str) -> None:
    page.goto(f"{url}/#/{name}")
    current = page.locator(f'nav.rail a[aria-current=page][href="#/{name.split("/")[0]}"]')
    expect(current).to_be_attached()
    expect(page.locator(".page h1")).to_be_visible()
    expect(page.locator(".page .spinner")).to_have_count(0)


def test_a_topic_is_found_opened_by_keyboard_and_followed_live(world: BrowserWorld) -> None:
    page = world.log_in("ops")
    show(page, world.url, "topics")
    row = page.get_by_role("row").filter(has_text="orders")
    expect(row).to_contain_text("no subscribers")
    expect(page.get_by_role("row").filter(has_text="pixiu.main")).to_contain_text("Pixiu")
    row.focus()
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("orders")
    tail = page.locator(".tail li")
    expect(tail.first).to_contain_text('{"order": 1}')
    publish(world, "orders", b'{"order": 2, "who": "\xe8\xb2\x94\xe8\xb2\x85"}')
    expect(tail.first).to_contain_text('{"order": 2, "who": "貔貅"}')
    page.get_by_role("tab", name="Hex").click()
    expect(tail.first.locator("pre")).to_contain_text("000000  7b 22 6f 72 64 65 72 22 3a 20 32")
    page.get_by_role("button", name="Pause").click()
    publish(world, "orders", b"unseen")
    page.wait_for_timeout(1500)
    assert tail.count() == 2
    page.get_by_role("button", name="Go on").click()
    expect(tail).to_have_count(3)
    page.get_by_role("button", name="Pause").click()
    publish(world, "orders", *(b"%d" % number for number in range(400)))
    page.get_by_role("button", name="Go on").click()
    page.get_by_role("tab", name="Text").click()
    expect(tail.first).to_contain_text("399")
    expect(page.locator(".tail .gap")).to_have_count(1)  # what is too much is passed over, and said
    page.get_by_role("button", name="All topics").click()
    expect(page.locator("h1")).to_have_text("Topics")


def test_pixius_own_topics_show_who_and_not_what(world: BrowserWorld) -> None:
    page = world.log_in("ops")
    show(page, world.url, "topics/pixiu.main")
    world.act("alice", "send", to="bob", text="a secret")
    item = page.locator(".tail li").filter(has_text="alice").filter(has_text="bob")
    expect(item.first).to_contain_text("message")
    expect(page.get_by_text("What people say is not shown to admins.")).to_be_visible()
    assert "secret" not in page.content()


@pytest.mark.feature("P11")
def test_dead_letters_are_inspected_and_given_back_one_and_all(world: BrowserWorld) -> None:
    headers = {"Authorization": f"Bearer {token_of(world.url, 'ops', admin=True)}"}

    def letters() -> list[dict[str, Any]]:
        return list(httpx.get(f"{world.url}/v1/admin/dead-letters", headers=headers).json()["dead_letters"])

    for number in range(3):
        world.act("alice", "send", to="somebody-away", text=f"a secret {number}")
    wait_for(lambda: len(letters()) >= 3, what="three dead letters", timeout_s=20)
    before = {letter["id"] for letter in letters()}
    page = world.log_in("ops")
    show(page, world.url, "dead-letters")
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
def test_a_session_is_found_and_kicked_and_the_other_window_is_told(world: BrowserWorld) -> None:
    page, other = world.log_in("ops"), world.log_in("mallory")
    expect(other.locator(".banner")).to_have_count(0)
    show(page, world.url, "sessions")
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
    world.forgiven = ("404",)
    show(page, world.url, "sessions/nobody-at-all")
    expect(page.get_by_text("There is no user nobody-at-all")).to_be_visible()


async def talk(url: str) -> None:
    """Two people in a room, and messages that are acked."""
    sockets = []
    for user in ("alice", "bob"):
        token = await asyncio.to_thread(token_of, url, user)
        socket = await websockets.connect(f"{url.replace('http', 'ws')}/ws?token={token}")
        await socket.send(json.dumps({"id": 1, "action": "enter", "params": {"room": "lobby"}}))
        sockets.append(socket)

    async def acking(socket: Any) -> None:
        async for frame in socket:
            message = json.loads(frame)
            if "cursor" in message:
                await socket.send(json.dumps({"id": 2, "action": "ack", "params": {"cursor": message["cursor"]}}))

    tasks = [asyncio.create_task(acking(socket)) for socket in sockets]
    told_to_stop = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    for number in range(1200):
        if told_to_stop.done():
            break
        say = {"id": 3, "action": "say", "params": {"room": "lobby", "text": "hello"}}
        send = {"id": 4, "action": "send", "params": {"to": "bob", "text": "hello", "send_id": f"talk {number}"}}
        await sockets[0].send(json.dumps(say))
        await sockets[0].send(json.dumps(send))
        await asyncio.sleep(0.05)
    for task, socket in zip(tasks, sockets, strict=True):
        task.cancel()
        await socket.close()


@contextmanager
def talking(url: str) -> Iterator[None]:
    """In a process of its own, as playwright's loop is this thread's, until its input ends or a minute is over."""
    code = f"import asyncio; from tests.browser.test_operator import talk; asyncio.run(talk({url!r}))"
    root = Path(__file__).resolve().parents[2]
    with subprocess.Popen([sys.executable, "-c", code], cwd=root, stdin=subprocess.PIPE) as process:
        yield
    assert process.returncode == 0


def test_rates_latencies_and_hot_rooms_are_shown_as_they_happen(world: BrowserWorld) -> None:
    page = world.log_in("ops")
    show(page, world.url, "live")
    expect(page.locator("canvas")).to_have_count(4)
    with talking(world.url):
        expect(page.get_by_role("row").filter(has_text="lobby")).to_be_visible(timeout=40_000)
        for hop in ("accept", "apply", "deliver", "ack"):
            row = page.get_by_role("row").filter(has=page.locator("b", has_text=re.compile(f"^{hop}$")))
            expect(row.locator("td").nth(4)).to_contain_text(re.compile(r"\d (µs|ms)"), timeout=40_000)
        expect(page.locator(".stat").first.locator("dd")).not_to_have_text("0/s")


COLOURED = """
([index, share]) => {
  const canvas = document.querySelectorAll('.chart canvas')[index];
  const probe = document.createElement('i');
  probe.style.color = 'var(--chart-1)';
  document.body.append(probe);
  const [red, green, blue] = getComputedStyle(probe).color.match(/\\d+/g).map(Number);
  probe.remove();
  const over = canvas.parentElement.querySelector('.u-over').getBoundingClientRect();
  const ratio = canvas.width / canvas.getBoundingClientRect().width;
  const left = Math.round((over.left - canvas.getBoundingClientRect().left + over.width * share) * ratio);
  const { data } = canvas.getContext('2d').getImageData(left, 0, 3, canvas.height);
  const wanted = `${[red, green, blue, 255]}`;
  return Array.from({ length: data.length / 4 }, (_, at) => `${data.slice(4 * at, 4 * at + 4)}`).includes(wanted);
}
"""
"""Is the first line of a chart drawn at this share of its width?"""


def test_live_charts_show_history_of_the_server_and_leave_gaps(world: BrowserWorld) -> None:
    page = world.log_in("ops")
    now = int(time.time() * 1000) // 2000 * 2000
    minutes = [*range(25, 15, -1), *range(10, 0, -1)]  # nothing was observed between 15 and 10 minutes ago
    at = [now - minute * 60_000 + second * 2000 for minute in minutes for second in range(30)]
    names = ("connections", "sessions", "accepted", "delivered", "acked", "room_deliveries", "room_messages")
    samples = {"at": at} | {name: [50 + 20 * each] * len(at) for each, name in enumerate((*names, *HOPS))}
    answers = iter([{"started_at": 1, "every_ms": 2000, "samples": samples}])
    nothing = {"started_at": 1, "every_ms": 2000, "samples": {name: [] for name in samples}}
    page.route("**/v1/admin/stats/history*", lambda route: route.fulfill(json=next(answers, nothing)))
    show(page, world.url, "live")
    expect(page.locator("canvas")).to_have_count(4)
    for chart in (0, 1, 3):
        drawn = [page.evaluate(COLOURED, [chart, share]) for share in (0.2, 0.5, 0.8)]
        assert drawn == [True, False, True], chart
    page.unroute("**/v1/admin/stats/history*")
    page.reload()
    show(page, world.url, "live")
    with page.expect_response("**/v1/admin/stats/history*") as answer:
        pass
    assert len(answer.value.json()["samples"]["at"]) >= 1, "the server has kept what was before this page"


def test_the_audit_shows_the_books_as_an_equation(world: BrowserWorld) -> None:
    world.act("alice", "send", to="bob", text="one more")
    page = world.log_in("ops")
    show(page, world.url, "audit")
    page.clock.install()
    page.get_by_role("button", name="Run the audit").click()
    expect(page.locator(".verdict.good")).to_contain_text("Balanced")
    expect(page.locator(".verdict.good")).to_contain_text("Finished just now")
    intended, *parts = (int(text.replace(",", "")) for text in page.locator(".term .value").all_inner_texts())
    assert intended == sum(parts) > 0
    expect(page.locator(".equation .sign").first).to_have_text("=")
    page.clock.run_for(7 * 60_000)
    expect(page.locator(".verdict.good")).to_contain_text("Finished 7 min ago")
    page.clock.run_for(53 * 60_000)
    expect(page.locator(".verdict.stale")).to_contain_text("This audit is out of date")
    expect(page.locator(".verdict.stale")).to_contain_text("Finished 60 min ago")
    expect(page.locator(".verdict.good")).to_have_count(0)


def test_books_that_do_not_balance_are_told_in_red_with_what_is_lost(world: BrowserWorld) -> None:
    page = world.log_in("ops")
    lost = {"message_id": "77", "user": "5", "platform": "web", "useq": 3, "reason": "not in the inbox"}
    row = {"message_id": "78", "group": "6", "reason": "not in the history"}
    report = {
        "accepted": 2, "intended": 4, "acked": 1, "waiting": 2, "expired": 0, "dead": 0, "resent": 0, "stored": 0,
        "cut": 9, "undecodable": 0, "histories": 8, "lost": [lost, row], "lost_count": 2, "duplicates": [],
        "duplicate_count": 0, "balanced": False,
    }  # fmt: skip
    page.route("**/v1/admin/audit*", lambda route: route.fulfill(json=report))
    show(page, world.url, "audit")
    page.get_by_role("button", name="Run the audit").click()
    expect(page.locator(".verdict.bad")).to_contain_text("2 lost")
    expect(page.locator(".equation .sign").first).to_have_text("≠")
    expect(page.get_by_role("row").filter(has_text="77")).to_contain_text("not in the inbox")
    expect(page.get_by_role("row").filter(has_text="78")).to_contain_text("history of group 6")


def test_every_page_speaks_both_languages_and_says_what_is_not_there_yet(world: BrowserWorld) -> None:
    page = world.log_in("ops", locale="zh-CN")
    for name in PAGES:
        show(page, world.url, name)
        shown = page.locator(".page").inner_text()
        assert re.search(r"[\u4e00-\u9fff]", shown), name
        assert not re.search(rf"\b{name.split('/')[0]}\.[a-z]+\b(?<!pixiu\.main)", shown), shown
    missing = page.evaluate("import('/i18n.js').then((module) => module.untranslated())")
    assert missing == []
    english = world.log_in("ops")
    show(english, world.url, "cluster")
    expect(english.locator(".empty")).to_contain_text("pixiu cluster up examples/cluster-3.toml")
    show(english, world.url, "pipeline")
    expect(english.locator(".empty")).to_contain_text("No charts yet")
    times = [1_400, 300_000, 12_000_000, 4 * 86_400_000 + 6 * 3_600_000]
    spoken = "(times) => import('/format.js').then(({ duration }) => times.map(duration))"
    assert english.evaluate(spoken, times) == ["1.4 s", "5 min", "3 h 20 min", "4 d 6 h"]
    assert page.evaluate(spoken, times) == ["1.4 秒", "5 分钟", "3 小时 20 分钟", "4 天 6 小时"]


def test_gateway_of_a_cluster_shows_the_map_and_the_leader_and_what_to_run_instead_of_the_pipeline(
    world: BrowserWorld,
) -> None:
    world.forgiven = ("404", "ERR_FAILED")
    context = world.context()
    context.route("**/console.json", lambda route: route.fulfill(json={"dev": True, "node": "g", "cluster": True}))
    refusal = {"code": "not_found", "message": "the pipeline is not available in a cluster; instead: pixiu pipeline"}
    context.route("**/v1/admin/pipeline*", lambda route: route.fulfill(status=404, json={"error": refusal}))

    def with_map(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, json={**answer.json(), "map": "http://127.0.0.1:8410/"})

    context.route("**/v1/admin/stats", with_map)
    context.route("**/pages/sessions.js", lambda route: route.abort())
    page = world.log_in("ops", context)
    for name, words in {"cluster": "pixiu cluster status", "pipeline": "nodes/shard-0-0"}.items():
        show(page, world.url, name)
        expect(page.locator(".empty")).to_contain_text("This server is part of a cluster")
        expect(page.locator(".empty")).to_contain_text(words)
        expect(page.get_by_role("button", name="Try again")).to_have_count(0)
        maps = page.locator(".empty a[href='http://127.0.0.1:8410/']")
        expect(maps).to_have_count(0 if name == "pipeline" else 1)
    show(page, world.url, "cluster")
    expect(page.get_by_role("heading", name="The leader of the shard")).to_be_visible()
    show(page, world.url, "live")
    expect(page.locator(".page")).to_contain_text("Connections")
    expect(page.locator(".page")).not_to_contain_text("part of a cluster")
    page.goto(f"{world.url}/#/sessions")
    expect(page.locator(".page")).to_contain_text("The server cannot be reached")


def a_map(gateway: str) -> dict[str, Any]:
    """A map of a small cluster: measured links, one that loses requests, a killed relay."""
    cluster, now = ClusterMap(), int(time.time() * 1000)
    names = "gateway-0-0 proxy-0-0 broker-0-0 broker-0-1 relay-0-0 shard-0-0 shard-0-1"
    folder: dict[str, tuple[dict[str, object], int]] = {}
    for number, name in enumerate(names.split()):
        role = name.partition("-")[0]
        said = {"name": name, "role": role, "partition": 0, "state": "Running", "address": "x:1", "admin": "x:2"}
        folder[f"{role}/partition0/{number:010}"] = ({**said, "node": gateway} if role == "gateway" else said, 0)
    folder["shard/partition0/ctl"] = ({"leader": "shard-0-0"}, 1)
    cluster.listed(folder, now)
    for path in (path for path in folder if path[-3:] != "ctl"):
        met = {"gateway": ["proxy-0-0"], "proxy": ["broker-0-0", "broker-0-1", "relay-0-0"], "broker": ["gateway-0-0"]}
        peers = [
            {"name": each, "role": each.partition("-")[0], "rtt_ms": 0.4, "success": 0.2 if each == "broker-0-1" else 1}
            for each in met.get(path.partition("/")[0], [])
        ]
        cluster.heard(path, now, "", peers, [], {})
    cluster.unheard("relay/partition0/0000000004", now, is_refused=True)
    return cluster.content(now)


@contextmanager
def map_server(content: dict[str, Any]) -> Iterator[str]:
    """The pages of a meta process, on a loop of their own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server = AdminServer(map_routes(lambda: content))
    host, port = asyncio.run_coroutine_threadsafe(server.start("127.0.0.1", 0), loop).result(10)
    try:
        yield f"http://{host}:{port}"
    finally:
        asyncio.run_coroutine_threadsafe(server.close(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


ENDS = """
() => [...document.querySelectorAll('#edges .edge')].map((edge) => {
  const frame = document.getElementById('edges').getBoundingClientRect();
  const near = (point, name) => {
    const box = document.querySelector(`.node[data-name="${name}"]`).getBoundingClientRect();
    const [x, y] = [point.x + frame.left, point.y + frame.top];
    return x >= box.left - 1 && x <= box.right + 1 && y >= box.top - 1 && y <= box.bottom + 1;
  };
  const { from, to } = edge.dataset;
  const ends = [edge.getPointAtLength(0), edge.getPointAtLength(edge.getTotalLength())];
  const fits = (near(ends[0], from) && near(ends[1], to)) || (near(ends[0], to) && near(ends[1], from));
  return [[from, to].sort().join(' '), edge.classList[1] ?? '', fits];
})
"""


@pytest.mark.feature("X31")
def test_the_map_has_the_consoles_look_and_navigation_and_real_edges(world: BrowserWorld) -> None:
    console = world.log_in("ops", color_scheme="dark")
    with map_server(a_map(f"127.0.0.1:{world.port}")) as url:
        page = world.tab(world.context(color_scheme="dark"))
        page.goto(url)
        expect(page.get_by_role("button", name="broker-0-0")).to_be_visible()
        looks = "getComputedStyle(document.body).backgroundColor + getComputedStyle(document.body).fontFamily"
        assert page.evaluate(looks) == console.evaluate(looks)
        links = "[...document.querySelectorAll('nav.rail a')].map((each) => each.innerText.trim())"
        assert page.evaluate(links) == console.evaluate(links)
        expect(page.get_by_role("link", name="Live")).to_have_attribute("href", f"{world.url}/#/live")
        expect(page.locator("#said")).to_contain_text("6 processes, 1 missing")
        expect(page.locator(".node.gone")).to_contain_text("relay-0-0")
        measured = {"gateway-0-0 proxy-0-0": "", "broker-0-0 proxy-0-0": "", "broker-0-1 proxy-0-0": "bad"}
        measured |= {"broker-0-0 gateway-0-0": "", "broker-0-1 gateway-0-0": ""}
        unmeasured = ("gateway-0-0 shard-0-0", "shard-0-0 shard-0-1")
        found = {name: (tone, fits) for name, tone, fits in page.evaluate(ENDS)}
        wanted = measured | dict.fromkeys(unmeasured, "unmeasured")
        assert found == {name: (tone, True) for name, tone in wanted.items()}
        page.get_by_role("button", name="shard-0-0").click()
        expect(page.locator(".edge.chosen")).to_have_count(2)
        page.get_by_role("button", name="Switch to Chinese").click()
        expect(page.get_by_role("heading", name="集群")).to_be_visible()
        page.get_by_role("button", name="切换到浅色").click()
        expect(page.locator("html")).to_have_attribute("data-theme", "light")
        page.set_viewport_size({"width": 360, "height": 780})
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_a_phone_in_light_and_dark(world: BrowserWorld, scheme: str) -> None:
    page = world.log_in("ops", viewport=PHONE, color_scheme=scheme)
    for name in PAGES:
        show(page, world.url, name)
        wide = page.evaluate(
            "[...document.querySelectorAll('.page, .page .card, .page-head, .page-head *')]"
            ".filter((each) => each.getBoundingClientRect().right > innerWidth + 1).map((each) => each.className)"
        )
        assert wide == [], (name, wide)
    assert page.evaluate("document.documentElement.dataset.theme") == scheme


def test_admin_pages_are_hidden_without_an_admin_token(world: BrowserWorld, tmp_path: Path) -> None:
    plain = BrowserWorld(tmp_path / "data", world._browser, ())
    plain.start()
    keys = Keyring(plain.data, SystemClock())
    keys.create("EdDSA")
    tokens = Tokens(keys, SystemClock(), SecuritySettings())
    try:
        admin = {"Authorization": f"Bearer {tokens.issue(Identity('ops', is_admin=True))}"}
        asked = {"user": "alice", "name": "alice"}
        # A running server looks for new keys once a second.
        wait_for(
            lambda: httpx.post(f"{plain.url}/v1/actions/create_user", json=asked, headers=admin).status_code == 200,
            what="the new key to be known", timeout_s=20,
        )  # fmt: skip
        for is_admin in (False, True):
            page = plain.tab(plain.context())
            page.goto(plain.url)
            page.locator("textarea[name=token]").fill(tokens.issue(Identity("alice", is_admin=is_admin)))
            page.locator("button[type=submit]").click()
            expect(page.locator(".list")).to_be_visible()
            expect(page.locator("nav.rail a")).to_have_count(8 if is_admin else 1)
            for name in ("live", "topics", "dead-letters", "sessions", "audit", "cluster", "pipeline"):
                page.goto(f"{plain.url}/#/{name}")  # an old bookmark: no request is made, so none is refused
                expect(page.locator(".page h1")).to_be_visible()
                expect(page.locator(".page .spinner")).to_have_count(0)
                told = page.locator(".empty").filter(has_text="pixiu token NAME --admin")
                expect(told).to_have_count(0 if is_admin else 1)
        plain.close_windows()
    finally:
        plain.stop()
        plain.close()
