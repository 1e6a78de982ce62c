"""The broker: who hears what, counts, batches, rows, and what happens when sessions and gateways go."""

from __future__ import annotations

import time

import pytest

from pixiu.config.rooms import RoomSettings
from pixiu.im.draft import Actor
from pixiu.machines.rooms import room_number
from pixiu.model.errors import Conflict, NotAllowed, NotFound, Overloaded, RateLimited, TooLarge
from pixiu.model.group import Group, Member, Role
from pixiu.ports.routes import Route
from pixiu.roles.broker import METRICS, broker, snapshot
from tests.roles.broker.scene import Scene, unlimited

PUBLISHER = Actor(0, is_admin=True)


@pytest.mark.feature("P27")
def test_those_in_the_room_get_what_is_said_once_and_nobody_else_does() -> None:
    scene = Scene()
    listening = [*scene.in_room("lobby", 3), *scene.in_room("lobby", 2, gateway=2)]
    (elsewhere,) = scene.in_room("kitchen")
    nowhere = scene.connect(99)
    left = listening.pop()
    left.ask("leave", room="lobby")
    answer = listening[0].ask("say", room="lobby", text="hi", send_id="s1")
    scene.pass_time(100)
    at = answer["at"]
    assert answer == {"room": "lobby", "message_id": answer["message_id"], "at": at, "members": 4}
    for session in listening:
        assert session.messages == [
            {
                "message_id": answer["message_id"], "from": "user1", "room": "lobby", "at": at, "kind": "text",
                "text": "hi", "send_id": "s1",
            }
        ]  # fmt: skip
    assert [session.messages for session in (elsewhere, nowhere, left)] == [[], [], []]
    late = scene.in_room("lobby")[0]
    scene.pass_time(60_000)
    assert late.messages == [], "nothing is stored"


@pytest.mark.feature("P27")
def test_live_talk_that_is_lost_stays_lost() -> None:
    scene = Scene()
    (session,) = scene.in_room("lobby")
    scene.loss = 1.0
    session.ask("say", room="lobby", text="lost")
    scene.pass_time(100)
    scene.loss = 0.0
    scene.pass_time(60_000)
    assert session.texts == []
    assert scene.broker.counters.resends == 0


def test_what_is_said_within_a_few_milliseconds_travels_in_one_frame() -> None:
    scene = Scene(unlimited(batch_ms=5, batch_count=10))
    (session,) = scene.in_room("lobby")
    scene.pass_time(2_000)
    scene.frames.clear()
    for index in range(7):
        session.ask("say", room="lobby", text=f"{index}")
    assert scene.frames == []
    scene.pass_time(5)
    ((gateway, frame),) = scene.frames
    assert (gateway, len(frame.fans)) == ("gateway-1", 7)
    for index in range(7, 32):
        session.ask("say", room="lobby", text=f"{index}")
    assert [len(frame.fans) for _, frame in scene.frames[1:]] == [10, 10], "a full batch does not wait"
    scene.pass_time(5)
    assert session.texts == [f"{index}" for index in range(32)]


def test_a_large_room_waits_for_more_only_right_after_something_else() -> None:
    scene = Scene(unlimited(batch_ms=5))
    crowd = scene.in_room("lobby", broker.FEW + 1)
    pair = scene.in_room("corner", 2)
    scene.pass_time(2_000)
    scene.frames.clear()
    crowd[0].ask("say", room="lobby", text="first")
    scene.pass_time(0)
    assert crowd[-1].texts == ["first"], "after a quiet time nothing waits"
    crowd[0].ask("say", room="lobby", text="second")
    crowd[1].ask("say", room="lobby", text="third")
    scene.pass_time(4)
    assert len(scene.frames) == 1
    scene.pass_time(1)
    assert [len(frame.fans) for _, frame in scene.frames] == [1, 2]
    crowd[0].ask("say", room="lobby", text="fourth")
    pair[0].ask("say", room="corner", text="psst")
    scene.pass_time(0)
    assert pair[1].texts == ["psst"], "a few never wait"
    assert crowd[-1].texts == ["first", "second", "third", "fourth"], "and take along what waits"
    assert len(scene.frames) == 3


