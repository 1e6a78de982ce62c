"""Searching in a real browser: a few results beside the list, a page of them, and the way to the message itself."""

from collections.abc import Iterator

import pytest

pytest.importorskip("tantivy")

from playwright.sync_api import expect

from pixiu.pipeline.lake.local import fill_lake
from tests.browser.world import BrowserWorld, open_world
from tests.pipeline.search_child import feed
from tests.servers import wait_for

pytestmark = pytest.mark.feature("B03")

OTHERS = 115


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserWorld]:
    with open_world(tmp_path_factory.mktemp("search"), "--dev", "--set", "inbox.offline_max=20") as world:
        for user in ("al", "bo", "cy"):
            world.act(user, "create_user", user=user)
        world.act("bo", "create_group", group="team", members=["al"])
        for number in range(OTHERS):
            text = "🍜🍜 明天午饭 <b>吃什么</b> tomorrow" if number == 5 else f"word {number}"
            world.act("bo", "gsend", group="team", text=text)
        world.act("cy", "send", to="bo", text="明天午饭 is not for al")
        world.act("al", "send", to="cy", text="我明天不来")
        fill_lake(world.data)
        feed(world.data)
        yield world


@pytest.fixture
def world(shared: BrowserWorld) -> Iterator[BrowserWorld]:
    yield shared
    shared.close_windows()


def test_a_message_of_long_ago_is_found_and_opened_in_its_place(world: BrowserWorld) -> None:
    page = world.log_in("al")
    page.get_by_label("Search").fill("明天")
    hits = page.locator("[data-hit]")
    expect(hits).to_have_count(2)
    expect(page.locator(".list .nothing")).to_have_count(0)
    expect(hits.first).to_contain_text("我明天不来")
    expect(hits.nth(1).locator("mark")).to_have_text("明天")
    expect(hits.nth(1)).to_contain_text("<b>吃什么</b>")
    hits.nth(1).click()
    target = page.locator(".said.target")
    expect(target).to_contain_text("吃什么")
    expect(target).to_be_in_viewport()
    expect(page.locator(".thread .head .name")).to_have_text("team")
    expect(page.get_by_text("word 3", exact=True)).to_be_attached()
    expect(page.get_by_text(f"word {OTHERS - 1}", exact=True)).to_be_attached()
    # What lies between is a gap, and can be loaded; two, if some of it was pushed before the thread was opened.
    expect(page.locator(".messages .gap:not(.first)").first).to_be_attached()
    page.get_by_role("button", name="Load more").first.click()
    expect(page.get_by_text("word 60", exact=True)).to_be_attached()
    page.get_by_label("Search").fill("qqqq")
    expect(page.locator(".list .nothing")).to_have_text("Nothing found for “qqqq”")


def test_the_page_of_results_pages_orders_and_tells_what_is_wrong(world: BrowserWorld) -> None:
    world.forgiven = ("400",)
    page = world.log_in("al")
    page.get_by_label("Search").fill("word in:team from:bo")
    page.keyboard.press("Enter")
    hits = page.locator(".hits [data-hit]")
    expect(hits).to_have_count(30)
    expect(hits.first).to_contain_text(f"word {OTHERS - 1}")
    page.get_by_role("button", name="More").click()
    expect(hits).to_have_count(60)
    box = page.get_by_role("searchbox", name="Search messages")
    box.fill("word 7 in:team")
    page.keyboard.press("Enter")
    expect(hits).to_have_count(1)
    expect(hits.locator("mark")).to_have_count(2)
    page.get_by_label("Order").select_option("relevance")
    expect(hits).to_have_count(1)
    box.fill("nothing-like-this")
    page.keyboard.press("Enter")
    expect(page.get_by_text("No messages found.")).to_be_visible()
    box.fill("word in:nowhere")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("nowhere")
    page.get_by_role("button", name="Switch to Chinese").click()
    expect(page.get_by_role("searchbox", name="搜索消息")).to_be_visible()
    assert page.evaluate("import('/i18n.js').then((module) => module.untranslated())") == []


def test_who_owns_a_group_says_what_members_read_of_it(world: BrowserWorld) -> None:
    page = world.log_in("bo")
    page.locator("[data-key='g:team']").click()
    page.get_by_role("button", name="Details", exact=True).click()
    choice = page.locator("select[name=history]")
    expect(choice).to_have_value("all")
    choice.select_option("since_join")
    wait_for(lambda: world.act("al", "group", group="team")["history"] == "since_join", what="the server to know")
    other = world.log_in("al")
    other.locator("[data-key='g:team']").click()
    expect(other.locator(".notice-line", has_text="bo changed what members read")).to_be_attached()
