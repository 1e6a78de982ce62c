"""Who listens where, and what waits for them: the rules, the bounds, and any order of news."""

from __future__ import annotations

from collections import Counter
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pixiu.backends.memory.routes import MemoryRoutes
from pixiu.config.rooms import RoomSettings
from pixiu.machines.room_bodies import message_body
from pixiu.machines.rooms import COMPACT_MIN, Fan, Rooms, room_number
from pixiu.model.errors import ConfigError, NotAllowed, Overloaded, TooLarge
from pixiu.model.names import OWN_NUMBER_END
from pixiu.ports.routes import Route

ROOM, OTHER = 7, 8
G1, G2 = "gateway-1", "gateway-2"


def make(**settings: int) -> Rooms:
    return Rooms(RoomSettings(**settings), lambda room, missed: b"gap %d %d" % (room, missed))


def said(rooms: Rooms, message_id: int, *, room: int = ROOM, is_reliable: bool = False) -> list[str]:
    return list(rooms.said(room, message_id, 0, b"m%d" % message_id, is_reliable=is_reliable))


def prioritized(
    rooms: Rooms, message_id: int, priority: str, *, room: int = ROOM, is_reliable: bool = False
) -> list[str]:
    body = message_body(message_id, "ann", "lobby", 1, "hi", "", priority)
    return list(rooms.said(room, message_id, 0, body, is_reliable=is_reliable))


def taken(rooms: Rooms, gateway: str) -> list[Fan]:
    return [fan for batch in rooms.take(gateway) for fan in batch]


def ids(rooms: Rooms, gateway: str) -> list[int]:
    return [fan.message_id for fan in taken(rooms, gateway)]


# Numbers.


def test_a_small_decimal_is_its_own_number_and_other_names_lie_above() -> None:
    assert room_number("42") == 42
    for name in ("lobby", "042", "g:42", "大厅", str(OWN_NUMBER_END)):
        assert OWN_NUMBER_END <= room_number(name) < 2**63
    assert room_number("lobby") == room_number("lobby") != room_number("lobby2")


def test_the_settings_keep_copies_known_as_long_as_they_may_come() -> None:
    with pytest.raises(ConfigError, match=r"rooms\.dedup_ms must be at least rooms\.reliable_ms \(30000\), not 1000"):
        RoomSettings(dedup_ms=1000)


# Fan-out.


@pytest.mark.feature("X01")
def test_one_fan_per_gateway_however_many_listen_there() -> None:
    # X01: 100 members on 3 gateways make exactly 3 sends, which together reach each of them once.
    rooms = make()
    for session_id in range(1, 101):
        rooms.entered(ROOM, session_id, session_id, f"gateway-{session_id % 3}", 1)
    said(rooms, 1)
    assert sorted(rooms.ready()) == ["gateway-0", "gateway-1", "gateway-2"]
    fans = {gateway: taken(rooms, gateway) for gateway in rooms.ready()}
    assert [len(each) for each in fans.values()] == [1, 1, 1]
    assert len({id(fan) for (fan,) in fans.values()}) == 1, "made once, shared by all"
    reached = Counter(session_id for sessions in rooms.audience(ROOM).values() for session_id in sessions)
    assert reached == Counter(range(1, 101))
    assert rooms.ready() == []


def test_a_room_without_anyone_hears_nothing() -> None:
    rooms = make()
    rooms.entered(OTHER, 1, 1, G1, 1)
    assert said(rooms, 1) == []
    assert rooms.ready() == []


def test_only_who_is_in_the_room_may_talk() -> None:
    rooms = make()
    rooms.entered(ROOM, 1, 1, G1, 1)
    with pytest.raises(NotAllowed, match="enter the room first"):
        rooms.said(ROOM, 1, 2, b"", is_reliable=False)
    with pytest.raises(NotAllowed, match="enter the room first"):
        rooms.said(OTHER, 1, 1, b"", is_reliable=False)
    assert rooms.said(ROOM, 1, 1, b"", is_reliable=False) == ()


def test_several_messages_of_several_rooms_travel_together_room_by_room_and_in_order() -> None:
    rooms = make()
    rooms.entered(ROOM, 1, 1, G1, 1)
    rooms.entered(OTHER, 1, 1, G1, 1)
    for message_id in range(1, 7):
        said(rooms, message_id, room=ROOM if message_id % 2 else OTHER)
    (batch,) = rooms.take(G1)
    assert [(fan.room, fan.message_id) for fan in batch] == [
        (ROOM, 1), (ROOM, 3), (ROOM, 5), (OTHER, 2), (OTHER, 4), (OTHER, 6),
    ]  # fmt: skip


