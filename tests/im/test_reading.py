"""History in all its directions, read marks and receipts."""

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pixiu.im.draft import Answer, Params
from pixiu.model.errors import NotAllowed, NotFound, RequestError, TooLarge
from tests.im.world import World, ids, messages, texts, unlimited


@pytest.mark.feature("R13")
def test_private_history_is_one_conversation_newest_first_and_at_most_a_page() -> None:
    world = World(unlimited(page_max=5))
    for each in range(4):
        world.do("alice", "send", to="bob", text=f"to bob {each}")
        world.do("carol", "send", to="alice", text=f"from carol {each}")
        world.do("bob", "send", to="alice", text=f"from bob {each}")
    page = world.do("alice", "history", {"with": "bob"}, limit=100)
    assert texts(page) == ["from bob 3", "to bob 3", "from bob 2", "to bob 2", "from bob 1"]
    assert page["has_more"] is True
    assert (page["min"], page["max"]) == (ids(page)[-1], ids(page)[0])
    rest = world.do("alice", "history", {"with": "bob"}, before=page["min"])
    assert texts(rest) == ["to bob 1", "from bob 0", "to bob 0"]
    assert rest["has_more"] is False


@pytest.mark.feature("R14", "B09")
def test_group_history_is_read_in_both_directions() -> None:
    world = World(unlimited(page_max=4))
    world.do("alice", "create_group", group="tea")
    sent = [str(world.do("alice", "gsend", group="tea", text=str(each))["message_id"]) for each in range(9)]
    newest = world.do("alice", "history", group="tea")
    assert ids(newest) == sent[:4:-1]
    older = world.do("alice", "history", group="tea", before=newest["min"])
    assert ids(older) == sent[4:0:-1]
    forward = world.do("alice", "history", group="tea", after=sent[2])
    assert ids(forward) == sent[3:7]
    assert (forward["min"], forward["max"]) == (sent[3], sent[6])
    between = world.do("alice", "history", group="tea", after=sent[2], before=sent[5])
    assert ids(between) == [sent[4], sent[3]]
    assert between["has_more"] is False
    between = world.do("alice", "history", group="tea", after=sent[2], before=sent[5], direction="forward")
    assert ids(between) == [sent[3], sent[4]]


def test_history_without_a_conversation_is_all_private_ones() -> None:
    world = World()
    world.do("alice", "send", to="bob", text="one")
    world.do("carol", "send", to="alice", text="two")
    world.do("bob", "send", to="carol", text="not for alice")
    assert world.texts("alice") == ["two", "one"]


def test_an_empty_page_has_no_bounds() -> None:
    world = World()
    world.number("bob")
    assert world.do("alice", "history", {"with": "bob"}) == {
        "messages": [], "has_more": False, "min": None, "max": None,
    }  # fmt: skip


def pages(
    world: World, place: Params, *, direction: str, after: int, before: int | None, limit: int
) -> Iterator[Answer]:
    """Page through a range until the server says that there is no more."""
    for _ in range(100):
        params: Params = {**place, "direction": direction, "after": after, "limit": limit}
        if before is not None:
            params["before"] = before
        page = world.do("alice", "history", params)
        yield page
        if not page["has_more"]:
            return
        if direction == "forward":
            after = int(str(page["max"]))
        else:
            before = int(str(page["min"]))
    raise AssertionError("no end")


@pytest.fixture(scope="module")
def talk() -> tuple[World, list[int], list[int]]:
    """Twelve private and twelve group messages among others."""
    world = World()
    world.do("alice", "create_group", group="tea", members=["bob"])
    private, group = [], []
    for each in range(12):
        world.pass_time(each % 3)
        said = world.do("alice" if each % 2 else "bob", "send", to="bob" if each % 2 else "alice", text="x")
        private.append(int(str(said["message_id"])))
        group.append(int(str(world.do("bob", "gsend", group="tea", text="x")["message_id"])))
        world.do("alice", "send", to="carol", text="apart")
    return world, private, group


@pytest.mark.feature("B08", "B09")
@settings(max_examples=60)
@given(
    is_group=st.booleans(), direction=st.sampled_from(["forward", "backward"]), first=st.integers(-1, 12),
    last=st.one_of(st.none(), st.integers(0, 13)), limit=st.integers(1, 14),
)  # fmt: skip
def test_any_range_in_any_direction_is_covered_without_holes_or_repeats(
    talk: tuple[World, list[int], list[int]],
    is_group: bool,
    direction: str,
    first: int,
    last: int | None,
    limit: int,
) -> None:
    world, private, group = talk
    sent = group if is_group else private
    marks = [sent[0] - 1, *sent, sent[-1] + 1, sent[-1] + 2]
    after = 0 if first < 0 else marks[first]
    before = None if last is None else marks[last]
    if is_group and after < sent[0]:
        after = sent[0] - 1  # behind the notices
    place: Params = {"group": "tea"} if is_group else {"with": "bob"}
    found = [
        int(each)
        for page in pages(world, place, direction=direction, after=after, before=before, limit=limit)
        for each in ids(page)
    ]
    expected = [each for each in sent if each > after and (before is None or each < before)]
    assert found == (expected if direction == "forward" else expected[::-1])