def test_without_a_batching_time_it_goes_in_the_same_turn() -> None:
    scene = Scene(unlimited(batch_ms=0))
    (session,) = scene.in_room("lobby")
    session.ask("say", room="lobby", text="now")
    scene.pass_time(0)
    assert session.texts == ["now"]


@pytest.mark.feature("X01")
def test_a_message_costs_the_broker_one_fan_per_gateway() -> None:
    # X01, as a broker does it.
    scene = Scene(gateways=3)
    sessions = [session for gateway in (1, 2, 3) for session in scene.in_room("lobby", 33, gateway)]
    scene.pass_time(2_000)
    scene.frames.clear()
    sessions[0].ask("say", room="lobby", text="hi")
    scene.pass_time(100)
    assert sorted(gateway for gateway, _ in scene.frames) == ["gateway-1", "gateway-2", "gateway-3"]
    assert [len(frame.fans) for _, frame in scene.frames] == [1, 1, 1]
    assert all(session.texts == ["hi"] for session in sessions)


# Counts and rows.


def test_counts_are_told_once_a_second_at_most_and_only_when_they_change() -> None:
    scene = Scene()
    (first,) = scene.in_room("lobby")
    for _ in range(30):
        scene.in_room("lobby", 5)
        scene.pass_time(50)
    scene.pass_time(60_000)
    counts = first.of("presence")
    assert counts[-1] == {"push": "presence", "room": "lobby", "members": 151, "users": 151}
    assert len(counts) == 2
    second = scene.connect(first.actor.user)
    second.ask("enter", room="lobby")
    scene.pass_time(1_100)
    assert first.of("presence")[2:] == [{"push": "presence", "room": "lobby", "members": 152, "users": 151}]
    assert second.of("presence") == first.of("presence")[2:]


def test_an_active_room_reports_a_row_a_second() -> None:
    scene = Scene()
    sessions = scene.in_room("lobby", 4)
    scene.in_room("quiet", 2)
    scene.pass_time(1_100)
    rows = {row.room: row for row in scene.rows}
    assert (rows["lobby"].members, rows["quiet"].members, rows["quiet"].messages) == (4, 2, 0)
    scene.rows.clear()
    for _ in range(30):
        sessions[0].ask("say", room="lobby", text="hi")
        scene.pass_time(100)
    scene.pass_time(10_000)
    assert {row.room for row in scene.rows} == {"lobby"}
    assert len(scene.rows) in (3, 4)
    assert sum(row.messages for row in scene.rows) == 30
    assert sum(row.deliveries for row in scene.rows) == 120
    body = sum(len(fan.body) for _, frame in scene.frames for fan in frame.fans if fan.message_id)
    assert sum(row.bytes for row in scene.rows) == body
    assert all(row.members == row.users == 4 for row in scene.rows)


def test_a_row_names_the_listeners_of_a_message_even_if_they_leave_within_the_second() -> None:
    scene = Scene()
    sessions = scene.in_room("lobby", 2)
    sessions[0].ask("say", room="lobby", text="hi")
    for session in sessions:
        session.ask("leave", room="lobby")
    scene.pass_time(1_100)
    (row,) = scene.rows
    assert (row.messages, row.deliveries, row.members, row.users) == (1, 2, 2, 2)


def test_metrics_name_everything_that_is_declared() -> None:
    scene = Scene()
    (session,) = scene.in_room("lobby")
    session.ask("say", room="lobby", text="hi", **{"class": "reliable"})
    values = snapshot(scene.broker)
    assert values.keys() == {metric.name for metric in METRICS}
    assert values["pixiu_broker_messages_total"] == {("live",): 0, ("reliable",): 1}
    assert (values["pixiu_broker_rooms"], values["pixiu_broker_sessions"]) == (1, 1)
    assert values["pixiu_broker_unsettled"] == 1
    scene.pass_time(100)
    assert snapshot(scene.broker)["pixiu_broker_unsettled"] == 0


# Sessions and gateways that go.


