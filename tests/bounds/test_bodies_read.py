"""How many bytes of messages one request makes the server read, whatever others have sent."""

from typing import Any

import pytest

from pixiu.im.pages import WARM_BYTES_MAX, WARM_PAGE
from pixiu.im.schedules import SCHEDULED_BYTES_MAX
from pixiu.model.errors import TooLarge
from tests.im.world import World, messages

LARGE = "x" * 65_000


def count_bytes(world: World, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the bodies that are read from now on."""
    sizes: list[int] = []
    get = world.stores.bodies.get

    def counted(message_ids: Any) -> dict[int, bytes]:
        found = get(message_ids)
        sizes.extend(map(len, found.values()))
        return found

    monkeypatch.setattr(world.stores.bodies, "get", counted)
    return sizes


def test_newest_page_of_a_cold_group_reads_a_bounded_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    alice = world.actor("alice")
    world.ask(alice, "create_group", {"group": "g"})
    for each in range(200):
        world.ask(alice, "gsend", {"group": "g", "text": f"{each} {LARGE}"})
    world.stores.recent.drop(world.proxy.context.directory.group("g"))
    sizes = count_bytes(world, monkeypatch)
    page = world.ask(alice, "history", {"group": "g", "limit": 2})
    assert [str(each["text"]).split()[0] for each in messages(page)] == ["199", "198"] and page["has_more"]
    assert sum(sizes) <= WARM_BYTES_MAX + WARM_PAGE * 66_000
    del sizes[:]
    assert messages(world.ask(alice, "history", {"group": "g", "limit": 2})) == messages(page)
    assert sizes == [], "what was warmed is kept"
    older = world.ask(alice, "history", {"group": "g", "limit": 100})
    assert [str(each["text"]).split()[0] for each in messages(older)] == ["199", "198", "197", "196"]


def test_read_that_leaves_much_unread_looks_at_a_bounded_number_of_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    alice, bob = world.actor("alice"), world.actor("bob")
    ids = [world.ask(alice, "send", {"to": "bob", "text": str(each)})["message_id"] for each in range(1_500)]
    sizes = count_bytes(world, monkeypatch)
    assert world.ask(bob, "read", {"with": "alice", "through": ids[9]}) == {"unread": 1_500}
    assert len(sizes) <= 1_000
    assert world.ask(bob, "read", {"with": "alice", "through": ids[1_099]}) == {"unread": 400}
    assert world.ask(bob, "read", {"with": "alice"}) == {"unread": 0}


def test_read_looks_at_a_bounded_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    alice, bob = world.actor("alice"), world.actor("bob")
    world.ask(alice, "create_group", {"group": "g", "members": ["bob"]})
    for _ in range(300):
        world.ask(alice, "gsend", {"group": "g", "text": LARGE})
    sizes = count_bytes(world, monkeypatch)
    assert world.ask(bob, "read", {"group": "g", "through": 1}) == {"unread": 300}
    assert sum(sizes) < 4 * 2**20 + 100 * 66_000


def test_scheduled_sends_of_a_user_have_a_bound_in_bytes() -> None:
    world = World()
    alice = world.actor("alice")
    at = world.clock.now_ms() + 60_000
    count = SCHEDULED_BYTES_MAX // 65_000 - 1
    for each in range(count):
        world.ask(alice, "schedule", {"to": "bob", "text": LARGE, "at": at, "send_id": str(each)})
    for _ in range(2):
        world.ask(alice, "schedule", {"to": "bob", "text": "a small one", "at": at})
    with pytest.raises(TooLarge, match=r"your sends that wait have .* bytes with this one; they may have 4194304"):
        for each in range(3):
            world.ask(alice, "schedule", {"to": "bob", "text": LARGE, "at": at, "send_id": f"more {each}"})
    first = world.ask(alice, "schedule", {"to": "bob", "text": LARGE, "at": at, "send_id": "0"})
    assert first["at"] == at, "a repeat is no further send"
    world.do("carol", "schedule", to="bob", text=LARGE, at=at)


def test_fields_of_a_user_have_a_bound_together_also_when_they_come_in_parts() -> None:
    world = World()
    alice = world.actor("alice")
    parts = [{f"{part}-{each}": "x" * 4_000 for each in range(8)} for part in range(3)]
    world.ask(alice, "create_user", {"user": "alice", "fields": parts[0]})
    world.ask(alice, "create_user", {"user": "alice", "fields": parts[1]})
    with pytest.raises(TooLarge, match="the fields of a user may have 65536 bytes together"):
        world.ask(alice, "create_user", {"user": "alice", "fields": parts[2]})
    assert world.do("bob", "user", user="alice")["fields"] == parts[0] | parts[1]