def test_a_full_batch_is_said_to_be_full() -> None:
    rooms = make(batch_count=3)
    rooms.entered(ROOM, 1, 1, G1, 1)
    rooms.entered(OTHER, 2, 2, G1, 1)
    rooms.entered(OTHER, 3, 3, G2, 1)
    assert said(rooms, 1) == []
    assert said(rooms, 2, room=OTHER) == []
    assert said(rooms, 3) == [G1]
    assert ids(rooms, G1) == [1, 3, 2]
    assert ids(rooms, G2) == [2]


def test_batches_hold_no_more_than_the_bound() -> None:
    rooms = make(batch_count=4)
    rooms.entered(ROOM, 1, 1, G1, 1)
    rooms.paused(G1)
    for message_id in range(1, 11):
        assert said(rooms, message_id) == [], "a paused gateway is never full"
    assert rooms.ready() == []
    assert rooms.take(G1) == []
    rooms.resumed(G1)
    assert [[fan.message_id for fan in batch] for batch in rooms.take(G1)] == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10]]


# Counts.


def test_members_are_sessions_and_users_are_counted_once() -> None:
    rooms = make()
    for session_id, user in ((1, 5), (2, 5), (3, 6)):
        rooms.entered(ROOM, session_id, user, G1, 1)
    assert (rooms.members(ROOM), rooms.users(ROOM), rooms.sessions) == (3, 2, 3)
    assert sorted(rooms.sessions_of(ROOM, 5)) == [1, 2]
    rooms.left(ROOM, 1, 2)
    assert (rooms.members(ROOM), rooms.users(ROOM)) == (2, 2)
    rooms.left(ROOM, 2, 2)
    assert (rooms.members(ROOM), rooms.users(ROOM)) == (1, 1)
    assert rooms.sessions_of(ROOM, 5) == []
    rooms.left(ROOM, 3, 2)
    assert (rooms.members(ROOM), rooms.users(ROOM), len(rooms), rooms.sessions) == (0, 0, 0, 0)


# Coming and going.


def test_who_leaves_takes_nothing_from_the_others() -> None:
    rooms = make()
    rooms.entered(ROOM, 1, 1, G1, 1)
    rooms.entered(ROOM, 2, 2, G1, 1)
    said(rooms, 1)
    rooms.left(ROOM, 1, 2)
    assert ids(rooms, G1) == [1]


def test_what_waits_for_a_gateway_where_nobody_is_left_goes_nowhere() -> None:
    rooms = make()
    rooms.entered(ROOM, 1, 1, G1, 1)
    rooms.entered(ROOM, 2, 2, G2, 1)
    said(rooms, 1, is_reliable=True)
    rooms.left(ROOM, 1, 2)
    assert rooms.ready() == [G2]
    rooms.entered(ROOM, 1, 1, G1, 3)
    assert ids(rooms, G1) == [], "it was said before this session came"
    rooms.settled(G2, taken(rooms, G2))
    assert rooms.unsettled == 0


def test_entering_again_with_a_newer_version_keeps_what_waits() -> None:
    rooms = make()
    rooms.entered(ROOM, 1, 1, G1, 1)
    said(rooms, 1)
    assert rooms.entered(ROOM, 1, 1, G1, 2)
    assert ids(rooms, G1) == [1]
    assert rooms.members(ROOM) == 1


def test_a_session_that_moves_is_counted_once() -> None:
    rooms = make()
    rooms.entered(ROOM, 1, 1, G1, 1)
    assert rooms.entered(ROOM, 1, 1, G2, 2)
    assert rooms.audience(ROOM) == {G2: frozenset({1})}
    assert (rooms.members(ROOM), rooms.users(ROOM), rooms.rooms_of(1)) == (1, 1, [ROOM])