def test_a_session_that_is_gone_leaves_all_its_rooms() -> None:
    scene = Scene()
    gone, stays = scene.in_room("lobby", 2)
    gone.ask("enter", room="kitchen")
    gone.close()
    assert scene.routes.count(room_number("lobby")) == 1
    assert scene.routes.count(room_number("kitchen")) == 0
    assert stays.ask("say", room="lobby", text="hi")["members"] == 1
    with pytest.raises(NotAllowed, match="enter room 'kitchen' before you talk in it"):
        stays.ask("say", room="kitchen", text="hi")


@pytest.mark.feature("X40")
def test_a_dead_gateway_gets_nothing_more() -> None:
    # X40.
    scene = Scene()
    (stays,) = scene.in_room("lobby")
    scene.in_room("lobby", 5, gateway=2)
    scene.loss = 1.0
    stays.ask("say", room="lobby", text="on its way", **{"class": "reliable"})
    scene.pass_time(10)
    scene.loss = 0.0
    del scene.gateways["gateway-2"]
    scene.broker.gateway_gone("gateway-2")
    scene.frames.clear()
    stays.ask("say", room="lobby", text="hi")
    scene.pass_time(5_000)
    assert {gateway for gateway, _ in scene.frames} == {"gateway-1"}
    assert scene.routes.count(room_number("lobby")) == 1
    assert scene.broker.rooms.unsettled == 0
    assert stays.of("presence")[-1]["members"] == 1


def test_a_gateway_that_was_taken_for_dead_and_is_not_hears_again() -> None:
    scene = Scene()
    (session,) = scene.in_room("lobby")
    for index in range(3):
        session.ask("say", room="lobby", text=f"{index}", **{"class": "reliable"})
        scene.pass_time(10)
    scene.broker.gateway_gone("gateway-1")
    session.ask("enter", room="lobby")
    session.ask("say", room="lobby", text="back", **{"class": "reliable"})
    scene.pass_time(100)
    assert session.texts == ["0", "1", "2", "back"]
    assert scene.broker.rooms.unsettled == 0


def test_a_new_broker_takes_over_the_audience_from_the_routes() -> None:
    scene = Scene()
    first, second = scene.in_room("lobby", 2)
    first.ask("say", room="lobby", text="before", **{"class": "reliable"})
    scene.pass_time(100)
    scene.broker.stop()
    scene.pass_time(100)
    scene.broker = scene.new_broker()
    assert first.ask("say", room="lobby", text="after", **{"class": "reliable"})["members"] == 2
    scene.pass_time(100)
    assert first.texts == second.texts == ["before", "after"]


def test_news_from_routers_may_come_in_any_order() -> None:
    scene = Scene()
    (session,) = scene.in_room("lobby")
    assert scene.broker.entered("lobby", Route(50, 5000, "gateway-2", 3))
    assert not scene.broker.left("lobby", 5000, 2)
    assert session.ask("say", room="lobby", text="hi")["members"] == 2
    assert scene.broker.left("lobby", 5000, 4)
    assert not scene.broker.entered("lobby", Route(50, 5000, "gateway-2", 3))
    assert session.ask("say", room="lobby", text="hi")["members"] == 1