@pytest.mark.feature("R11")
def test_read_sets_one_counter_to_zero_and_only_that_and_counters_survive_a_new_session() -> None:
    world = World()
    world.do("alice", "create_group", group="tea", members=["dave"])
    for name in ("bob", "carol"):
        world.do("alice", "contact", user=name)
        for _ in range(3):
            world.do(name, "send", to="alice", text="x")
    world.do("dave", "gsend", group="tea", text="x")
    assert world.unread("alice") == {"tea": 1, "bob": 3, "carol": 3}
    assert world.do("alice", "read", {"with": "bob"}) == {"unread": 0}
    assert world.unread("alice") == {"tea": 1, "bob": 0, "carol": 3}
    assert world.do("alice", "read", group="tea") == {"unread": 0}
    other = world.ask(world.actor("alice", "mobile"), "contacts", {})
    assert [row["unread"] for row in other["contacts"]] == [0, 0, 3]  # type: ignore[attr-defined]


@pytest.mark.feature("R11")
def test_read_through_a_message_leaves_what_came_after_it() -> None:
    world = World()
    sent = [world.do("bob", "send", to="alice", text=str(each))["message_id"] for each in range(4)]
    assert world.do("alice", "read", {"with": "bob"}, through=sent[1]) == {"unread": 2}
    assert world.do("alice", "read", {"with": "bob"}, through=sent[0]) == {"unread": 2}
    assert world.do("alice", "read", {"with": "bob"}, through=sent[3]) == {"unread": 0}


def test_read_needs_a_conversation() -> None:
    world = World()
    with pytest.raises(RequestError, match="with or group is missing"):
        world.do("alice", "read")
    with pytest.raises(RequestError, match="not both"):
        world.do("alice", "read", {"with": "bob", "group": "tea"})


def receipts(world: World, message_id: object, user: str = "bob", peer: str = "alice") -> tuple[object, object]:
    shown = {each["message_id"]: each for each in messages(world.do(user, "history", {"with": peer}))}
    return shown[message_id].get("delivered_at"), shown[message_id].get("read_at")


@pytest.mark.feature("B06")
def test_receipts_are_noted_in_the_senders_row_once() -> None:
    world = World()
    sent = world.do("bob", "send", to="alice", text="x")["message_id"]
    delivered_at = world.clock.now_ms()
    assert world.do("alice", "receipt", message_ids=[sent], kind="delivered") == {"marked": 1}
    world.pass_time(50)
    read_at = world.clock.now_ms()
    assert world.do("alice", "receipt", message_ids=[sent], kind="read") == {"marked": 1}
    world.pass_time(50)
    before = len(world.records())
    assert world.do("alice", "receipt", message_ids=[sent, sent], kind="both") == {"marked": 0}
    assert len(world.records()) == before
    assert receipts(world, sent) == (delivered_at, read_at)
    assert receipts(world, sent, "alice", "bob") == (None, None)


@pytest.mark.feature("B06")
def test_one_batch_tells_several_senders() -> None:
    world = World()
    sent = [world.do(name, "send", to="alice", text="x")["message_id"] for name in ("bob", "carol", "bob")]
    assert world.do("alice", "receipt", message_ids=sent, kind="both") == {"marked": 3}
    now = world.clock.now_ms()
    assert receipts(world, sent[0]) == receipts(world, sent[2]) == (now, now)
    assert receipts(world, sent[1], "carol") == (now, now)


@pytest.mark.feature("B06")
def test_only_the_receiver_can_tell() -> None:
    world = World()
    mine = world.do("alice", "send", to="bob", text="x")["message_id"]
    theirs = world.do("bob", "send", to="carol", text="x")["message_id"]
    good = world.do("bob", "send", to="alice", text="x")["message_id"]
    before = len(world.records())
    with pytest.raises(NotAllowed, match="your own"):
        world.do("alice", "receipt", message_ids=[good, mine], kind="read")
    with pytest.raises(NotFound, match="no private message"):
        world.do("alice", "receipt", message_ids=[good, theirs], kind="read")
    with pytest.raises(TooLarge, match="1000 ids, not 1001"):
        world.do("alice", "receipt", message_ids=list(range(1, 1002)), kind="read")
    assert len(world.records()) == before
    assert receipts(world, good) == (None, None)


def test_a_message_whose_body_is_gone_is_shown_as_missing() -> None:
    world = World()
    world.do("alice", "create_group", group="tea")
    private = int(str(world.do("alice", "send", to="bob", text="x")["message_id"]))
    group = int(str(world.do("alice", "gsend", group="tea", text="x")["message_id"]))
    for each in (private, group):
        world.stores.bodies.release(each, world.stores.bodies.references(each))
    shown = messages(world.do("alice", "history", {"with": "bob"}))[0]
    assert shown["missing"] is True
    assert (shown["from"], shown["to"]) == ("alice", "bob")
    shown = messages(world.do("alice", "history", group="tea"))[0]
    assert shown["missing"] is True
    assert shown["group"] == "tea"
    assert not world.stores.recent.is_warm(world.proxy.context.directory.group("tea"))


def test_trimmed_group_history_says_so() -> None:
    world = World()
    world.do("alice", "create_group", group="tea")
    sent = [int(str(world.do("alice", "gsend", group="tea", text=str(each))["message_id"])) for each in range(6)]
    group = world.proxy.context.directory.group("tea")
    assert "trimmed" not in world.do("alice", "history", group="tea")
    world.stores.timelines.drop_group(group, through=sent[2])
    page = world.do("alice", "history", group="tea", before=sent[5])
    assert ids(page) == [str(sent[4]), str(sent[3])]
    assert page["trimmed"] is True
    assert world.do("alice", "history", group="tea", after=sent[0])["trimmed"] is True
    assert "trimmed" not in world.do("alice", "history", group="tea", after=sent[2])