def test_a_session_that_is_over_leaves_every_room() -> None:
    rooms = make()
    for room in (ROOM, OTHER, 9):
        rooms.entered(room, 1, 1, G1, 1)
    rooms.entered(ROOM, 2, 2, G1, 1)
    assert rooms.session_gone(1, 5) == [ROOM, OTHER, 9]
    assert rooms.session_gone(1, 5) == []
    assert (rooms.members(ROOM), rooms.members(OTHER), len(rooms)) == (1, 0, 1)
    assert not rooms.entered(OTHER, 1, 1, G1, 4), "an enter that comes late loses"


def test_a_gateway_takes_its_sessions_and_what_waits_along() -> None:
    rooms = make()
    for session_id in range(1, 5):
        rooms.entered(ROOM, session_id, session_id, G1 if session_id < 3 else G2, 1)
    rooms.entered(OTHER, 1, 1, G1, 1)
    said(rooms, 1, is_reliable=True)
    assert rooms.gateway_gone(G1) == [ROOM, OTHER]
    assert rooms.gateway_gone(G1) == []
    assert (rooms.members(ROOM), rooms.members(OTHER)) == (2, 0)
    assert rooms.ready() == [G2]
    rooms.settled(G2, taken(rooms, G2))
    assert rooms.unsettled == 0
    assert said(rooms, 2, is_reliable=True) == []


def test_who_is_expelled_is_told_and_hears_no_more() -> None:
    rooms = make()
    rooms.entered(ROOM, 1, 1, G1, 1)
    assert rooms.expelled(ROOM, 1, 2, 77, b"out")
    assert not rooms.expelled(ROOM, 1, 2, 78, b"out")
    assert rooms.members(ROOM) == 0
    fans = taken(rooms, G1)
    assert fans == [Fan(ROOM, 77, b"out", is_reliable=True, sessions=(1,), is_end=True)]
    rooms.settled(G1, fans)
    assert (rooms.unsettled, rooms.ready()) == (0, [])


# Old news.

NEWS = st.tuples(
    st.booleans(), st.sampled_from([ROOM, OTHER]), st.integers(1, 3), st.sampled_from([G1, G2]), st.integers(1, 6)
)


@given(st.lists(NEWS, max_size=40))
def test_the_newest_news_of_a_session_wins_as_in_the_routes(
    news: list[tuple[bool, int, int, str, int]],
) -> None:
    rooms, routes = make(), MemoryRoutes()
    for is_enter, room, session_id, gateway, version in news:
        user = session_id % 2
        if is_enter:
            route = Route(user, session_id, gateway, version)
            assert rooms.entered(room, session_id, user, gateway, version) == routes.enter(room, route)
        else:
            assert rooms.left(room, session_id, version) == routes.leave(room, session_id, version)
        for each in (ROOM, OTHER):
            expected = routes.of(each)
            assert rooms.members(each) == len(expected)
            assert rooms.users(each) == len({route.user for route in expected})
            assert rooms.audience(each) == {
                gateway: frozenset(route.session_id for route in expected if route.gateway == gateway)
                for gateway in {route.gateway for route in expected}
            }


@pytest.mark.feature("X38")
def test_any_order_of_the_same_news_gives_the_same_audience() -> None:
    # X38, E11: two sessions come and go; each piece of news twice, in every order.
    news = [(True, 1, 1), (False, 1, 2), (True, 1, 3), (True, 2, 1), (False, 2, 2)]
    for order in permutations([*news, news[1]]):
        rooms = make()
        for is_enter, session_id, version in order:
            if is_enter:
                rooms.entered(ROOM, session_id, session_id, G1, version)
            else:
                rooms.left(ROOM, session_id, version)
        assert rooms.audience(ROOM) == {G1: frozenset({1})}, order


def test_leaves_are_remembered_in_bounded_memory() -> None:
    rooms = Rooms(RoomSettings(), lambda room, missed: b"", left_max=2)
    for session_id in (1, 2, 3):
        rooms.left(ROOM, session_id, 5)
    assert not rooms.entered(ROOM, 3, 3, G1, 4)
    assert not rooms.entered(ROOM, 2, 2, G1, 4)
    assert rooms.entered(ROOM, 1, 1, G1, 4), "the oldest leave was forgotten"


# Bounds.


