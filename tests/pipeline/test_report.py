"""The report: numbers that fit the tables, a page that needs nothing but itself."""

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("duckdb")

from pixiu.model.errors import NotFound
from pixiu.pipeline.lake.local import fill_lake
from pixiu.pipeline.query import query_duckdb
from pixiu.pipeline.report.gather import POINTS, gather, steps_of
from pixiu.pipeline.report.page import report_page
from pixiu.pipeline.report.text import report_text
from pixiu.pipeline.source.journal import JournalFolder
from tests.pipeline.lakes import MINUTE, make_marts
from tests.pipeline.logs import talk, with_node


async def talk_here(node: Any) -> None:
    await talk(node)
    await node.create_group("alice", "<b>&amp;", members=["bob"])


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "data"
    with_node(path, talk_here)
    fill_lake(path)
    _, users = query_duckdb(path, "SELECT user_id FROM users ORDER BY user_id")
    _, ((group,),) = query_duckdb(path, "SELECT max(group_id) FROM chat_groups")
    make_marts(path, users=[user for (user,) in users], group=group, through=JournalFolder(path).end().event_id)
    return path


@pytest.fixture(scope="module")
def report(data: Path) -> dict[str, Any]:
    return gather(data)


def test_usage_has_days_people_and_who_came_back(report: dict[str, Any]) -> None:
    usage = report["usage"]
    assert (report["lag"], usage["users"]) == (0, 4)
    assert [(day["day"], day["active"], day["new"], day["returning"], day["messages"]) for day in usage["days"]] == [
        ("2026-11-14", 2, 2, 0, 20), ("2026-11-15", 4, 2, 2, 60),
    ]  # fmt: skip
    assert (usage["active_day"], usage["active_week"], usage["active_month"]) == (4, 4, 4)
    assert usage["months"] == [{"month": "2026-11", "active": 4}]
    assert usage["kinds"] == [{"kind": "text", "messages": 60}, {"kind": "image", "messages": 20}]
    assert usage["platforms"] == [{"platform": "ios", "users": 4, "acked": 80}]
    assert usage["retention"] == [
        {"after_days": 0, "users": 4, "share": 1.0}, {"after_days": 1, "users": 2, "share": 1.0}
    ]  # fmt: skip


def test_latency_has_percentiles_and_the_share_in_time(report: dict[str, Any]) -> None:
    ack, write = report["latency"]["hops"]
    told = (ack["hop"], ack["messages"], ack["share_in_time"], ack["p99"], ack["max_ms"])
    assert told == ("ack", 1000, 0.9, 400, 400)
    assert (write["p50"], write["p99"], write["share_in_time"]) == (49, 98, 1.0)
    assert len(report["latency"]["minutes"]) == len(report["latency"]["series"][0]["p99"]) == 10


def test_heat_has_conversations_by_name_and_kind_and_a_map(report: dict[str, Any]) -> None:
    heat = report["heat"]
    assert heat["minutes"][0] == MINUTE.timestamp() * 1000
    assert [(room["messages"], room["peak_per_minute"]) for room in heat["conversations"]] == [(55, 10), (22, 10)]
    assert [each["kind"] for each in heat["conversations"]] == ["group", "private"]
    assert heat["map"][0]["messages"] == list(range(1, 11))
    assert heat["map"][1]["messages"] == [1, 0, 0, 4, 0, 0, 7, 0, 0, 10]
    assert heat["conversations"][0]["name"] == "<b>&amp;"
    assert " ↔ " in heat["conversations"][1]["name"]
    assert sum(heat["messages"]) == 77
    assert heat["skew"] == round(55 * 2 / 77, 2)


def test_the_audit_is_told_with_its_sums(report: dict[str, Any]) -> None:
    audit = report["audit"]
    assert (audit["intended"], audit["acked"], audit["waiting"], audit["balanced"]) == (80, 72, 8, True)
    assert (audit["inboxes"], audit["findings"]) == (4, [])


def test_the_text_says_it_all(report: dict[str, Any]) -> None:
    text = report_text(report)
    for words in ("4 on the last day", "day 1: 100.0 %", "ack", "400 ms", "90.0 %", " ↔ dave", "busiest of 2"):
        assert words in text
    assert "balanced: intended 80 = acked 72 + waiting 8 + expired 0 + dead 0" in text


class Outward(HTMLParser):
    """Finds what a page would ask of others, or run."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.svgs = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.svgs += tag == "svg"
        self.found += [tag] if tag in ("script", "link", "img", "iframe", "object", "b") else []
        self.found += [name for name, _ in attrs if name in ("src", "href", "xlink:href") or name.startswith("on")]


def test_the_page_is_one_file_that_asks_nobody(report: dict[str, Any]) -> None:
    page = report_page(report)
    outward = Outward()
    outward.feed(page)
    assert outward.found == []  # a group's name is a text, whatever it looks like
    assert outward.svgs == 11
    assert not re.search(r"https?://|url\(|@import", page)
    assert "prefers-color-scheme: dark" in page
    assert "balanced: intended 80" in page


def test_a_lake_that_is_not_there_and_one_that_is_empty(tmp_path: Path) -> None:
    with_node(tmp_path / "data", lambda node: node.create_user("alice"))
    with pytest.raises(NotFound, match="pixiu pipeline run --once"):
        gather(tmp_path / "data")
    fill_lake(tmp_path / "data")
    found = gather(tmp_path / "data")
    assert not found["usage"]["days"] and not found["latency"]["links"] and not found["heat"]["conversations"]
    assert found["audit"] is None
    assert "no audit yet" in report_text(found)
    assert "No messages yet." in report_page(found)


@pytest.mark.parametrize(("minutes", "step"), [(1, 1), (240, 1), (241, 2), (1440, 6), (10_000, 6)])
def test_a_chart_has_a_bounded_number_of_points(minutes: int, step: int) -> None:
    last = 1_794_744_000_000
    found = steps_of(last - (minutes - 1) * 60_000, last)
    assert found is not None
    begin, step_ms, count = found
    assert step_ms == step * 60_000
    assert count <= POINTS + 1
    assert begin <= max(last - (minutes - 1) * 60_000, last - 24 * 3_600_000 + 60_000)
    assert begin + (count - 1) * step_ms <= last < begin + count * step_ms
