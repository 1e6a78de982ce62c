"""Catching up: seed 004's cases, the own inbox, and what a thousand reconnects cost."""

from math import ceil
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pixiu.im.draft import Answer
from pixiu.model.errors import RequestError, TooLarge
from tests.im.world import DAY_MS, World, ids, messages, texts, unlimited


def say(world: World, count: int, *, frm: str = "bob", to: str = "alice") -> list[str]:
    return [str(world.do(frm, "send", to=to, text=str(each))["message_id"]) for each in range(count)]


def gsay(world: World, count: int, *, group: str = "tea", frm: str = "alice") -> list[str]:
    return [str(world.do(frm, "gsend", group=group, text=str(each))["message_id"]) for each in range(count)]


def gaps(answer: Answer) -> list[Answer]:
    found = answer["gaps"]
    assert isinstance(found, list)
    return found


@pytest.mark.feature("B15")
def test_a_private_gap_of_less_than_a_day_is_closed_forward_in_few_requests() -> None:
    world = World(unlimited(page_max=4))
    have = say(world, 3)
    world.pass_time(DAY_MS - 1)
    missed = say(world, 10)
    last, found, requests = have[-1], list[str](), 0
    for _ in range(10):
        answer = world.do("alice", "sync", {"with": {"bob": last}})
        requests += 1
        assert gaps(answer) == []
        found += ids(answer)
        last = found[-1]
        if not answer["has_more"]:
            break
    assert found == missed
    assert requests <= ceil(len(missed) / 4) + 1


@pytest.mark.feature("B16")
def test_a_private_gap_of_a_day_or_more_begins_with_the_newest_page_and_tells_what_lies_between() -> None:
    world = World(unlimited(page_max=4))
    have = say(world, 3)
    world.pass_time(DAY_MS)
    missed = say(world, 10)
    answer = world.do("alice", "sync", {"with": {"bob": have[-1]}})
    assert ids(answer) == missed[:5:-1]
    assert gaps(answer) == [{"with": "bob", "after": have[-1], "before": missed[6]}]
    assert close(world, gaps(answer)[0]) == missed[5::-1]


@pytest.mark.feature("B16")
def test_a_new_device_gets_the_newest_page_first() -> None:
    world = World(unlimited(page_max=4))
    sent = say(world, 6)
    answer = world.do("alice", "sync", {"with": "bob"})
    assert ids(answer) == sent[:1:-1]
    assert gaps(answer) == [{"with": "bob", "after": "0", "before": sent[2]}]
    assert world.do("alice", "sync", {"with": "bob", "last": "0"})["gaps"] == gaps(answer)
    assert close(world, gaps(answer)[0]) == [sent[1], sent[0]]


@pytest.mark.feature("B16", "B17")
def test_a_page_that_reaches_the_last_id_or_the_first_message_leaves_no_gap() -> None:
    world = World(unlimited(page_max=6))
    have = say(world, 2)
    world.do("alice", "create_group", group="tea", members=["bob"])
    inside = gsay(world, 2)
    world.pass_time(2 * DAY_MS)
    assert ids(world.do("alice", "sync", {"with": {"bob": 0}})) == have[::-1]
    assert gaps(world.do("alice", "sync", {"with": {"bob": 0}})) == []
    missed, minside = say(world, 6), gsay(world, 6)
    answer = world.do("alice", "sync", {"with": {"bob": have[-1]}})
    assert (ids(answer), gaps(answer)) == (missed[::-1], [])
    answer = world.do("alice", "sync", group={"tea": inside[-1]})
    assert (ids(answer), gaps(answer)) == (minside[::-1], [])


@pytest.mark.feature("B17")
def test_a_group_always_begins_with_the_newest_page_and_tells_the_gap() -> None:
    world = World(unlimited(page_max=4))
    world.do("alice", "create_group", group="tea", members=["bob"])
    have = gsay(world, 3)
    missed = gsay(world, 9)
    answer = world.do("bob", "sync", group={"tea": have[-1]})
    assert ids(answer) == missed[:4:-1]
    gap = gaps(answer)[0]
    assert gaps(answer) == [{"group": "tea", "after": have[-1], "before": missed[5]}]
    # A page that crosses the gap's end closes it.
    assert close(world, gap, user="bob") == missed[4::-1]


def close(world: World, gap: Answer, user: str = "alice") -> list[str]:
    """Close a gap with pages of history, as a client does."""
    place: Answer = {name: gap[name] for name in ("with", "group") if name in gap}
    found: list[str] = []
    before = gap["before"]
    for _ in range(100):
        page = world.do(user, "history", {**place, "before": before, "after": gap["after"]})
        found += ids(page)
        before = page["min"]
        if not page["has_more"]:
            return found
    raise AssertionError("the gap does not close")


