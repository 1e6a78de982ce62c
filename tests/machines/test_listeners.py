"""A gateway's side of rooms: local fan-out, copies, and who hears no more."""

from __future__ import annotations

import pytest

from pixiu.config.rooms import RoomSettings
from pixiu.machines.listeners import Listeners, RoomDelivery
from pixiu.machines.room_link import Frame, Outgoing
from pixiu.machines.rooms import Fan
from pixiu.model.partitions import slices

ROOM, OTHER = 7, 8
SETTINGS = RoomSettings()


def broker(life: int = 1) -> Outgoing:
    return Outgoing(life, resend_ms=100, reliable_ms=10_000)


def fan(message_id: int, *, room: int = ROOM, is_reliable: bool = False) -> Fan:
    return Fan(room, message_id, b"m%d" % message_id, is_reliable)


@pytest.mark.feature("X02")
def test_one_fan_becomes_one_delivery_to_each_session_of_the_room() -> None:
    # X02: 40 members here get it once each; a room without members drops it, and counts.
    listeners = Listeners(SETTINGS)
    for session_id in range(1, 41):
        listeners.enter(ROOM, session_id)
    listeners.enter(OTHER, 41)
    deliveries, ack = listeners.receive("broker", broker().seal([fan(1), fan(2, room=9)], 0), 0)
    assert deliveries == [RoomDelivery(ROOM, tuple(range(1, 41)), [b"m1"])]
    assert ack is None
    assert listeners.nobody == 1


def test_everything_of_a_room_and_class_in_one_frame_is_one_delivery() -> None:
    listeners = Listeners(SETTINGS)
    listeners.enter(ROOM, 1)
    listeners.enter(OTHER, 1)
    frame = broker().seal([fan(1), fan(2, is_reliable=True), fan(3, room=OTHER), fan(4, room=OTHER)], 0)
    deliveries, ack = listeners.receive("broker", frame, 0)
    assert deliveries == [
        RoomDelivery(ROOM, (1,), [b"m1"]),
        RoomDelivery(ROOM, (1,), [b"m2"], is_reliable=True),
        RoomDelivery(OTHER, (1,), [b"m3", b"m4"]),
    ]
    assert ack is not None
    assert ack.through == 1


@pytest.mark.feature("X25")
def test_copies_by_way_of_other_brokers_are_shown_once() -> None:
    # X25: up to three copies, and each of them twice.
    listeners = Listeners(SETTINGS)
    listeners.enter(ROOM, 1)
    got: list[bytes] = []
    for source in ("b1", "b2", "b3"):
        frame = broker().seal([fan(5, is_reliable=True)], 0)
        for _ in range(2):
            deliveries, ack = listeners.receive(source, frame, 0)
            assert ack is not None, "every copy is acked, or it would come for ever"
            got += [body for delivery in deliveries for body in delivery.bodies]
    assert got == [b"m5"]
    assert listeners.repeats == 2


def test_the_same_id_in_another_room_is_not_a_copy() -> None:
    # E6: each slice of a big room brings it to other people.
    listeners = Listeners(SETTINGS)
    listeners.enter(ROOM, 1)
    listeners.enter(OTHER, 2)
    frame = broker().seal([fan(5, is_reliable=True), fan(5, room=OTHER, is_reliable=True)], 0)
    deliveries, _ = listeners.receive("broker", frame, 0)
    assert [delivery.sessions for delivery in deliveries] == [(1,), (2,)]


def test_who_leaves_or_is_gone_hears_no_more() -> None:
    listeners, link = Listeners(SETTINGS), broker()
    for room in (ROOM, OTHER):
        for session_id in (1, 2):
            listeners.enter(room, session_id)
    assert listeners.leave(ROOM, 1)
    assert not listeners.leave(ROOM, 1)
    assert listeners.session_gone(2) == [ROOM, OTHER]
    deliveries, _ = listeners.receive("broker", link.seal([fan(1), fan(2, room=OTHER)], 0), 0)
    assert deliveries == [RoomDelivery(OTHER, (1,), [b"m2"])]


