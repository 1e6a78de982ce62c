"""The console around its pages: logging in, languages, colours, keyboard, a phone; under its policy."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.browser.world import BrowserWorld, open_world

PAGES = ("live", "topics", "dead-letters", "sessions", "audit", "cluster", "pipeline")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserWorld]:
    with open_world(tmp_path_factory.mktemp("console"), "--dev") as world:
        for other in ("bo", "cy", "di"):
            world.act("al", "contact", user=other)
            world.act(other, "send", to="al", text=f"from {other}")
        yield world


@pytest.fixture
def world(shared: BrowserWorld) -> Iterator[BrowserWorld]:
    yield shared
    shared.close_windows()


def has_no_sideways_scroll(page: Page) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"))


def test_who_one_is_stays_with_the_window(world: BrowserWorld) -> None:
    page = world.log_in("al")
    expect(page.locator(".me")).to_contain_text("al")
    page.reload()
    expect(page.locator(".me")).to_contain_text("al")
    other = world.tab(page.context)
    other.goto(world.url)
    expect(other.get_by_label("Your name")).to_be_focused()
    page.get_by_role("button", name="Log out (al)").click()
    expect(page.get_by_label("Your name")).to_be_visible()
    page.reload()
    expect(page.get_by_label("Your name")).to_be_visible()


def test_logging_in_with_a_token(world: BrowserWorld) -> None:
    world.forgiven = ("401",)
    page = world.tab(world.context())
    page.goto(world.url)
    page.get_by_role("button", name="Log in with a token instead").click()
    page.get_by_label("Token").fill("nonsense")
    page.get_by_role("button", name="Log in", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("not one of ours")
    token = httpx.post(f"{world.url}/v1/dev/token", json={"user": "al", "admin": True}).json()["token"]
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Log in", exact=True).click()
    expect(page.locator(".me")).to_contain_text("al")


def test_a_kick_is_told_and_not_undone_by_itself(world: BrowserWorld) -> None:
    page = world.log_in("al")
    token = httpx.post(f"{world.url}/v1/dev/token", json={"user": "root", "admin": True}).json()["token"]
    asked = {"user": "al", "reason": "maintenance"}
    httpx.post(f"{world.url}/v1/admin/kick", json=asked, headers={"Authorization": f"Bearer {token}"})
    expect(page.locator(".banner")).to_contain_text("maintenance")
    page.get_by_role("button", name="Log in again").click()
    expect(page.get_by_label("Your name")).to_be_visible()


def test_what_the_system_says_and_what_is_pushed_is_shown(world: BrowserWorld) -> None:
    page = world.log_in("eva")
    token = httpx.post(f"{world.url}/v1/dev/token", json={"user": "root", "admin": True}).json()["token"]
    admin = {"Authorization": f"Bearer {token}"}
    said = httpx.post(f"{world.url}/v1/actions/system", json={"to": "eva", "text": "maintenance at 9"}, headers=admin)
    assert said.status_code == 200, said.text
    pushed = {"uids": ["eva"], "msg_bodies": ["a push"], "msg_options": 7}
    assert httpx.post(f"{world.url}/v1/push", json=pushed, headers=admin).status_code == 200
    page.locator(".list nav a", has_text="Pixiu").click()
    expect(page.locator(".bubble .words")).to_have_text("maintenance at 9")
    expect(page.get_by_label("Write a message")).to_have_count(0)
    page.locator("[data-key='u:root']").click()
    expect(page.locator(".bubble .words")).to_have_text("a push")


def test_every_page_opens(world: BrowserWorld) -> None:
    page = world.log_in("al")
    for name in PAGES:
        page.locator(f".rail a[href='#/{name}']").click()
        expect(page.locator(f".rail a[href='#/{name}']")).to_have_attribute("aria-current", "page")
        expect(page.locator("main h1")).to_be_visible()
    page.goto(f"{world.url}/#/nothing-of-ours")
    expect(page.locator(".rail a[href='#/chat']")).to_have_attribute("aria-current", "page")


def test_the_policy_is_enforced_and_its_breaches_would_be_noticed(world: BrowserWorld) -> None:
    page = world.log_in("al")
    assert world.complaints == []
    page.evaluate(
        """() => {
          const script = document.createElement('script');
          script.textContent = 'window.broken = true';
          document.head.append(script);
          document.body.insertAdjacentHTML('beforeend', '<p id="styled" style="color: rgb(1, 2, 3)">x</p>');
          return fetch('https://pixiu.invalid/').catch(() => null);
        }"""
    )
    assert page.evaluate("window.broken") is None
    assert page.evaluate("getComputedStyle(document.getElementById('styled')).color") != "rgb(1, 2, 3)"
    for directive in ("script-src", "style-src", "connect-src"):
        assert any(f"CSP {directive}" in each for each in world.complaints), world.complaints
    world.complaints.clear()


def test_chinese_is_complete_and_remembered(world: BrowserWorld) -> None:
    page = world.log_in("al")
    for name in PAGES:  # each brings its words
        page.locator(f".rail a[href='#/{name}']").click()
        expect(page.locator("main h1")).to_be_visible()
    assert page.evaluate("import('/i18n.js').then((words) => words.untranslated())") == []
    page.locator(".rail a[href='#/chat']").click()
    page.get_by_role("button", name="Switch to Chinese").click()
    expect(page.get_by_role("heading", name="聊天")).to_be_visible()
    expect(page.locator("html")).to_have_attribute("lang", "zh-CN")
    page.reload()
    expect(page.get_by_role("button", name="新会话").first).to_be_visible()
    page.locator("[data-key='u:bo']").click()
    expect(page.get_by_label("写消息")).to_be_visible()
    refused = "import('/i18n.js').then((words) => words.why({ code: 'forbidden', message: 'only the owner may' }))"
    assert page.evaluate(refused) == "没有权限（only the owner may）", (
        "the kind of a refusal is told in the reader's language"
    )
    page.get_by_role("button", name="切换到英文").click()
    expect(page.get_by_role("heading", name="Chats")).to_be_visible()
    chinese = world.tab(world.context(locale="zh-CN"))
    chinese.goto(world.url)
    expect(chinese.get_by_role("heading", name="欢迎使用貔貅")).to_be_visible()


def test_dark_follows_the_system_until_one_chooses(world: BrowserWorld) -> None:
    page = world.log_in("al", color_scheme="dark")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.emulate_media(color_scheme="light")
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    page.get_by_role("button", name="Switch to dark colours").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert sum(int(each) for each in background[4:-1].split(",")) < 120


def test_the_keyboard_is_enough(world: BrowserWorld) -> None:
    page = world.log_in("al")
    expect(page.locator("[data-key]")).to_have_count(3)
    page.locator("body").press("/")
    search = page.get_by_label("Search")
    expect(search).to_be_focused()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    second = page.locator("[data-key]").nth(1)
    expect(second).to_be_focused()
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    box = page.get_by_label("Write a message")
    expect(box).to_be_focused()
    page.keyboard.type("by keyboard")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("alone")
    page.keyboard.press("Enter")
    expect(page.locator(".said:not(.pending) .words").last).to_have_text("by keyboard\nalone")
    page.keyboard.press("ArrowUp")
    expect(page.locator(".bubble").last).to_be_focused()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("r")
    expect(page.locator(".replying")).to_contain_text("Reply to")
    page.keyboard.press("Escape")
    expect(page.locator(".replying")).to_have_count(0)
    page.keyboard.press("Escape")
    expect(page.locator("[data-key]").first).to_be_focused()
    expect(page).to_have_url(f"{world.url}/#/chat")


def test_search_finds_names_and_says_that_messages_are_not_searched(world: BrowserWorld) -> None:
    page = world.log_in("al")
    page.get_by_label("Search").fill("BO")
    expect(page.locator("[data-key]")).to_have_count(1)
    expect(page.locator(".nothing")).to_contain_text("no index of messages")
    page.get_by_label("Search").fill("nobody")
    expect(page.get_by_text("Nothing found for “nobody”")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("[data-key]")).to_have_count(3)


@pytest.mark.parametrize("width", [360, 390])
def test_a_phone_shows_one_thing_at_a_time(world: BrowserWorld, width: int) -> None:
    page = world.log_in("al", viewport={"width": width, "height": 740}, has_touch=True, is_mobile=True)
    assert has_no_sideways_scroll(page)
    page.locator("[data-key='u:cy']").tap()
    expect(page.locator(".list")).to_be_hidden()
    text = f"a-word-without-any-end-{'x' * 200}-{width}"
    page.get_by_label("Write a message").fill(text)
    page.get_by_role("button", name="Send", exact=True).tap()
    expect(page.locator(".said:not(.pending) .words").last).to_have_text(text)
    assert has_no_sideways_scroll(page)
    page.get_by_role("button", name="Back to the list").tap()
    expect(page.locator(".list")).to_be_visible()
    page.get_by_role("button", name="Open the menu").tap()
    page.locator(".rail a[href='#/topics']").tap()
    expect(page.locator("main h1")).to_be_visible()
    expect(page.locator(".rail")).not_to_be_in_viewport()
    assert has_no_sideways_scroll(page)


def test_a_server_without_dev_asks_for_a_token_and_makes_none(world: BrowserWorld, tmp_path: Path) -> None:
    plain = world.another(tmp_path / "data")
    plain.start()
    try:
        assert httpx.get(f"{plain.url}/console.json").json()["dev"] is False
        refused = httpx.post(f"{plain.url}/v1/dev/token", json={"user": "al"})
        assert (refused.status_code, json.loads(refused.content)["error"]["code"]) == (404, "not_found")
        page = plain.tab(plain.context())
        page.goto(plain.url)
        expect(page.get_by_label("Token")).to_be_visible()
        expect(page.get_by_text("instead")).to_have_count(0)
        plain.close_windows()
    finally:
        plain.stop()
        plain.close()
