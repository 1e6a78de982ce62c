"""Saying something later."""

import pytest

from pixiu.model.errors import NotAllowed, NotFound, PixiuError, RequestError, TooLarge
from pixiu.model.pixiu_pb2 import MsgChat, Record
from pixiu.ports.log import SCHEDULE
from tests.im.world import DAY_MS, World, unlimited


def due(world: World) -> list[bytes]:
    """What has come due."""
    return [each.payload for each in world.log.topic(SCHEDULE, 0, 100)]


def fire(world: World, payload: bytes, schedule_id: object) -> object:
    answers: list[object] = []
    world.proxy.fire(payload, int(str(schedule_id)), answers.append)
    world.settle()
    assert len(answers) == 1
    return answers[0]


def test_a_scheduled_send_waits_comes_due_and_is_said_once() -> None:
    world = World()
    at = world.clock.now_ms() + 1000
    answer = world.do("alice", "schedule", to="bob", text="later", at=at, send_id="s")
    assert answer == {"schedule_id": answer["schedule_id"], "at": at}
    waiting = world.do("alice", "scheduled")["scheduled"]
    assert waiting == [
        {"schedule_id": answer["schedule_id"], "from": "alice", "to": "bob", "at": at, "kind": "text", "text": "later",
         "send_id": "s"},
    ]  # fmt: skip
    assert world.texts("alice", {"with": "bob"}) == []
    world.pass_time(1000)
    payload = due(world)[0]
    said = fire(world, payload, answer["schedule_id"])
    again = fire(world, payload, answer["schedule_id"])
    assert said == again
    assert world.do("alice", "scheduled")["scheduled"] == []
    assert world.texts("bob", {"with": "alice"}) == ["later"]
    assert world.stores.bodies.get([int(str(said["message_id"]))])  # type: ignore[index]
    assert world.inbox("alice")[-1]["at"] == said["at"] == at  # type: ignore[index]


def test_one_that_was_said_waits_no_more_and_makes_room_for_the_next() -> None:
    """What comes due has an event id of its own: nobody tells the proxy which schedule it was."""
    world = World(unlimited(scheduled_max=2))
    for _ in range(3):
        at = world.clock.now_ms() + 1000
        world.do("alice", "schedule", to="bob", text="soon", at=at, send_id="again")
        later = world.do("alice", "schedule", to="bob", text="later", at=at + DAY_MS)["schedule_id"]
        world.pass_time(1000)
        fired = world.log.topic(SCHEDULE, 0, 100)[-1]
        fire(world, fired.payload, fired.event_id)
        waiting = world.do("alice", "scheduled")["scheduled"]
        assert [row["schedule_id"] for row in waiting] == [later]  # type: ignore[attr-defined]
        world.do("alice", "unschedule", schedule_id=later)


def test_rights_that_were_lost_meanwhile_refuse_it_when_it_is_due() -> None:
    world = World()
    world.do("alice", "create_group", group="tea", members=["bob"])
    at = world.clock.now_ms() + 1000
    direct = world.do("bob", "schedule", to="alice", text="x", at=at)["schedule_id"]
    inside = world.do("bob", "schedule", group="tea", text="x", at=at)["schedule_id"]
    world.do("alice", "block", user="bob")
    world.do("alice", "manage", group="tea", user="bob", op="remove")
    world.pass_time(1000)
    before = len(world.records())
    for payload, schedule_id in zip(due(world), (direct, inside), strict=True):
        assert isinstance(fire(world, payload, schedule_id), NotAllowed)
    assert len(world.records()) == before


def test_what_is_not_a_send_is_refused_when_it_is_due() -> None:
    world = World()
    for payload in (b"\xff\xff", b"", Record(actor=5).SerializeToString()):
        assert isinstance(fire(world, payload, 7), PixiuError)


