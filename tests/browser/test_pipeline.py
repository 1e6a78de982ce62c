"""The pipeline's pages in a real browser, over tables that were made without Spark."""

import re
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

pytest.importorskip("duckdb")

from pixiu.pipeline.lake.local import fill_lake
from pixiu.pipeline.query import query_duckdb
from pixiu.pipeline.source.journal import JournalFolder
from tests.browser.world import BrowserWorld, open_world
from tests.pipeline.lakes import make_marts


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserWorld]:
    with open_world(tmp_path_factory.mktemp("pipeline"), "--dev") as world:
        for user in ("alice", "bob", "carol"):
            world.act(user, "send", to="dave", text="hello")
        world.act("alice", "create_group", group="tea", name="下午茶 <b>", members=["bob"])
        yield world


@pytest.fixture
def world(shared: BrowserWorld) -> Iterator[BrowserWorld]:
    yield shared
    shared.close_windows()


def fill(world: BrowserWorld) -> None:
    """A lake of what was said so far, with marts and an audit that are made up."""
    fill_lake(world.data)
    _, users = query_duckdb(world.data, "SELECT user_id FROM users ORDER BY user_id")
    _, ((group,),) = query_duckdb(world.data, "SELECT max(group_id) FROM chat_groups")
    end = JournalFolder(world.data).end().event_id
    make_marts(world.data, users=[user for (user,) in users], group=group, through=end, findings=True)


def show(page: Page, world: BrowserWorld, tab: str = "") -> None:
    page.goto(f"{world.url}/#/pipeline{tab and '/'}{tab}")
    expect(page.locator(".page h1")).to_have_text(re.compile("Pipeline|流水线"))
    expect(page.locator(".page .spinner")).to_have_count(0, timeout=30_000)


def test_charts_appear_with_the_tables_in_both_languages(world: BrowserWorld) -> None:
    page = world.log_in("ops")
    show(page, world)
    expect(page.locator(".pipeline-state")).to_contain_text("Off")
    expect(page.locator(".pipeline-state")).to_contain_text("pixiu pipeline run --once")
    expect(page.get_by_text("No charts yet")).to_be_visible()
    fill(world)
    page.reload()
    show(page, world)
    expect(page.locator(".stat").first).to_contain_text("Active, last day")
    expect(page.locator("svg.bars")).to_have_count(6)
    expect(page.locator("figure.chart canvas")).to_have_count(1)
    page.get_by_role("tab", name="Latency").click()
    expect(page).to_have_url(re.compile(r"#/pipeline/latency$"))
    expect(page.get_by_role("row").filter(has_text="ios")).to_contain_text("90 %")
    page.get_by_role("tab", name="Heat").click()
    expect(page.locator("svg.heat .hot")).to_have_count(14)
    expect(page.get_by_role("row").filter(has_text="下午茶 <b>")).to_contain_text("55")
    expect(page.get_by_role("row").filter(has_text="下午茶 <b>")).to_contain_text("group")
    expect(page.get_by_role("row").filter(has_text=" ↔ ")).to_contain_text("private chat")
    expect(page.locator(".page")).not_to_contain_text(re.compile("rooms?", re.IGNORECASE))
    page.get_by_role("tab", name="Audit").click()
    expect(page.locator(".verdict.bad")).to_contain_text("Not balanced")
    expect(page.locator(".verdict.bad")).to_contain_text(re.compile(r"through event \d"))
    expect(page.locator(".verdict.bad")).to_contain_text(re.compile(r"Finished (just now|\d+ s ago)"))
    expect(page.get_by_role("row").filter(has_text="not in the inbox")).to_contain_text("909776103973847040")
    page.get_by_role("tab", name="Tables").click()
    expect(page.get_by_role("row").filter(has_text="messages")).to_be_visible()
    page.get_by_role("button", name="Switch to Chinese").click()
    expect(page.get_by_role("tab", name="热度")).to_be_visible()
    expect(page.locator(".pipeline-state")).to_contain_text("已关闭")
    untranslated = page.evaluate("import('/i18n.js').then((module) => module.untranslated())")
    assert untranslated == []


def test_old_audit_is_not_green_and_axes_of_counts_are_whole(world: BrowserWorld) -> None:
    fill(world)
    page = world.log_in("ops")
    with page.expect_response("**/v1/admin/pipeline/report") as answer:
        show(page, world)
    report = answer.value.json()
    report["usage"]["days"] = [{"day": "2026-11-16", "new": 3, "returning": 247, "active": 250, "messages": 3}]
    report["audit"] |= {"balanced": True, "findings": [], "at": time.time() * 1000 - 3 * 3_600_000, "through": "1"}
    page.route("**/v1/admin/pipeline/report", lambda route: route.fulfill(json=report))
    page.reload()
    show(page, world)
    for chart in ("Active people by day", "Messages by day", "People by platform"):
        labels = page.get_by_label(chart).first.locator("text[text-anchor=end]").all_text_contents()
        assert len(labels) > 1 and not any("." in label for label in labels), (chart, labels)
        assert len(set(labels)) == len(labels), (chart, labels)
    page.get_by_role("tab", name="Audit").click()
    expect(page.locator(".verdict.stale")).to_contain_text("Finished 3 h ago")
    expect(page.locator(".verdict.good")).to_have_count(0)
    report["audit"] |= {"at": time.time() * 1000}
    page.reload()
    show(page, world, "audit")
    expect(page.locator(".verdict.good")).to_contain_text("Finished just now")
    report["audit"] |= {"at": None}
    page.reload()
    show(page, world, "audit")
    expect(page.locator(".verdict.stale")).to_contain_text("at an unknown time")


def test_it_fits_a_phone_in_the_dark(world: BrowserWorld) -> None:
    fill(world)
    page = world.log_in("ops", viewport={"width": 360, "height": 780}, color_scheme="dark")
    for tab in ("usage", "latency", "heat", "audit", "tables"):
        show(page, world, tab)
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, tab
