"""What members read of a group: all of it, or what was said since they joined."""

import pytest

from pixiu.im.draft import Actor
from pixiu.model.errors import NotAllowed, RequestError
from tests.im.world import World, messages, texts, unlimited

pytestmark = pytest.mark.feature("R09", "B09", "B17")


def spoken(world: World, user: str, **params: object) -> list[object]:
    """The texts of a group's history, notices left out."""
    return [text for text in texts(world.do(user, "history", {"group": "tea", **params})) if text]


def a_group(**params: object) -> World:
    world = World()
    world.do("alice", "create_group", {"group": "tea", "members": ["bob"], **params})
    for number in range(4):
        world.do("alice", "gsend", group="tea", text=str(number))
    world.do("carol", "join", group="tea")
    for number in range(4, 7):
        world.do("alice", "gsend", group="tea", text=str(number))
    return world


def test_who_joins_later_reads_all_unless_the_group_says_otherwise() -> None:
    world = a_group()
    assert world.do("carol", "group", group="tea")["history"] == "all"
    assert spoken(world, "carol") == ["6", "5", "4", "3", "2", "1", "0"]


def test_since_join_hides_what_came_before_from_every_way_of_reading() -> None:
    world = a_group(history="since_join")
    assert world.do("carol", "group", group="tea")["history"] == "since_join"
    assert spoken(world, "bob") == ["6", "5", "4", "3", "2", "1", "0"], "who was there from the start reads all"
    assert spoken(world, "carol") == ["6", "5", "4"]
    page = world.do("carol", "history", group="tea", limit=2)
    assert (texts(page), page["has_more"]) == (["6", "5"], True)
    rest = world.do("carol", "history", group="tea", before=page["min"])
    assert [each.get("text") or each["fields"]["action"] for each in messages(rest)] == ["4", "join"]  # type: ignore[index]
    assert (rest["has_more"], rest.get("trimmed")) == (False, None), "nothing says that there is more"
    forward = world.do("carol", "history", group="tea", after=1, limit=100)
    assert [text for text in texts(forward) if text] == ["4", "5", "6"]
    assert texts(world.do("carol", "history", group="tea", after=1, before=rest["min"])) == []
    caught_up = world.do("carol", "sync", group={"tea": "0"})
    assert [text for text in texts(caught_up) if text] == ["6", "5", "4"]
    assert (caught_up["gaps"], caught_up.get("trimmed")) == ([], None)


def test_only_the_newest_stay_counts_and_who_has_quit_reads_nothing() -> None:
    world = a_group(history="since_join")
    world.do("carol", "quit", group="tea")
    with pytest.raises(NotAllowed):
        spoken(world, "carol")
    world.do("alice", "gsend", group="tea", text="7")
    world.do("alice", "manage", group="tea", user="carol", op="invite")
    world.do("alice", "gsend", group="tea", text="8")
    assert spoken(world, "carol") == ["8"]
    assert spoken(world, "bob") == [str(number) for number in range(8, -1, -1)]


def test_the_owner_changes_it_for_those_who_are_there() -> None:
    world = a_group()
    with pytest.raises(NotAllowed, match="only the owner"):
        world.do("bob", "manage", group="tea", op="history", history="since_join")
    with pytest.raises(NotAllowed):
        world.do("dave", "manage", group="tea", op="history", history="since_join")
    world.do("alice", "manage", group="tea", op="history", history="since_join")
    assert spoken(world, "carol") == ["6", "5", "4"]
    records = len(world.log.records)
    world.do("alice", "manage", group="tea", op="history", history="since_join")
    assert len(world.log.records) == records, "it is so already"
    notice = messages(world.do("bob", "history", group="tea", limit=1))[0]
    assert (notice["kind"], notice["fields"]) == ("system", {"action": "history", "group": "tea"})
    world.do("alice", "manage", group="tea", op="history", history="all")
    assert spoken(world, "carol") == ["6", "5", "4", "3", "2", "1", "0"]


def test_a_group_that_grows_large_keeps_it() -> None:
    world = World(unlimited(group_inbox_limit=2))
    world.do("alice", "create_group", group="tea", members=["bob"], history="since_join")
    world.do("alice", "gsend", group="tea", text="before")
    world.do("carol", "join", group="tea")
    world.do("alice", "gsend", group="tea", text="after")
    shown = world.do("carol", "group", group="tea")
    assert (shown["is_large"], shown["history"]) == (True, "since_join")
    assert spoken(world, "carol") == ["after"]
    world.do("alice", "manage", group="tea", op="history", history="all")
    assert world.do("carol", "group", group="tea")["is_large"] is True
    assert spoken(world, "carol") == ["after", "before"]


@pytest.mark.parametrize(
    ("action", "params", "words"),
    [
        ("create_group", {"group": "x", "history": "none"}, "history must be one of all, since_join"),
        ("create_group", {"group": "x", "history": 1}, "history must be one of all, since_join"),
        ("manage", {"group": "tea", "op": "history"}, "history is missing"),
        ("manage", {"group": "tea", "op": "history", "history": "some"}, "history must be one of"),
        ("manage", {"group": "tea", "op": "history", "history": "all", "user": "bob"}, "takes no user"),
        ("manage", {"group": "tea", "op": "mute", "user": "bob", "history": "all"}, "goes with op 'history'"),
        ("manage", {"group": "tea", "op": "mute"}, "user is missing"),
    ],
)
def test_refusals(action: str, params: dict[str, object], words: str) -> None:
    with pytest.raises(RequestError, match=words):
        a_group().do("alice", action, params)


def test_an_admin_of_the_server_is_no_member() -> None:
    world = a_group(history="since_join")
    with pytest.raises(NotAllowed):
        world.ask(Actor(0, is_admin=True), "history", {"group": "tea"})