@pytest.mark.feature("B15", "B16", "B17")
@settings(max_examples=40)
@given(
    had=st.integers(0, 8), missed=st.integers(0, 12), away_ms=st.sampled_from([0, DAY_MS - 1, DAY_MS, 30 * DAY_MS]),
    page_max=st.integers(1, 7), is_group=st.booleans(),
)  # fmt: skip
def test_whatever_was_missed_sync_and_closing_its_gaps_gives_all_of_it_once(
    had: int, missed: int, away_ms: int, page_max: int, is_group: bool
) -> None:
    world = World(unlimited(page_max=page_max))
    world.do("alice", "create_group", group="tea", members=["bob"])
    have = gsay(world, had) if is_group else say(world, had)
    world.pass_time(away_ms)
    expected = gsay(world, missed) if is_group else say(world, missed)
    place = "group" if is_group else "with"
    name = "tea" if is_group else "bob"
    user = "bob" if is_group else "alice"
    notice = str(world.stores.groups.get(world.proxy.context.directory.group("tea")).number)  # type: ignore[union-attr]
    last = have[-1] if have else notice if is_group else "0"
    found: list[str] = []
    for _ in range(20):
        answer = world.do(user, "sync", {place: {name: last}})
        found += ids(answer)
        for gap in gaps(answer):
            found += close(world, gap, user)
        if not answer["has_more"]:
            break
        last = max(found, key=int)
    assert sorted(found, key=int) == expected
    assert len(set(found)) == len(found)


@pytest.mark.feature("B15", "B17")
def test_several_conversations_share_one_page() -> None:
    world = World(unlimited(page_max=4))
    world.do("alice", "create_group", group="tea", members=["bob"])
    inside = gsay(world, 3)
    say(world, 3)
    say(world, 3, frm="carol")
    answer = world.do("alice", "sync", {"with": {"bob": 0, "carol": 0}, "group": {"tea": inside[0]}})
    assert len(messages(answer)) == 3
    assert [gap.get("with") or gap.get("group") for gap in gaps(answer)] == ["bob", "carol", "tea"]
    with pytest.raises(TooLarge, match="4 conversations at a time, not 5"):
        world.do("alice", "sync", {"with": {"bob": 0, "carol": 0, "dave": 0}, "group": {"tea": 0, "coffee": 0}})


class Counting:
    """A store that counts what it is asked."""

    def __init__(self, store: object) -> None:
        self._store = store
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        self.calls += 1
        return getattr(self._store, name)


@pytest.mark.feature("B11")
def test_group_sync_with_a_warm_cache_reads_no_timeline_and_no_body() -> None:
    world = World()
    world.do("alice", "create_group", group="tea", members=["bob"])
    sent = gsay(world, 20)
    world.do("alice", "sync", group={"tea": 0})
    bob = world.actor("bob")
    timelines, bodies = Counting(world.stores.timelines), Counting(world.stores.bodies)
    world.stores.timelines, world.stores.bodies = timelines, bodies
    answer = world.ask(bob, "sync", {"group": {"tea": sent[3]}})
    assert ids(answer) == sent[:3:-1]
    assert (timelines.calls, bodies.calls) == (0, 0)


@pytest.mark.feature("B23")
def test_a_thousand_members_who_reconnect_at_once_cost_one_read() -> None:
    world = World(unlimited(group_inbox_limit=10))
    names = [f"{each}" for each in range(1, 1001)]
    world.do("owner", "create_group", group="tea", members=names)
    sent = gsay(world, 150, frm="owner")
    actors = [world.actor(name) for name in names]
    timelines = Counting(world.stores.timelines)
    world.stores.timelines = timelines
    before = world.proxy.context.counts.group_reads
    answers = [world.begin(actor, "sync", {"group": {"tea": sent[9]}}) for actor in actors]
    assert world.proxy.context.counts.group_reads == before + 1
    assert timelines.calls == 1
    for answer in answers:
        assert isinstance(answer[0], dict)
        assert ids(answer[0]) == sent[:49:-1]


@pytest.mark.feature("X49")
def test_a_page_deeper_than_the_cache_is_read_from_the_timeline() -> None:
    world = World(unlimited(page_max=2000))
    world.do("alice", "create_group", group="tea")
    sent = gsay(world, 1100)
    answer = world.do("alice", "sync", group={"tea": sent[0]})
    assert ids(answer) == sent[:0:-1]
    assert gaps(answer) == []
    assert ids(world.do("alice", "sync", group={"tea": sent[500]})) == sent[:500:-1]


@pytest.mark.feature("B12")
def test_private_messages_are_in_no_cache() -> None:
    world = World()
    recent = Counting(world.stores.recent)
    world.stores.recent = recent
    say(world, 3)
    world.do("alice", "history", {"with": "bob"})
    world.do("alice", "sync", {"with": {"bob": 0}})
    assert recent.calls == 0