def test_a_fan_for_single_sessions_that_ends_their_listening() -> None:
    listeners, link = Listeners(SETTINGS), broker()
    for session_id in (1, 2):
        listeners.enter(ROOM, session_id)
    end = Fan(ROOM, 9, b"out", is_reliable=True, sessions=(2, 3), is_end=True)
    deliveries, _ = listeners.receive("broker", link.seal([fan(1), end, fan(2)], 0), 0)
    assert deliveries == [
        RoomDelivery(ROOM, (1, 2), [b"m1"]),
        RoomDelivery(ROOM, (2,), [b"out"], is_reliable=True),
        RoomDelivery(ROOM, (1,), [b"m2"]),
    ]
    assert listeners.sessions(ROOM) == (1,)


def test_a_source_that_is_gone_is_forgotten() -> None:
    listeners = Listeners(SETTINGS)
    listeners.enter(ROOM, 1)
    link = broker()
    frame = link.seal([fan(1)], 0)
    listeners.receive("broker", frame, 0)
    assert listeners.receive("broker", frame, 0) == ([], None)
    assert listeners.late == 1
    listeners.source_gone("broker")
    assert listeners.late == 1, "what was counted stays counted"
    assert [each.bodies for each in listeners.receive("broker", frame, 0)[0]] == [[b"m1"]], "it is taken for new"


@pytest.mark.feature("X23", "X25")
@pytest.mark.parametrize("has_ended", [False, True])
@pytest.mark.parametrize("order", ["room first", "one slice first", "slices first"])
def test_what_comes_over_a_big_room_and_its_slices_is_shown_once_to_each(order: str, *, has_ended: bool) -> None:
    listeners = Listeners(RoomSettings())
    one, other = slices(0)[1], slices(0)[2]
    for session_id, piece in ((1, one), (2, other)):
        listeners.enter(9, session_id)
        listeners.join(9, piece, session_id, overlaps=True)
    whole, pieces = Fan(9, 71, b"x", is_reliable=True), [Fan(each, 71, b"x", is_reliable=True) for each in (one, other)]
    fans = {
        "room first": [whole, *pieces], "one slice first": [pieces[0], whole, pieces[1]],
        "slices first": [*pieces, whole],
    }[order]  # fmt: skip
    shown: list[int] = []
    for number, fan in enumerate(fans, 1):
        deliveries, _ = listeners.receive(f"broker {number}", Frame(1, 1, 1, 1, [fan]), 0)
        shown += [session_id for delivery in deliveries for session_id in delivery.sessions]
        if has_ended:  # a copy may come when the room itself is told of no more
            listeners.overlaps_no_more(9, slices(0))
    assert sorted(shown) == [1, 2]


@pytest.mark.feature("X25", "X71")
def test_what_relays_send_for_single_sessions_is_shown_once_to_each_whatever_the_room_has_become() -> None:
    listeners = Listeners(RoomSettings())
    piece = slices(0)[1]
    for session_id in (1, 2):
        listeners.enter(9, session_id)
        listeners.join(9, piece, session_id, overlaps=True)
    frames = [(9, (1,)), (piece, (1, 2)), (piece, (1,)), (9, (2,)), (piece, (2,))]
    shown: list[int] = []
    for number, (room, sessions) in enumerate(frames, 1):
        sent = Fan(room, 71, b"x", is_reliable=True, sessions=sessions)
        deliveries, _ = listeners.receive(f"relay {number}", Frame(1, 1, 1, 1, [sent]), 0)
        shown += [session_id for delivery in deliveries for session_id in delivery.sessions]
        if number == 3:
            listeners.overlaps_no_more(9, slices(0))
    assert shown == [1, 2]


def test_lives_of_brokers_that_are_over_are_forgotten_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pixiu.machines.room_link.SOURCES_MAX", 3)
    listeners, stays = Listeners(SETTINGS), broker()
    listeners.enter(ROOM, 1)
    for life in range(1, 10):
        restarted = broker(life)
        first, second = restarted.seal([fan(2 * life)], 0), restarted.seal([fan(2 * life + 1)], 0)
        listeners.receive(f"broker {life}", second, 0)
        listeners.receive(f"broker {life}", first, 0)  # overtaken
        deliveries, _ = listeners.receive("stays", stays.seal([fan(100 + life, is_reliable=True)], 0), 0)
        assert [each.bodies for each in deliveries] == [[b"m%d" % (100 + life)]]
    assert len(listeners._sources) == 3 and "stays" in listeners._sources
    assert listeners.late == 9, "what was counted stays counted"