@pytest.mark.feature("T5")
def test_a_hundred_thousand_sessions_that_go_at_once_take_bounded_time_and_no_storm_follows() -> None:
    scene = Scene()
    (stays,) = scene.in_room("room-0", gateway=2)
    count = 100_000
    first = 1_000_000
    for session_id in range(first, first + count):
        route = Route(session_id, session_id, "gateway-1", 1)
        scene.broker.entered(f"room-{session_id % 500}", route)
    scene.pass_time(2_000)
    scene.frames.clear()
    scene.rows.clear()
    begin = time.process_time()
    for session_id in range(first, first + count // 2):
        scene.broker.session_gone(session_id)
    scene.broker.gateway_gone("gateway-1")
    assert time.process_time() - begin < 10
    assert (scene.broker.rooms.sessions, len(scene.broker.rooms)) == (1, 1)
    scene.pass_time(10_000)
    assert len(scene.rows) == 500, "one row per room"
    assert [gateway for gateway, _ in scene.frames] == ["gateway-2"], "one frame with counts for who is left"
    assert stays.of("presence")[-1]["members"] == 1


# Rights, sizes, rates, bounds.


def test_who_talks_must_be_in_the_room_but_for_publishers() -> None:
    scene = Scene()
    (session,) = scene.in_room("lobby")
    with pytest.raises(NotAllowed, match="enter room 'lobby' before you talk in it"):
        scene.connect(7).ask("say", room="lobby", text="hi")
    answer = scene.ask(PUBLISHER, "say", room="lobby", text="news")
    assert answer["members"] == 1
    assert scene.ask(PUBLISHER, "say", room="empty", text="news")["members"] == 0
    scene.pass_time(100)
    assert [(message["from"], message["text"]) for message in session.messages] == [("0", "news")]


def test_a_text_may_be_so_large() -> None:
    scene = Scene(unlimited(message_bytes_max=10))
    (session,) = scene.in_room("lobby")
    session.ask("say", room="lobby", text="x" * 10)
    with pytest.raises(TooLarge, match="a message may have 10 bytes, not 12"):
        session.ask("say", room="lobby", text="貔貅貔貅")


def test_rooms_and_sessions_are_bounded() -> None:
    scene = Scene(unlimited(sessions_max=2, rooms_per_session_max=1))
    first, _ = scene.in_room("lobby", 2)
    with pytest.raises(TooLarge, match="the room has 2 sessions; it may have 2"):
        scene.connect(9).ask("enter", room="lobby")
    with pytest.raises(TooLarge, match="you are in 1 rooms; you may be in 1"):
        first.ask("enter", room="kitchen")
    assert first.ask("enter", room="lobby")["members"] == 2
    first.ask("leave", room="lobby")
    first.ask("enter", room="kitchen")


def test_a_user_may_act_so_often() -> None:
    scene = Scene(RoomSettings(says_per_second=10, say_burst=5))
    (session,) = scene.in_room("lobby")
    other = scene.in_room("lobby")[0]
    for _ in range(4):
        session.ask("say", room="lobby", text="hi")
    with pytest.raises(RateLimited, match="at most 10 a second in rooms; try again in 100 ms") as refused:
        session.ask("say", room="lobby", text="hi")
    assert refused.value.retry_after_ms == 100
    other.ask("say", room="lobby", text="hi")
    session.ask("leave", room="lobby")
    with pytest.raises(RateLimited):
        session.ask("enter", room="lobby")
    scene.pass_time(100)
    session.ask("enter", room="lobby")
    for _ in range(100):
        scene.ask(PUBLISHER, "say", room="lobby", text="hi")


def test_live_talk_for_a_gateway_that_is_full_leaves_a_gap_that_is_said() -> None:
    scene = Scene(unlimited(pending_max=3))
    (slow,) = scene.in_room("lobby")
    (quick,) = scene.in_room("lobby", gateway=2)
    scene.pass_time(2_000)
    scene.broker.pause("gateway-1")
    for index in range(10):
        slow.ask("say", room="lobby", text=f"{index}")
        scene.pass_time(10)
    assert slow.texts == []
    assert len(quick.texts) == 10
    scene.broker.resume("gateway-1")
    scene.pass_time(100)
    assert slow.of("gap") == [{"push": "gap", "room": "lobby", "missed": 7}]
    assert slow.texts == ["7", "8", "9"]


def test_urgent_live_talk_for_a_gateway_that_is_full_survives_later_bulk() -> None:
    scene = Scene(unlimited(pending_max=3))
    (slow,) = scene.in_room("lobby")
    (quick,) = scene.in_room("lobby", gateway=2)
    scene.pass_time(2_000)
    scene.broker.pause("gateway-1")
    quick.ask("say", room="lobby", text="fire", priority="high")
    for index in range(10):
        quick.ask("say", room="lobby", text=f"bulk {index}", priority="low")
        scene.pass_time(10)
    quick.ask("say", room="lobby", text="hello")
    scene.broker.resume("gateway-1")
    scene.pass_time(100)
    assert slow.of("gap") == [{"push": "gap", "room": "lobby", "missed": 9}]
    assert slow.texts == ["fire", "bulk 9", "hello"]
    assert len(quick.texts) == 12


def test_reliable_talk_is_refused_as_busy_while_too_much_is_on_its_way() -> None:
    scene = Scene(unlimited(pending_max=2))
    (session,) = scene.in_room("lobby")
    scene.loss = 1.0
    for index in range(2):
        session.ask("say", room="lobby", text=f"{index}", **{"class": "reliable"})
    with pytest.raises(Overloaded):
        session.ask("say", room="lobby", text="2", **{"class": "reliable"})
    session.ask("say", room="lobby", text="live", **{"class": "live"})
    scene.pass_time(20)
    scene.loss = 0.0
    scene.pass_time(1_000)
    session.ask("say", room="lobby", text="2", **{"class": "reliable"})
    scene.pass_time(100)
    assert session.texts == ["0", "1", "2"]


def test_two_names_with_one_number_are_not_mixed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    monkeypatch.setattr(broker, "room_number", lambda name: 5)
    scene.in_room("lobby")
    with pytest.raises(Conflict, match="room 'kitchen' has the number of a room that is in use"):
        scene.connect(9).ask("enter", room="kitchen")


# Rooms of groups.


def make_group(scene: Scene, *users: int) -> None:
    scene.groups.put(Group(77, "team", "Team", "", users[0]))
    for user in users:
        scene.groups.put_member(77, Member(user, Role.MEMBER, 1, 1))


def test_the_room_of_a_group_is_for_its_members() -> None:
    scene = Scene()
    make_group(scene, 1, 2)
    alice, bob, eve = (scene.connect(user) for user in (1, 2, 3))
    alice.ask("enter", room="g:team")
    bob.ask("enter", room="g:team")
    with pytest.raises(NotAllowed, match="the room is for members of the group"):
        eve.ask("enter", room="g:team")
    with pytest.raises(NotFound, match="there is no group 'nobody'"):
        eve.ask("enter", room="g:nobody")
    eve.ask("enter", room="team")  # an open room that happens to have the group's name
    alice.ask("say", room="g:team", text="hi")
    scene.pass_time(100)
    assert (alice.texts, bob.texts, eve.texts) == (["hi"], ["hi"], [])


def test_who_is_removed_from_a_group_hears_no_more_of_its_room() -> None:
    scene = Scene()
    make_group(scene, 1, 2)
    alice, bob = scene.connect(1), scene.connect(2)
    for session in (alice, bob):
        session.ask("enter", room="g:team")
    scene.groups.put_member(77, Member(2, Role.MEMBER, 1, 1, left=5))
    scene.broker.removed(77, 2)
    scene.broker.removed(77, 2)
    scene.broker.removed(78, 2)
    alice.ask("say", room="g:team", text="among us")
    scene.pass_time(2_000)
    assert alice.texts == ["among us"]
    assert bob.pushes == [{"push": "presence", "room": "g:team", "is_in": False, "reason": "removed"}]
    assert alice.of("presence")[-1]["members"] == 1
    with pytest.raises(NotAllowed):
        bob.ask("enter", room="g:team")
    assert scene.broker.rooms.unsettled == 0


def test_who_is_muted_or_no_member_any_more_does_not_talk() -> None:
    scene = Scene()
    make_group(scene, 1, 2)
    bob = scene.connect(2)
    bob.ask("enter", room="g:team")
    scene.groups.put_member(77, Member(2, Role.MEMBER, 1, 1, is_muted=True))
    with pytest.raises(NotAllowed, match="you are muted in the group"):
        bob.ask("say", room="g:team", text="hi")
    scene.groups.put_member(77, Member(2, Role.MEMBER, 1, 1, left=9))
    with pytest.raises(NotAllowed, match="the room is for members of the group"):
        bob.ask("say", room="g:team", text="hi")


def test_a_message_that_a_group_has_stored_reaches_who_listens() -> None:
    scene = Scene()
    make_group(scene, 1)
    alice = scene.connect(1)
    alice.ask("enter", room="g:team")
    scene.broker.group_said(77, 5, b'{"push":"message","message":{"text":"stored"}}')
    scene.broker.group_said(78, 6, b"{}")
    scene.pass_time(100)
    assert alice.texts == ["stored"]
