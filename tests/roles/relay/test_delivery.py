"""What a relay delivers, to whom, how often, and what it notes of it."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from pixiu.config import InboxSettings
from pixiu.model.errors import Unavailable
from pixiu.model.inbox import NEED_ACK, NEED_ALL, NEED_NOTIFICATION, NEED_OFFLINE, Page
from pixiu.model.pixiu_pb2 import ChatMsgStatus, MsgChat
from tests.roles.relay.scene import Client, Scene

if TYPE_CHECKING:
    from pixiu.machines.delivery import Push
    from pixiu.model.wake import Wake


def test_a_live_message_is_pushed_without_a_read_and_leaves_the_inbox_when_it_is_acked() -> None:
    scene = Scene()
    client = scene.connect(1)
    scene.run()
    reads = scene.relay.counters.reads
    scene.say(1)
    assert client.useqs == [1]
    assert scene.waiting(1) == [1]
    scene.run()
    assert scene.waiting(1) == []
    assert scene.bodies.get([client.pushes[0].message_id]) == {}
    assert scene.relay.counters.reads == reads
    assert (scene.rows("handed"), scene.rows("acked")) == ([(1, "web", 1, 1)], [(1, "web", 1, 1)])


@pytest.mark.feature("P04", "X64")
def test_a_backlog_arrives_in_order_once_each() -> None:
    scene = Scene()
    for _ in range(300):
        scene.say(1)
    client = scene.connect(1)
    assert client.pushes == []  # never within connect
    scene.run(100)
    assert client.useqs == list(range(1, 301))
    assert scene.waiting(1) == []
    assert len(scene.rows("acked")) <= 5  # rows of a turn are merged


@pytest.mark.feature("P03")
def test_a_wake_of_two_platforms_reaches_both_and_of_one_only_that_one() -> None:
    scene = Scene()
    mobile, desktop = scene.connect(1, "mobile"), scene.connect(1, "desktop")
    scene.run()
    both = [scene.store(1, platform, message_id=5) for platform in ("mobile", "desktop")]
    scene.relay.wake([*both, scene.store(1, "desktop", message_id=6)])
    assert (mobile.message_ids, desktop.message_ids) == ({5}, {5, 6})


@pytest.mark.feature("P08")
def test_only_the_platform_that_failed_is_sent_to_again() -> None:
    scene = Scene()
    mobile, desktop = scene.connect(1, "mobile"), scene.connect(1, "desktop", acks_after_ms=None)
    scene.run()
    scene.relay.wake([scene.store(1, platform, message_id=5) for platform in ("mobile", "desktop")])
    scene.run(5_000)
    assert mobile.useqs == [1]
    assert desktop.useqs == [1, 1, 1]
    assert (scene.waiting(1, "mobile"), scene.waiting(1, "desktop")) == ([], [1])
    assert set(scene.rows("resent")) == {(1, "desktop", 1, 1)}


@pytest.mark.feature("P09", "P10", "P14", "C26")
def test_a_client_that_never_acks_is_sent_to_so_often_then_kicked_and_its_messages_wait() -> None:
    scene = Scene()
    client = scene.connect(1, acks_after_ms=None)
    scene.run()
    for _ in range(3):
        scene.say(1)
    scene.run(60_000)
    assert client.closed == "no_ack"
    tries = [frame for frame in client.frames if frame == [1, 2, 3]]
    assert len(tries) == scene.settings.tries_max
    assert [push.is_resend for push in client.pushes] == [False] * 3 + [True] * 9
    assert scene.waiting(1) == [1, 2, 3]
    assert scene.sessions.of(1) == []
    assert scene.rows("acked") == []
    assert scene.relay.counters.resends == 9
    scene.connect(1)
    scene.run()
    assert scene.waiting(1) == []


def test_session_stays_while_its_gateway_reports_that_it_still_writes() -> None:
    scene = Scene()
    client = scene.connect(1, acks_after_ms=None)
    scene.run()
    scene.say(1)
    push = client.push

    def pushed(session_id: int, pushes: list[Push]) -> None:
        push(session_id, pushes)
        scene.scheduler.soon(lambda: scene.relay.writing(session_id))

    client.push = pushed  # type: ignore[method-assign]
    scene.run(60_000)
    assert client.closed == "" and scene.waiting(1) == [1]
    assert 25 <= len(client.frames) <= 30, "it is asked once per ack timeout"
    client.push = push  # type: ignore[method-assign]
    scene.run(10_000)
    assert client.closed == "no_ack"
    scene.relay.writing(client.session_id)  # too late, and harmless


@pytest.mark.feature("P09")
def test_repeats_are_at_least_the_ack_timeout_apart() -> None:
    scene = Scene()
    times: list[int] = []
    client = scene.connect(1, acks_after_ms=None)
    client.push = lambda session_id, pushes: times.append(scene.clock.monotonic_us())  # type: ignore[method-assign]
    scene.run(13)
    scene.say(1)
    scene.run(30_000)
    assert len(times) == 1 + scene.settings.tries_max
    gaps = [(later - earlier) / 1000 for earlier, later in pairwise(times)]
    assert all(2_000 <= gap <= 2_100 for gap in gaps)


@pytest.mark.feature("B20", "P25", "X65")
def test_what_was_not_acked_before_the_connection_broke_is_sent_again_after_login() -> None:
    scene = Scene()
    client = scene.connect(1, acks_after_ms=None)
    scene.run()
    scene.say(1)
    scene.relay.disconnect(client.session_id)
    scene.run(5_000)
    assert client.useqs == [1]
    assert scene.waiting(1) == [1]
    again = scene.connect(1)
    scene.run()
    assert again.message_ids == client.message_ids  # the same id: a client shows it once
    assert scene.waiting(1) == []


@pytest.mark.feature("P21", "B20", "X64")
def test_a_flush_goes_page_by_page_and_ends_with_the_connection() -> None:
    scene = Scene(InboxSettings(window=80, read_limit=80))
    for _ in range(205):
        scene.say(1)
    client = scene.connect(1, acks_after_ms=None)
    scene.run()
    assert client.frames == [list(range(1, 81))]
    scene.relay.ack(client.session_id, 80)
    scene.relay.disconnect(client.session_id)
    scene.run()
    assert len(scene.waiting(1)) == 125
    rest = scene.connect(1)
    scene.run()
    assert [len(frame) for frame in rest.frames] == [80, 45]
    assert scene.waiting(1) == []


@pytest.mark.feature("P21", "P19")
def test_pages_of_expired_entries_do_not_stop_a_flush() -> None:
    scene = Scene(InboxSettings(window=8, read_limit=8))
    old = scene.settings.expire_ms + 1
    for _ in range(1_000):  # more pages than one turn reads
        scene.store(1, age_ms=old)
    scene.store(1)
    client = scene.connect(1)
    scene.run()
    assert client.useqs == [1001]
    assert len(scene.rows("expired")) > 1
    assert sum(through - first + 1 for _, _, first, through in scene.rows("expired")) == 1_000
    assert scene.waiting(1) == []
    scene.check_rows()


@pytest.mark.feature("P22")
@pytest.mark.parametrize("options", range(8))
@pytest.mark.parametrize("is_there", [True, False])
def test_each_combination_of_options(options: int, is_there: bool) -> None:
    scene = Scene()
    client = scene.connect(1, acks_after_ms=None) if is_there else None
    scene.run()
    scene.say(1, options=options)
    scene.run()
    if client is not None:
        assert client.useqs == [1]
        assert client.pushes[0].needs_ack == bool(options & NEED_ACK)
        assert scene.waiting(1) == ([1] if options & NEED_ACK else [])
        assert scene.away == []
        assert scene.rows("dead") == []
    else:
        assert scene.waiting(1) == ([1] if options & NEED_OFFLINE else [])
        assert scene.rows("dead") == ([] if options & NEED_OFFLINE else [(1, "web", 1, 1)])
        assert scene.away == ([(1, {"web": [1]})] if options & NEED_NOTIFICATION else [])
    scene.check_rows()


@pytest.mark.feature("C30")
def test_from_a_backlog_every_message_needs_its_ack() -> None:
    scene = Scene()
    scene.say(1, options=NEED_OFFLINE)
    client = scene.connect(1, acks_after_ms=None)
    scene.run()
    assert client.useqs == [1]
    assert scene.waiting(1) == [1]


@pytest.mark.feature("T2")
def test_who_is_away_is_told_once_per_user_with_all_platforms() -> None:
    scene = Scene()
    scene.connect(1, "web")
    scene.run()
    scene.relay.wake(
        [scene.store(1, platform, message_id=9) for platform in ("web", "mobile", "desktop")]
        + [scene.store(2, "mobile", message_id=9), scene.store(1, "mobile", message_id=10)]
    )
    assert scene.away == [(1, {"mobile": [1, 2], "desktop": [1]}), (2, {"mobile": [1]})]
    assert scene.relay.counters.away == 4


@pytest.mark.feature("T8", "C28")
def test_slow_acks_hold_up_nobody_and_what_is_in_flight_is_bounded() -> None:
    scene = Scene(InboxSettings(window=50))
    clients = [scene.connect(user, acks_after_ms=1_000) for user in range(1, 101)]
    scene.run()
    for _ in range(50):
        scene.relay.wake([scene.store(user) for user in range(1, 101)])
    scene.run(1_100)
    # 100 clients with an ack latency of one second: 5,000 messages in that second, where one at a time would give 100.
    assert scene.relay.counters.pushes == 5_000
    assert all(scene.waiting(user) == [] for user in range(1, 101))
    for _ in range(200):
        scene.relay.wake([scene.store(1)])
    assert len(clients[0].useqs) == 50 + 50  # the window, and no more, is on its way
    scene.run(10_000)
    assert clients[0].useqs == list(range(1, 251))
    assert scene.waiting(1) == []


@pytest.mark.feature("T8")
def test_a_crash_between_delivery_and_ack_delivers_again() -> None:
    scene = Scene()
    client = scene.connect(1, acks_after_ms=1_000)
    scene.run()
    for _ in range(10):
        scene.say(1)
    scene.relay = scene.new_relay()  # the old one is gone with all it knew
    again = scene.connect(1)
    scene.run()
    assert again.message_ids == client.message_ids
    assert scene.waiting(1) == []


def test_a_cursor_starts_behind_what_the_client_holds() -> None:
    scene = Scene()
    for _ in range(10):
        scene.say(1)
    client = scene.connect(1, cursor=7)
    scene.run()
    assert client.useqs == [8, 9, 10]
    assert scene.waiting(1) == []


def test_a_store_that_is_down_is_asked_again() -> None:
    scene = Scene()
    for _ in range(3):
        scene.say(1)
    real = scene.inboxes.after
    calls: list[int] = []

    def after(user: int, platform: str, after: int, limit: int) -> Page:
        calls.append(scene.clock.monotonic_us() // 1000)
        if len(calls) < 4:
            raise Unavailable("down")
        return real(user, platform, after, limit)

    scene.inboxes.after = after  # type: ignore[method-assign]
    client = scene.connect(1)
    scene.run(6_000)
    assert client.useqs == [1, 2, 3]
    waits = [later - earlier for earlier, later in pairwise(calls[:4])]
    assert waits == sorted(waits)
    assert waits[0] >= 500
    assert waits[2] >= 2_000


def test_a_lost_body_is_shown_as_a_tombstone_and_counted() -> None:
    scene = Scene()
    scene.store(1, has_body=False)
    scene.store(1)
    client = scene.connect(1)
    scene.run(10_000)
    assert client.useqs == [1, 2]
    assert MsgChat.FromString(client.pushes[0].body).status == ChatMsgStatus.DELETED
    assert scene.relay.counters.bodies_lost == 1
    assert scene.waiting(1) == []


def test_a_flush_reads_what_a_lost_wake_would_have_told() -> None:
    scene = Scene()
    client = scene.connect(1)
    scene.run()
    scene.store(1)
    assert scene.relay.flush(1, "web")
    assert client.useqs == [1]


@pytest.mark.feature("X67")
def test_heartbeats_read_now_and_then() -> None:
    scene = Scene()
    client = scene.connect(1)
    scene.run()
    scene.store(1)
    for _ in range(10):
        assert scene.relay.heartbeat(client.session_id)
    assert client.useqs == [1]


@pytest.mark.feature("P19")
def test_the_sweep_notes_what_has_expired_page_by_page() -> None:
    scene = Scene(InboxSettings(expire_ms=86_400_000))
    for user in range(1, 1_201):
        scene.store(user, age_ms=86_400_001 if user % 100 == 0 else 0)
    for _ in range(4_500):
        scene.store(5_000, age_ms=86_400_001)
    scene.store(5_000)
    scene.relay.start()
    scene.run(61_000)
    assert [row for row in scene.rows("expired") if row[0] < 5_000] == [
        (user, "web", 1, 1) for user in range(100, 1_201, 100)
    ]
    assert sum(through - first + 1 for user, _, first, through in scene.rows("expired") if user == 5_000) == 4_500
    assert scene.waiting(5_000) == [4_501]
    assert scene.waiting(100) == []
    assert scene.waiting(99) == [1]
    written = len(scene.ledgers)
    scene.run(120_000)
    assert len(scene.ledgers) == written  # nothing is told twice


def test_rows_of_a_little_while_are_one_record() -> None:
    scene = Scene(ledger_after_ms=20)
    clients = [scene.connect(user) for user in range(1, 21)]
    scene.run()
    scene.relay.wake([scene.store(user) for user in range(1, 21)])
    scene.run(10)
    scene.relay.wake([scene.store(user) for user in range(1, 21)])
    assert scene.ledgers == []
    scene.run(15)
    assert len(scene.ledgers) == 1
    assert (len(scene.rows("handed")), len(scene.rows("acked"))) == (20, 20)
    assert all(client.useqs == [1, 2] for client in clients)


def test_whoever_leaves_has_what_they_acked_written_at_once() -> None:
    scene = Scene(ledger_after_ms=10_000)
    client = scene.connect(1)
    scene.run()
    scene.say(1)
    scene.run()
    assert scene.rows("acked") == []
    scene.relay.disconnect(client.session_id)
    scene.run()
    assert scene.rows("acked") == [(1, "web", 1, 1)]


def interleave(seed: int, scene: Scene, user: int, *, looks_first: bool = False) -> Client:
    """Three messages and some logins, in a random order of their steps.

    A message is stored, then woken. ``looks_first`` is the order that loses: see who is there, then store, and wake
    those who were seen.
    """
    rng = random.Random(seed)
    waiting: list[Wake | bool] = []
    client = Client(scene)
    steps = ["begin", "end"] * 3 + ["login"] * rng.randint(1, 3)
    rng.shuffle(steps)
    for step in [*steps, "end", "end", "end"]:
        is_there = bool(scene.relay.sessions_of(user))
        if step == "login" and is_there:
            scene.relay.disconnect(client.session_id)
        elif step == "login":
            scene.connect(user, client=client)
        elif step == "begin":
            waiting.append(is_there if looks_first else scene.store(user, with_bodies=rng.random() < 0.5))
        elif waiting:
            begun = waiting.pop(rng.randrange(len(waiting)))
            wake = scene.store(user) if isinstance(begun, bool) else begun
            if begun:
                scene.relay.wake([wake])
        if rng.random() < 0.5:
            scene.scheduler.run_ready()
        if rng.random() < 0.1:
            scene.run(1)
    if not scene.relay.sessions_of(user):
        scene.connect(user, client=client)
    return client


@pytest.mark.sim
@pytest.mark.feature("T6", "B19", "C7", "X67")
@pytest.mark.parametrize("first", range(1, 10_000, 2_500))
def test_no_interleaving_of_store_and_login_loses_a_message(first: int) -> None:
    scene = Scene()
    clients = {user: interleave(user, scene, user) for user in range(first, first + 2_500)}
    scene.run(50)  # no login, no heartbeat, and no timer has helped
    for user, client in clients.items():
        assert sorted(set(client.useqs)) == [1, 2, 3], f"seed {user}: {client.useqs}"
        assert len(client.message_ids) == 3
        assert scene.waiting(user) == []


@pytest.mark.sim
@pytest.mark.feature("T6", "B19")
def test_to_look_who_is_there_before_storing_would_lose_some() -> None:
    scene = Scene()
    clients = [interleave(user, scene, user, looks_first=True) for user in range(1, 201)]
    scene.run(50)
    assert any(len(client.message_ids) < 3 for client in clients)


def test_the_window_is_a_setting() -> None:
    for window in (1, 7):
        scene = Scene(replace(InboxSettings(), window=window))
        client = scene.connect(1, acks_after_ms=None)
        scene.run()
        for _ in range(20):
            scene.say(1)
        assert len(client.useqs) == window


def test_the_timers_of_many_are_one_timer_of_the_scheduler() -> None:
    scene = Scene()
    for user in range(1, 501):
        scene.connect(user, acks_after_ms=None)
    scene.run()
    scene.relay.wake([scene.store(user, options=NEED_ALL) for user in range(1, 501)])
    assert sum(1 for _, _, timer in scene.scheduler._timers if timer.call is not None) <= 3
    scene.run(2_100)
    assert scene.relay.counters.resends == 500