@pytest.mark.feature("B22")
def test_who_never_asks_still_finds_everything_in_the_inbox() -> None:
    world = World()
    world.actor("alice")
    sent = say(world, 3)
    assert [each["message_id"] for each in world.inbox("alice")] == sent


@pytest.mark.feature("R15")
def test_receive_from_a_cursor_yields_exactly_the_later_entries() -> None:
    world = World(unlimited(page_max=3))
    alice = world.actor("alice")
    sent = say(world, 5)
    first = world.ask(alice, "receive", {})
    assert (ids(first), first["has_more"]) == (sent[:3], True)
    second = world.ask(alice, "receive", {"start": first["cursor"]})
    assert (ids(second), second["has_more"]) == (sent[3:], False)
    again = world.ask(alice, "receive", {"start": second["cursor"]})
    assert (ids(again), again["cursor"]) == ([], second["cursor"])
    more = say(world, 1)
    assert ids(world.ask(alice, "sync", {"cursor": second["cursor"]})) == more


@pytest.mark.feature("R15")
def test_entries_whose_body_is_gone_are_skipped_and_the_cursor_goes_on() -> None:
    world = World(unlimited(page_max=2))
    alice = world.actor("alice")
    sent = say(world, 4)
    for each in sent[:3]:
        world.stores.bodies.release(int(each), world.stores.bodies.references(int(each)))
    first = world.ask(alice, "receive", {})
    assert (ids(first), first["cursor"], first["has_more"]) == ([], "2", True)
    second = world.ask(alice, "receive", {"start": first["cursor"]})
    assert (ids(second), second["cursor"]) == ([sent[3]], "4")


def test_a_cursor_below_what_another_session_acked_is_told_the_gap() -> None:
    world = World()
    alice = world.actor("alice")
    sent = say(world, 5)
    world.stores.inboxes.ack(alice.user, "web", 3)
    answer = world.ask(alice, "sync", {"cursor": "1"})
    assert ids(answer) == sent[3:]
    assert answer["trimmed"] is True
    assert gaps(answer) == [{"inbox": "web", "after": "1", "before": "4", "trimmed": True}]
    assert "trimmed" not in world.ask(alice, "sync", {"cursor": "3"})
    assert ids(world.ask(alice, "sync", {})) == sent[3:]


def test_a_cursor_of_another_life_is_refused() -> None:
    world = World()
    say(world, 2)
    for action, name in (("sync", "cursor"), ("receive", "start")):
        with pytest.raises(RequestError, match=f"{name} 9 is not of this inbox: its newest is 2"):
            world.do("alice", action, {name: 9})


def test_sync_by_conversation_gives_a_cursor_that_loses_nothing() -> None:
    world = World()
    alice = world.actor("alice")
    say(world, 3)
    assert world.ask(alice, "sync", {"with": {"bob": 0}})["cursor"] == "0"
    world.stores.inboxes.ack(alice.user, "web", 2)
    assert world.ask(alice, "sync", {"with": {"bob": 0}})["cursor"] == "2"
    assert world.ask(alice._replace(platform=""), "sync", {"with": {"bob": 0}})["cursor"] is None
    with pytest.raises(RequestError, match="no platform"):
        world.ask(alice._replace(platform=""), "sync", {})


@pytest.mark.feature("B17")
def test_what_retention_removed_is_said_to_be_trimmed() -> None:
    world = World()
    world.do("alice", "create_group", group="tea")
    inside, private = gsay(world, 6), say(world, 6)
    world.stores.timelines.drop_group(world.proxy.context.directory.group("tea"), through=int(inside[3]))
    world.stores.timelines.drop_private(world.number("alice"), through=int(private[3]))
    group = world.do("alice", "sync", group={"tea": inside[1]})
    assert texts(group) == ["5", "4"]
    assert group["trimmed"] is True
    assert gaps(group) == [{"group": "tea", "after": inside[1], "before": inside[4], "trimmed": True}]
    near = world.do("alice", "sync", {"with": {"bob": private[1]}})
    assert texts(near) == ["4", "5"]
    assert near["trimmed"] is True
    world.pass_time(2 * DAY_MS)
    far = world.do("alice", "sync", {"with": {"bob": private[1]}})
    assert texts(far) == ["5", "4"]
    assert gaps(far) == [{"with": "bob", "after": private[1], "before": private[4], "trimmed": True}]
    assert "trimmed" not in world.do("alice", "sync", {"with": {"bob": private[4]}})
    assert "trimmed" not in world.do("alice", "sync", group={"tea": inside[4]})


def test_a_group_of_which_nothing_is_left_says_so() -> None:
    world = World()
    world.do("alice", "create_group", group="tea")
    inside = gsay(world, 2)
    group = world.proxy.context.directory.group("tea")
    world.stores.timelines.drop_group(group, through=int(inside[-1]))
    answer = world.do("alice", "sync", group={"tea": 0})
    assert messages(answer) == []
    assert answer["trimmed"] is True