def test_only_ones_own_can_be_dropped() -> None:
    world = World()
    at = world.clock.now_ms() + 1000
    schedule_id = world.do("alice", "schedule", to="bob", text="later", at=at)["schedule_id"]
    with pytest.raises(NotFound, match="of yours"):
        world.do("bob", "unschedule", schedule_id=schedule_id)
    assert world.do("alice", "unschedule", schedule_id=schedule_id) == {"schedule_id": schedule_id}
    with pytest.raises(NotFound):
        world.do("alice", "unschedule", schedule_id=schedule_id)
    world.pass_time(2000)
    assert due(world) == []


def test_one_that_fires_while_it_is_dropped_is_not_said_to_be_dropped() -> None:
    world = World()
    at = world.clock.now_ms() + 1000
    schedule_id = world.do("alice", "schedule", to="bob", text="later", at=at)["schedule_id"]
    world.turns.run_for(1000)  # it fires, and the proxy is not told yet
    with pytest.raises(NotFound, match="does not wait any more"):
        world.do("alice", "unschedule", schedule_id=schedule_id)


def test_a_repeat_of_a_send_id_is_found_without_decoding_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(unlimited(scheduled_max=1_000))
    at = world.clock.now_ms() + 60_000
    first = [world.do("alice", "schedule", to="bob", text="1299", at=at, send_id=f"1{each}") for each in range(300)]
    decoded = 0

    class Counting:
        @staticmethod
        def FromString(data: bytes) -> MsgChat:  # noqa: N802 - protobuf's name
            nonlocal decoded
            decoded += 1
            return MsgChat.FromString(data)

    monkeypatch.setattr("pixiu.im.schedules.MsgChat", Counting)
    monkeypatch.setattr("pixiu.roles.proxy.schedules.MsgChat", Counting, raising=False)
    assert world.do("alice", "schedule", to="bob", text="1", at=at, send_id="1299") == first[299]
    assert decoded <= 2, "its own"
    world.proxy.schedules.forget()
    assert world.do("alice", "schedule", to="bob", text="1", at=at, send_id="1299") == first[299]
    world.do("alice", "unschedule", schedule_id=first[7]["schedule_id"])
    assert world.do("alice", "schedule", to="bob", text="1", at=at, send_id="17") != first[7]
    assert world.do("carol", "schedule", to="bob", text="1", at=at, send_id="18") != first[8], (
        "send_ids are the user's own"
    )


def test_the_same_send_id_is_scheduled_once() -> None:
    world = World()
    at = world.clock.now_ms() + 1000
    first = world.do("alice", "schedule", to="bob", text="later", at=at, send_id="s")
    assert world.do("alice", "schedule", to="bob", text="later", at=at + 5, send_id="s") == first
    assert len(world.log.scheduled(SCHEDULE)) == 1


def test_scheduling_has_bounds_in_time_and_number() -> None:
    world = World(unlimited(scheduled_max=2, schedule_ms_max=DAY_MS))
    now = world.clock.now_ms()
    with pytest.raises(RequestError, match="later than now"):
        world.do("alice", "schedule", to="bob", text="x", at=now)
    with pytest.raises(TooLarge, match=f"{DAY_MS} ms ahead"):
        world.do("alice", "schedule", to="bob", text="x", at=now + DAY_MS + 1)
    with pytest.raises(RequestError, match="to or group"):
        world.do("alice", "schedule", text="x", at=now + 1)
    for _ in range(2):
        world.do("alice", "schedule", to="bob", text="x", at=now + DAY_MS)
    with pytest.raises(TooLarge, match="at most 2"):
        world.do("alice", "schedule", to="bob", text="x", at=now + DAY_MS)
    world.do("bob", "schedule", to="alice", text="x", at=now + DAY_MS)


def test_a_new_proxy_finds_in_the_log_what_waits() -> None:
    world = World()
    at = world.clock.now_ms() + 1000
    schedule_id = world.do("alice", "schedule", to="bob", text="later", at=at)["schedule_id"]
    world.log.schedule(SCHEDULE, b"\xff not a record", at)
    world.proxy.schedules.forget()
    rows = world.do("alice", "scheduled")["scheduled"]
    assert [row["schedule_id"] for row in rows] == [schedule_id]  # type: ignore[attr-defined]