def test_a_room_takes_so_many_sessions_and_a_session_so_many_rooms() -> None:
    rooms = make(sessions_max=2, rooms_per_session_max=2)
    for session_id in (1, 2):
        rooms.check_enter(ROOM, session_id)
        rooms.entered(ROOM, session_id, 1, G1, 1)
    with pytest.raises(TooLarge, match="the room has 2 sessions; it may have 2"):
        rooms.check_enter(ROOM, 3)
    rooms.check_enter(ROOM, 2)  # who is in may say so again
    rooms.entered(OTHER, 1, 1, G1, 1)
    with pytest.raises(TooLarge, match="you are in 2 rooms; you may be in 2"):
        rooms.check_enter(9, 1)
    rooms.left(OTHER, 1, 2)
    rooms.check_enter(9, 1)


def test_live_talk_that_cannot_leave_gives_way_to_newer_talk_and_a_gap_is_said() -> None:
    rooms = make(pending_max=3)
    rooms.entered(ROOM, 1, 1, G1, 1)
    rooms.entered(ROOM, 2, 2, G2, 1)
    rooms.paused(G1)
    said(rooms, 1, is_reliable=True)
    for message_id in range(2, 9):
        said(rooms, message_id)
        if message_id == 4:
            assert ids(rooms, G2) == [1, 2, 3, 4]
    rooms.resumed(G1)
    fans = taken(rooms, G1)
    assert [fan.body for fan in fans] == [b"gap 7 4", b"m1", b"m6", b"m7", b"m8"]
    assert [fan.message_id for fan in fans] == [0, 1, 6, 7, 8]
    said(rooms, 9)
    assert [fan.body for fan in taken(rooms, G1)] == [b"m9"], "a gap is said once"


def test_counts_that_give_way_are_no_gap() -> None:
    rooms = make(pending_max=1)
    rooms.entered(ROOM, 1, 1, G1, 1)
    rooms.paused(G1)
    for count in range(3):
        rooms.told(ROOM, b"%d" % count)
    rooms.resumed(G1)
    assert [fan.body for fan in taken(rooms, G1)] == [b"2"]
    assert rooms.dropped == 0


def test_all_rooms_of_a_paused_gateway_together_are_bounded() -> None:
    rooms = make(gateway_pending_max=10)
    for room in range(1, 8):
        rooms.entered(room, 1, 1, G1, 1)
    rooms.paused(G1)
    for message_id in range(1, 1001):
        said(rooms, message_id, room=message_id % 7 + 1)
    rooms.resumed(G1)
    fans = taken(rooms, G1)
    assert sum(1 for fan in fans if fan.message_id) == 10
    missed = sum(int(fan.body.split()[2]) for fan in fans if not fan.message_id)
    assert missed == rooms.dropped == 990


def test_messages_of_low_priority_are_dropped_before_normal_and_high_ones() -> None:
    rooms = make(pending_max=4)
    rooms.entered(ROOM, 1, 1, G1, 1)
    rooms.paused(G1)
    for message_id, priority in enumerate(["high", "normal", "low", "low", "high", "normal", "low", "high"], start=1):
        prioritized(rooms, message_id, priority)
    rooms.resumed(G1)
    fans = taken(rooms, G1)
    assert fans[0].body == b"gap 7 4"
    assert [fan.message_id for fan in fans[1:]] == [1, 5, 6, 8], "3, 4, 7 are low, and 2 is the oldest normal one"
    assert rooms.dropped == 4


def test_only_high_messages_left_drop_the_oldest_of_them() -> None:
    rooms = make(pending_max=2)
    rooms.entered(ROOM, 1, 1, G1, 1)
    rooms.paused(G1)
    for message_id in range(1, 5):
        prioritized(rooms, message_id, "high")
    prioritized(rooms, 5, "low")
    rooms.resumed(G1)
    assert ids(rooms, G1) == [0, 3, 4]


def test_bound_of_a_gateway_drops_low_messages_of_any_room_first() -> None:
    rooms = make(gateway_pending_max=3)
    rooms.entered(ROOM, 1, 1, G1, 1)
    rooms.entered(OTHER, 1, 1, G1, 1)
    rooms.paused(G1)
    for message_id, room, priority in ((1, OTHER, "low"), (2, OTHER, "normal"), (3, ROOM, "low"), (4, ROOM, "high")):
        prioritized(rooms, message_id, priority, room=room)
    prioritized(rooms, 5, "high", room=ROOM)
    prioritized(rooms, 6, "high", room=ROOM)
    rooms.resumed(G1)
    fans = taken(rooms, G1)
    assert [fan.message_id for fan in fans if fan.message_id] == [4, 5, 6]
    assert sorted(fan.body for fan in fans if not fan.message_id) == [b"gap 7 1", b"gap 8 2"]


