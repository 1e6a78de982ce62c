"""Every list answer is bounded in bytes, however much a user or others have stored."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pixiu.api import admin
from pixiu.backends.embedded.keyvalue import RocksKeyValue
from pixiu.backends.embedded.stores import EmbeddedStores
from pixiu.config import MessagingSettings, Settings
from pixiu.im import VERBS
from pixiu.im.contacts import contacts
from pixiu.im.context import Context
from pixiu.im.draft import Actor
from pixiu.model.conversation import Direct
from pixiu.model.errors import RateLimited
from pixiu.model.group import Group, Member, Role
from pixiu.model.user import Profile
from pixiu.ports.stores import Lane
from pixiu.runtime.clock import SystemClock
from tests.api.world import World, open_world
from tests.im.world import World as MemoryWorld

PAGE = 4_096
TEXT = "\u0001" * 250
"""Each character takes six bytes in JSON."""
MEMBERS = 60
MESSAGES = 25

LISTS: dict[str, dict[str, object]] = {
    "contacts": {},
    "scheduled": {},
    "group": {"group": "team"},
    "history": {"with": "bob"},
    "receive": {},
    "sync": {"with": {"bob": "0"}, "group": {"team": "0", "other": "0"}},
}
"""Every reading verb with a list in its answer. ``search`` needs an index: see tests/im/test_search.py."""

SINGLE = {"user", "search"}
"""Reading verbs without a list, and the one that is tested elsewhere."""

ADMIN_LISTS = ("/v1/admin/scheduled", "/v1/admin/topics", "/v1/admin/sessions", "/v1/admin/dead-letters")


@asynccontextmanager
async def filled(path: Path) -> AsyncIterator[World]:
    settings = Settings(messaging=MessagingSettings(sends_per_second=0, page_bytes_max=PAGE))
    async with open_world(path, settings=settings, creates_users=True) as world:
        node, later = world.node, int(time.time() * 1000) + 3_600_000
        await (await node.connect("alice")).leave()  # from now on there is an inbox
        members = [f"member-{each}-{'x' * 40}" for each in range(MEMBERS)]
        await node.act("bob", "create_group", group="team", members=["alice", *members])
        await node.act("bob", "create_group", group="other", members=["alice"], avatar="y" * 2_000)
        await node.act("alice", "create_group", group="closed", needs_approval=True)
        for each in range(MEMBERS):
            await node.act("alice", "contact", user=members[each])
        for each in range(MESSAGES):
            await node.act("bob", "send", to="alice", text=TEXT)
            await node.act("bob", "gsend", group="team", text=TEXT)
            await node.act("bob", "gsend", group="other", text=TEXT)
            await node.act("alice", "schedule", to="bob", text=TEXT, at=later + each)
            await node.act(members[each], "join", group="closed")
        yield world


async def test_every_list_answer_is_bounded_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reading = {name for name, verb in VERBS.items() if not verb.is_changing}
    assert reading == LISTS.keys() | SINGLE, "add a new reading verb here, with what bounds its answer"
    monkeypatch.setattr(admin, "PAGE_BYTES_MAX", 1_024)
    async with filled(tmp_path) as world:
        for action, params in LISTS.items():
            answer = await world.act("alice", action, params)
            assert answer.status_code == 200, answer.text
            assert len(answer.content) < PAGE + 1_024, action
            assert answer.json().get("has_more") or answer.json().get("gaps"), action
        for path in ADMIN_LISTS:
            answer = await world.get(f"{path}?limit=1000", admin=True)
            assert answer.status_code == 200 and len(answer.content) < 1_024 + 512, path
        assert (await world.get("/v1/admin/scheduled?limit=1000", admin=True)).json()["has_more"]


async def test_pages_lead_to_every_request_to_join_a_group(tmp_path: Path) -> None:
    settings = Settings(messaging=MessagingSettings(sends_per_second=0, page_bytes_max=PAGE))
    async with open_world(tmp_path, settings=settings, creates_users=True) as world:
        asking = {f"asking-{each}-{'x' * 40}" for each in range(MEMBERS)}
        await world.node.act("alice", "create_group", group="closed", needs_approval=True)
        for each in asking:
            await world.node.act(each, "join", group="closed")
        blocked = min(asking)
        await world.node.act("alice", "block", user=blocked)
        for more in ({}, {"limit": 7}):
            answer = await world.act("alice", "group", {"group": "closed", **more})
            assert [each["user"] for each in answer.json()["members"]] == ["alice"]
            seen: list[str] = []
            while True:
                assert len(answer.content) < PAGE + 1_024
                page = answer.json()
                assert len(page["requests"]) <= more.get("limit", 1_000)
                seen += [each["user"] for each in page["requests"]]
                if page["requests_cursor"] is None:
                    break
                params = {"group": "closed", "requests_cursor": page["requests_cursor"], **more}
                answer = await world.act("alice", "group", params)
                assert "members" not in answer.json(), "a page of requests holds requests alone"
            assert len(seen) == len(set(seen)) and set(seen) == asking - {blocked}
        for user, params, status in (
            (min(asking), {"requests_cursor": "1"}, 403),
            ("alice", {"requests_cursor": "x"}, 400),
            ("alice", {"requests_cursor": "1", "cursor": "1"}, 400),
        ):
            answer = await world.act(user, "group", {"group": "closed", **params})
            assert answer.status_code == status, answer.text


async def test_pages_lead_to_every_invitation(tmp_path: Path) -> None:
    messaging = MessagingSettings(sends_per_second=0, page_bytes_max=PAGE, group_invites="consent")
    async with open_world(tmp_path, settings=Settings(messaging=messaging), creates_users=True) as world:
        for each in range(20):
            await world.node.act("alice", "contact", user=f"friend-{each}")
            await world.node.act("bob", "create_group", group=f"g{each}", members=["alice"], avatar="y" * 1_000)
        await world.node.act("bob", "send", to="alice", text="hi")
        for limit in (1_000, 3):
            groups: list[str] = []
            people: list[str] = []
            cursor: str | None = None
            while True:
                answer = await world.act("alice", "contacts", {"limit": limit} | ({"cursor": cursor} if cursor else {}))
                page = answer.json()
                assert len(answer.content) < PAGE + 1_024
                people += [each["user"] for each in (*page["contacts"], *page["others"])]
                groups += [each["group"] for each in page.get("invitations", ())]
                cursor = page["cursor"]
                if not page["has_more"]:
                    break
            assert people == [*(f"friend-{each}" for each in range(20)), "0", "bob"]
            assert groups == [f"g{each}" for each in range(20)], "oldest first, each once"


@pytest.mark.parametrize("limit", [1, 7, 99, 100, 1_000])
def test_pages_of_contacts_hold_every_row_once_and_in_order(limit: int) -> None:
    world = MemoryWorld()
    me, stores = world.number("me"), world.stores
    people = {world.number(f"friend-{each}"): f"friend-{each}" for each in range(150)}
    strangers = [f"stranger-{each}" for each in range(120)]
    for at, number in enumerate(people):
        stores.contacts.link(me, number, at // 3)
        stores.unread.add(me, Direct(number), at + 1)
    for at in range(120):
        group = 10 + at
        stores.groups.put(Group(group, f"g{at}", "", "", me))
        stores.groups.put_member(group, Member(me, Role.MEMBER, at + 1, at // 2))
        stores.unread.add(me, Direct(world.number(strangers[at])), 1_000 + at)
    shown: list[tuple[int, str]] = []
    others: list[object] = []
    cursor: object = None
    while True:
        page: dict[str, Any] = world.do("me", "contacts", cursor=cursor, limit=limit)
        assert len(page["contacts"]) + len(page["others"]) <= limit
        shown += [(each["at"], each.get("user") or each["group"]) for each in page["contacts"]]
        others += [each["user"] for each in page["others"]]
        cursor = page["cursor"]
        if not page["has_more"]:
            break
    assert [each[0] for each in shown] == sorted(each[0] for each in shown)
    names = [each[1] for each in shown]
    assert len(names) == len(set(names)) == 270 and {*people.values(), *(f"g{each}" for each in range(120))} == {*names}
    assert sorted(others, key=str) == sorted(strangers) and len(others) == 120


def test_a_page_of_contacts_costs_what_it_holds_however_long_the_list_is(tmp_path: Path) -> None:
    def ms_of_one_row(size: int) -> float:
        stores = EmbeddedStores(RocksKeyValue(tmp_path / str(size)))
        context, me = Context(stores, SystemClock(), MessagingSettings()), Actor(2**50)
        for each in range(size):
            number = 2**50 + 1 + each
            stores.users.put(Profile(number, f"user-{each}", ""))
            stores.contacts.link(me.user, number, each)
            stores.unread.add(me.user, Direct(number), each + 1)
            stores.groups.put(Group(number, f"group-{each}", "", "", me.user))
            if each < 1_000:
                stores.groups.put_member(number, Member(me.user, Role.MEMBER, 1, each))
        stores.commit(dict.fromkeys(Lane, 1))
        cursor = contacts(context, me, {"limit": size // 2})["cursor"]
        times: list[float] = []
        for _ in range(30):
            begun = time.perf_counter()
            assert len(contacts(context, me, {"limit": 1, "cursor": cursor})["contacts"]) == 1  # type: ignore[arg-type]
            times.append((time.perf_counter() - begun) * 1000)
        stores.close()
        return min(times)

    assert ms_of_one_row(5_000) < 1 + 5 * ms_of_one_row(10)


def test_rows_of_contacts_count_in_the_rate_of_reads() -> None:
    world = MemoryWorld(MessagingSettings(sends_per_second=10, send_burst=20))
    me = world.actor("me")
    for each in range(500):
        world.stores.contacts.link(me.user, world.number(f"friend-{each}"), each)

    def pages_at_once(limit: int) -> int:
        for count in range(1_000):
            answer = world.begin(me, "contacts", {"limit": limit})
            world.settle()
            if isinstance(answer[0], RateLimited):
                world.pass_time(60_000)
                return count
        raise AssertionError

    # The burst of reads is 200: 3 for each page, 10 for its 500 rows, and 10 once, when the list was not in memory.
    assert pages_at_once(1_000) == 15
    assert pages_at_once(1) == 66


async def test_pages_cut_by_bytes_lead_to_every_message(tmp_path: Path) -> None:
    async with filled(tmp_path) as world:
        for where in ({"with": "bob"}, {"group": "team"}):
            seen: list[str] = []
            page = (await world.act("alice", "history", where)).json()
            while True:
                seen += [each["message_id"] for each in page["messages"] if each["kind"] == "text"]
                if not page["has_more"]:
                    break
                page = (await world.act("alice", "history", {**where, "before": page["min"]})).json()
            assert len(seen) == len(set(seen)) == MESSAGES
        got: list[str] = []
        start: dict[str, object] = {}
        while True:
            page = (await world.act("alice", "receive", start)).json()
            got += [each["message_id"] for each in page["messages"] if "text" in each]
            if not page["has_more"]:
                break
            start = {"start": page["cursor"]}
        assert len(got) == len(set(got)) and len(got) == 3 * MESSAGES


async def test_sync_tells_of_a_gap_for_every_conversation_that_had_no_room(tmp_path: Path) -> None:
    async with filled(tmp_path) as world:
        page = (await world.act("alice", "sync", LISTS["sync"])).json()
        covered = {each.get("with") or each.get("group") for each in page["gaps"]}
        assert covered == {"bob", "team", "other"}
        for gap in page["gaps"]:
            where = {name: gap[name] for name in ("with", "group") if name in gap}
            seen = [
                each for each in page["messages"]
                if each.get("group") == gap.get("group") and (each.get("group") or each.get("from") == "bob")
            ]  # fmt: skip
            before = gap["before"]
            while True:
                rest = (await world.act("alice", "history", {**where, "before": before, "after": gap["after"]})).json()
                seen += rest["messages"]
                if not rest["has_more"]:
                    break
                before = rest["min"]
            ids = [each["message_id"] for each in seen if each.get("kind") == "text"]
            assert len(ids) == len(set(ids)) == MESSAGES, gap


async def test_fields_are_bounded_together(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        fields = {f"f{each}": "x" * 4_000 for each in range(17)}
        answer = await world.act("alice", "send", {"to": "bob", "text": "x", "fields": fields})
        assert answer.status_code == 413 and "65536 bytes together" in answer.text
        fields.popitem()
        assert (await world.act("alice", "send", {"to": "bob", "text": "x", "fields": fields})).status_code == 200