@given(
    st.lists(
        st.tuples(st.sampled_from([7, 8, 9]), st.sampled_from(["low", "normal", "high"]), st.booleans()), max_size=80
    )
)
def test_any_workload_keeps_the_bounds_the_order_and_all_reliable_messages(
    said_so_far: list[tuple[int, str, bool]],
) -> None:
    rooms = make(pending_max=6, gateway_pending_max=12)
    for room in (7, 8, 9):
        rooms.entered(room, 1, 1, G1, 1)
    rooms.paused(G1)
    classes: dict[int, str] = {}
    reliable: set[int] = set()
    for message_id, (room, priority, is_reliable) in enumerate(said_so_far, start=1):
        classes[message_id] = priority
        try:
            prioritized(rooms, message_id, priority, room=room, is_reliable=is_reliable)
        except Overloaded:
            del classes[message_id]
        else:
            reliable.update({message_id} if is_reliable else ())
    rooms.resumed(G1)
    fans = taken(rooms, G1)
    shown = [fan.message_id for fan in fans if fan.message_id]
    assert reliable <= set(shown)
    for room in (7, 8, 9):
        here = [fan.message_id for fan in fans if fan.room == room and fan.message_id]
        assert here == sorted(here)
        assert sum(message_id not in reliable for message_id in here) <= 6
    missed = sum(int(fan.body.split()[2]) for fan in fans if not fan.message_id)
    assert missed == rooms.dropped == len(classes) - len(shown)


def test_long_overload_of_a_room_and_a_gateway_keeps_what_is_indexed_bounded() -> None:
    rooms = make(pending_max=5, gateway_pending_max=8)
    for room in (1, 2, 3):
        rooms.entered(room, 1, 1, G1, 1)
    rooms.paused(G1)
    for message_id in range(1, 20_001):
        prioritized(rooms, message_id, "high" if message_id % 3 else "low", room=message_id % 3 + 1)
    gateway = rooms._gateways[G1]
    queues = [gateway.drops, *(place.drops for place in gateway.places.values())]
    assert all(queue is None or queue._size <= COMPACT_MIN + 1 for queue in queues)
    rooms.resumed(G1)
    assert sum(1 for fan in taken(rooms, G1) if fan.message_id) == 8


def test_reliable_talk_is_refused_before_it_is_lost() -> None:
    rooms = make(pending_max=2)
    rooms.entered(ROOM, 1, 1, G1, 1)
    rooms.entered(ROOM, 2, 2, G2, 1)
    said(rooms, 1, is_reliable=True)
    said(rooms, 2, is_reliable=True)
    first, second = taken(rooms, G1), taken(rooms, G2)
    with pytest.raises(Overloaded, match="2 reliable messages of the room are on their way") as refused:
        said(rooms, 3, is_reliable=True)
    assert refused.value.code == "busy"
    assert rooms.ready() == [], "nobody got it"
    rooms.settled(G1, first)
    with pytest.raises(Overloaded):
        said(rooms, 3, is_reliable=True)
    rooms.settled(G2, second[:1])
    said(rooms, 3, is_reliable=True)
    assert ids(rooms, G1) == [3]


def test_a_gateway_that_acks_nothing_holds_up_only_its_own_rooms() -> None:
    rooms = make(gateway_pending_max=2)
    rooms.entered(ROOM, 1, 1, G1, 1)
    rooms.entered(OTHER, 1, 1, G1, 1)
    rooms.entered(9, 2, 2, G2, 1)
    said(rooms, 1, is_reliable=True)
    said(rooms, 2, is_reliable=True)
    rooms.take(G1)
    with pytest.raises(Overloaded, match="2 reliable messages wait for one gateway"):
        said(rooms, 3, room=OTHER, is_reliable=True)
    said(rooms, 3, room=9, is_reliable=True)
    assert ids(rooms, G2) == [3]


def test_a_copy_of_a_message_that_is_under_way_is_not_sent_again() -> None:
    rooms = make()
    rooms.entered(ROOM, 1, 1, G1, 1)
    said(rooms, 1, is_reliable=True)
    said(rooms, 1, is_reliable=True)
    assert ids(rooms, G1) == [1]
