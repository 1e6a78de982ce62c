"""Who is connected: policies, kicks, repairs, and who completes a delivery."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pixiu.backends.memory.sessions import MemorySessions
from pixiu.config import InboxSettings
from pixiu.model.errors import ConfigError, Unavailable
from pixiu.model.session import Session
from pixiu.roles.relay import METRICS, read_numbers
from pixiu.roles.relay.leaving import FEW
from tests.roles.relay.scene import GATEWAY, Scene


@pytest.mark.feature("P13", "C4")
def test_a_second_login_on_a_single_platform_kicks_the_first_and_no_other_platform() -> None:
    scene = Scene()
    web, first = scene.connect(1, "web"), scene.connect(1, "mobile", "a")
    second = scene.connect(1, "mobile", "b")
    assert first.closed == "new_session"
    assert (second.closed, web.closed) == ("", "")
    assert {session.session_id for session in scene.sessions.of(1)} == {web.session_id, second.session_id}
    assert scene.relay.counters.kicks == 1


@pytest.mark.feature("P13", "C4")
def test_beyond_n_sessions_the_oldest_goes() -> None:
    scene = Scene(InboxSettings(sessions_max=3))
    clients = [scene.connect(1, "web", f"device {number}") for number in range(5)]
    assert [client.closed for client in clients] == ["new_session", "new_session", "", "", ""]


@pytest.mark.feature("C4")
def test_the_same_device_replaces_itself_where_there_is_room_for_others() -> None:
    scene = Scene()
    first, other = scene.connect(1, "web", "laptop"), scene.connect(1, "web", "desk")
    scene.connect(1, "web", "laptop")
    assert (first.closed, other.closed) == ("new_session", "")


def test_devices_without_a_name_are_different_devices() -> None:
    scene = Scene()
    first = scene.connect(1, "web", "")
    scene.connect(1, "web", "")
    assert first.closed == ""


@pytest.mark.feature("C3")
def test_the_newest_session_has_the_largest_number() -> None:
    scene = Scene()
    sessions = [scene.connect(1, "web", device).session for device in "abc"]
    numbers = [session.number for session in sessions if session is not None]
    assert numbers == sorted(set(numbers))
    assert [session.device for session in scene.relay.sessions_of(1)] == ["c", "b", "a"]


def test_sessions_at_other_gateways_are_kicked_there() -> None:
    scene = Scene()
    epoch = scene.sessions.begin_epoch("gateway-2")
    scene.sessions.add(Session(77, 1, "mobile", "x", scene.sessions.next_number(1), "gateway-2", epoch))
    scene.connect(1, "mobile", "y")
    assert scene.kicked_elsewhere == [(77, "new_session")]


@pytest.mark.feature("P12", "E42")
def test_all_sessions_get_a_message_and_the_newest_completes_it() -> None:
    scene = Scene()
    older, newer = scene.connect(1, "web", "a"), scene.connect(1, "web", "b", acks_after_ms=None)
    scene.run()
    scene.say(1)
    scene.run()
    assert (older.useqs, newer.useqs) == ([1], [1])
    assert scene.waiting(1) == [1]  # the older one has acked, which completes nothing
    scene.run(2_100)
    assert newer.useqs == [1, 1]
    assert older.useqs == [1]
    scene.relay.ack(newer.session_id, 1)
    scene.run()
    assert scene.waiting(1) == []


@pytest.mark.feature("P12")
def test_when_the_newest_goes_the_next_newest_takes_over() -> None:
    scene = Scene()
    older, newer = scene.connect(1, "web", "a"), scene.connect(1, "web", "b", acks_after_ms=None)
    scene.run()
    scene.say(1)
    scene.run()
    scene.relay.disconnect(newer.session_id)
    scene.run()
    assert older.message_ids == {1}
    assert scene.waiting(1) == []


def test_what_a_session_sent_itself_is_pushed_to_its_siblings_only() -> None:
    scene = Scene()
    older, newer = scene.connect(1, "web", "a"), scene.connect(1, "web", "b")
    scene.run()
    scene.say(1, session=newer.session_id)
    scene.say(1, session=older.session_id)
    scene.say(1)
    scene.run()
    assert (older.useqs, newer.useqs) == ([1, 3], [2, 3])
    assert older.pushes[-1].previous_useq <= 1
    assert scene.waiting(1) == []
    assert scene.rows("handed") == [(1, "web", 2, 3)]


@pytest.mark.feature("C27")
def test_a_sibling_that_lags_is_told_to_resync_and_gets_no_more_until_it_has_acked() -> None:
    scene = Scene(InboxSettings(window=4, read_limit=4))
    older, newer = scene.connect(1, "web", "a", acks_after_ms=None), scene.connect(1, "web", "b")
    scene.run()
    for _ in range(30):
        scene.say(1)
        scene.run(1)
    assert newer.useqs == list(range(1, 31))
    assert older.useqs == list(range(1, 10))  # window + read_limit, and the one that showed it
    assert older.events == [{"push": "resync"}]
    scene.relay.ack(older.session_id, 9)
    assert older.events == [{"push": "resync"}] * 2
    scene.say(1)
    assert older.useqs[-1] == 31
    assert older.pushes[-1].previous_useq > 9  # it sees what it has missed


@pytest.mark.feature("P15", "C8")
def test_sessions_of_a_dead_gateway_are_removed_when_they_are_met_and_the_message_waits() -> None:
    scene = Scene()
    epoch = scene.sessions.begin_epoch("gateway-2")
    for user in (1, 2):
        scene.sessions.add(Session(70 + user, user, "web", "", scene.sessions.next_number(user), "gateway-2", epoch))
    scene.say(1)
    assert scene.away == []  # another gateway has it
    scene.sessions.end_epoch("gateway-2")
    scene.say(2)
    assert scene.away == [(2, {"web": [1]})]
    assert scene.sessions.of(2) == []
    assert scene.waiting(2) == [1]


@pytest.mark.feature("P15")
def test_a_relay_that_starts_again_has_none_of_its_old_sessions() -> None:
    scene = Scene()
    scene.connect(1)
    scene.relay = scene.new_relay()
    assert scene.sessions.of(1) == []
    scene.say(1)
    assert scene.away == [(1, {"web": [1]})]


@pytest.mark.feature("P16")
def test_a_session_that_this_gateway_does_not_know_is_removed_by_the_first_push() -> None:
    scene = Scene()
    forged = Session(999, 1, "web", "", scene.sessions.next_number(1), GATEWAY, scene.relay.epoch)
    scene.sessions.add(forged)
    scene.say(1)
    assert scene.sessions.of(1) == []
    assert scene.waiting(1) == [1]
    assert scene.away == [(1, {"web": [1]})]


@pytest.mark.feature("P17")
def test_tasks_for_a_session_that_is_gone_end_quietly_and_leave_nothing() -> None:
    scene = Scene()
    forged = Session(999, 1, "web", "", scene.sessions.next_number(1), GATEWAY, scene.relay.epoch)
    scene.sessions.add(forged)
    assert not scene.relay.kick(1, 999, "admin")
    assert scene.sessions.of(1) == []
    assert not scene.relay.kick(1, 999, "admin")
    assert not scene.relay.flush(1, "web")
    assert not scene.relay.disconnect(999)
    assert not scene.relay.ack(999, 5)
    assert not scene.relay.heartbeat(999)


def test_a_kick_names_its_reason_and_only_its_own_user() -> None:
    scene = Scene()
    client = scene.connect(1)
    assert not scene.relay.kick(2, client.session_id, "admin")
    assert scene.relay.kick(1, client.session_id, "admin")
    assert client.closed == "admin"
    assert scene.sessions.of(1) == []


@pytest.mark.feature("E43")
def test_a_late_logout_of_an_older_session_leaves_the_newer_one_alone() -> None:
    scene = Scene()
    older, newer = scene.connect(1, "web", "a"), scene.connect(1, "web", "b")
    scene.run()
    scene.relay.disconnect(older.session_id)
    scene.say(1)
    scene.run()
    assert newer.useqs == [1]
    assert scene.waiting(1) == []


def test_tell_reaches_all_sessions_of_a_user() -> None:
    scene = Scene()
    clients = [scene.connect(1, "web", "a"), scene.connect(1, "web", "b"), scene.connect(1, "mobile")]
    stranger = scene.connect(2)
    event = {"push": "typing", "from": "7"}
    assert scene.relay.tell(1, event) == 3
    assert [client.events for client in clients] == [[event]] * 3
    assert stranger.events == []
    assert scene.relay.tell(3, event) == 0


@pytest.mark.feature("P26")
def test_a_stop_leaves_no_session_behind() -> None:
    scene = Scene()
    clients = [scene.connect(user) for user in range(1, 6)]
    scene.run()
    scene.say(1)
    scene.relay.stop()
    assert [client.closed for client in clients] == ["shutdown"] * 5
    assert all(scene.sessions.of(user) == [] for user in range(1, 6))
    assert scene.rows("handed") == [(1, "web", 1, 1)]


@pytest.mark.feature("B18", "T7", "C9")
def test_a_node_that_was_frozen_closes_a_share_and_tells_the_rest_to_resync() -> None:
    scene = Scene(resync_share=0.25)
    scene.relay.start()
    clients = [scene.connect(user) for user in range(1, 9)]
    scene.run()
    old_epoch = scene.relay.epoch
    for user in range(1, 9):
        scene.store(user)  # the wake went nowhere: this node was thought to be dead
    scene.sessions.end_epoch(GATEWAY)
    scene.clock.now_us += 11_000_000
    scene.run(3_000)
    assert [client.closed for client in clients].count("resync") == 2
    stayed = [client for client in clients if not client.closed]
    assert all(client.events == [{"push": "resync"}] for client in stayed)
    assert all(client.message_ids for client in stayed)
    assert scene.relay.epoch > old_epoch
    for client in stayed:
        assert client.session is not None
        (session,) = scene.sessions.of(client.session.user)
        assert session.epoch == scene.relay.epoch
    for client in clients:  # those who were closed come back, and nothing is lost
        if client.closed:
            client.closed = ""
            assert client.session is not None
            scene.connect(client.session.user, client=client)
    scene.run()
    assert all(len(client.message_ids) == 1 for client in clients)
    assert all(scene.waiting(user) == [] for user in range(1, 9))


def test_a_node_that_was_only_slow_does_not_resync() -> None:
    scene = Scene()
    scene.relay.start()
    client = scene.connect(1)
    scene.run(60_000)
    scene.clock.now_us += 5_000_000
    scene.run(10_000)
    assert client.events == []
    assert scene.relay.counters.resyncs == 0


def test_numbers_by_platform_are_read_and_nonsense_is_refused() -> None:
    assert read_numbers("mobile:1, web:5,", setting="s", at_least=1) == {"mobile": 1, "web": 5}
    assert read_numbers("", setting="s", at_least=1) == {}
    assert read_numbers("desktop:80, mobile:-1", setting="s", at_least=-1) == {"desktop": 80, "mobile": -1}
    for text in ("mobile", "mobile:", ":1", "mobile:one", "mobile:1:2", "mobile:²", "mobile:0", "web:1, web:2"):
        with pytest.raises(ConfigError, match=r"inbox\.x"):
            read_numbers(text, setting="inbox.x", at_least=1)
    with pytest.raises(ConfigError, match="sessions_max_by_platform"):
        Scene(replace(InboxSettings(), sessions_max_by_platform="mobile=1"))


@pytest.mark.feature("B19")
def test_a_message_between_a_login_and_its_backlog_does_not_come_first() -> None:
    """A client that held the fourth before the first three would take those for repeats, and ack them."""
    scene = Scene()
    older = scene.connect(1, acks_after_ms=None)
    scene.run()
    for _ in range(3):
        scene.say(1)
    newer = scene.connect(1)
    assert scene.say(1) == 4
    scene.run(100)
    assert (older.useqs[:4], newer.useqs) == ([1, 2, 3, 4], [1, 2, 3, 4])
    assert scene.waiting(1) == []


@pytest.mark.feature("B19")
def test_nor_does_it_where_the_login_is_overtaken_by_another() -> None:
    scene = Scene()
    scene.connect(1, acks_after_ms=None)
    scene.run()
    for _ in range(3):
        scene.say(1)
    overtaken, newest = scene.connect(1), scene.connect(1)
    scene.say(1)
    scene.run(100)
    assert overtaken.useqs == newest.useqs == [1, 2, 3, 4]


def test_every_metric_has_its_number() -> None:
    scene = Scene()
    scene.connect(1)
    scene.run()
    scene.say(1)
    scene.say(2)
    scene.run()
    numbers = scene.relay.counters.snapshot()
    assert set(numbers) == {metric.name for metric in METRICS}
    assert numbers["pixiu_relay_sessions"] == 1
    assert numbers["pixiu_relay_pushes_total"] == 1
    assert numbers["pixiu_relay_acks_total"] == 1
    assert numbers["pixiu_relay_away_total"] == 1


def test_nothing_is_kept_of_those_who_have_left() -> None:
    scene = Scene()
    client = scene.connect(1)
    scene.run()
    scene.say(1)
    scene.run()
    scene.relay.disconnect(client.session_id)
    scene.run(5_000)
    assert scene.relay.sessions_of(1) == []
    assert not scene.relay._users
    assert not scene.relay._live
    assert not scene.relay._deliveries._timers._slots


class CountedSessions(MemorySessions):
    """A table that counts what is written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0
        self.epochs_begun = 0

    def add(self, session: Session) -> None:
        self.writes += 1
        super().add(session)

    def remove(self, user: int, session_id: int) -> bool:
        self.writes += 1
        return super().remove(user, session_id)

    def begin_epoch(self, gateway: str) -> int:
        self.epochs_begun += 1
        return super().begin_epoch(gateway)


@pytest.mark.feature("T5", "C8")
@pytest.mark.parametrize(("count", "staying"), [(5_000, 0), (100_000, 300)])
def test_a_hundred_thousand_sessions_that_end_at_once_are_one_new_epoch(count: int, staying: int) -> None:
    scene = Scene(sessions=CountedSessions())
    table = scene.sessions
    assert isinstance(table, CountedSessions)
    clients = []
    for user in range(1, count + 1):
        clients.append(scene.connect(user))
        if user % 5_000 == 0:
            scene.run()
    for user in range(1, 51):
        scene.say(user)
    scene.run(100)
    table.writes = table.epochs_begun = 0
    ledgers, old_epoch = len(scene.ledgers), scene.relay.epoch
    for client in clients[staying:]:
        scene.relay.disconnect(client.session_id)
    scene.run(2_000)
    assert table.epochs_begun == 1 and scene.relay.epoch > old_epoch
    assert table.writes <= 4 * FEW, "and no write for each"
    assert len(scene.ledgers) - ledgers <= 2
    assert scene.relay.counters.sessions == staying
    assert all(not table.of(user) for user in range(staying + 1, count + 1))
    assert all([each.epoch for each in table.of(user)] == [scene.relay.epoch] for user in range(1, staying + 1))
    for user in (60, 400, count):
        scene.say(user)
    scene.run()
    assert [user for user, _ in scene.away] == [user for user in (60, 400, count) if user > staying]
    back = [scene.connect(user) for user in (400, count)]
    scene.run()
    assert [client.useqs for client in back] == [[1], [1]]


@pytest.mark.feature("T5")
def test_where_most_sessions_stay_the_others_leave_in_batches() -> None:
    scene = Scene(sessions=CountedSessions())
    table = scene.sessions
    assert isinstance(table, CountedSessions)
    clients = [scene.connect(user) for user in range(1, 5_001)]
    scene.run()
    table.writes = table.epochs_begun = 0
    for client in clients[:2_000]:
        scene.relay.disconnect(client.session_id)
    assert table.writes == FEW
    scene.run(2_100)
    assert table.writes == 2_000 and not table.epochs_begun
    assert [user for user in range(1, 5_001) if table.of(user)] == list(range(2_001, 5_001))


@pytest.mark.feature("T5", "P13")
def test_who_comes_back_in_the_middle_of_a_storm_has_one_session() -> None:
    scene = Scene()
    clients = [scene.connect(user, "ios", "phone") for user in range(1, 3_001)]
    scene.run()
    for client in clients:
        scene.relay.disconnect(client.session_id)
        user = client.session.user if client.session else 0
        if user % 3 == 0:
            scene.connect(user, "ios", "phone")
    scene.run(3_000)
    for user in range(1, 3_001):
        assert len(scene.sessions.of(user)) == len(scene.relay.sessions_of(user)) == (user % 3 == 0)


@pytest.mark.feature("P26", "T5")
def test_a_stop_with_many_sessions_ends_the_epoch() -> None:
    scene = Scene(sessions=CountedSessions())
    table = scene.sessions
    assert isinstance(table, CountedSessions)
    clients = [scene.connect(user) for user in range(1, 5_001)]
    scene.run()
    table.writes = 0
    scene.relay.stop()
    assert all(client.closed == "shutdown" for client in clients)
    assert all(not table.of(user) for user in range(1, 5_001)) and table.writes <= 4 * FEW


@pytest.mark.feature("P15", "C8")
def test_a_gateway_that_dies_ends_one_epoch_and_writes_nothing_per_session() -> None:
    scene = Scene()
    here = scene.connect(1, "web", "a")
    first = scene.relay.gateway_came("gateway-2")
    there = [scene.relay.connect(user, "web", "b", here, gateway="gateway-2") for user in (1, 2, 3)]
    assert {session.epoch for session in there} == {first}
    removed: list[int] = []
    scene.sessions.remove = lambda user, session_id: bool(removed.append(session_id))  # type: ignore[method-assign,func-returns-value]
    assert scene.relay.gateway_gone("gateway-2") == 3
    assert scene.relay.gateway_gone("gateway-2") == 0
    assert scene.relay.counters.sessions == 1
    assert [scene.relay.is_present(user) for user in (1, 2, 3)] == [True, False, False]
    assert here.closed == "", "sinks of the dead hear nothing, others stay"
    assert not set(removed) - {session.session_id for session in there}
    with pytest.raises(Unavailable):
        scene.relay.connect(2, "web", "b", here, gateway="gateway-2")
    assert scene.relay.gateway_came("gateway-2") > first


@pytest.mark.feature("P16")
def test_a_session_of_a_gateway_of_ours_that_is_not_here_is_removed() -> None:
    scene = Scene()
    epoch = scene.relay.gateway_came("gateway-2")
    scene.sessions.add(Session(99, 7, "web", "x", 1, "gateway-2", epoch))
    assert not scene.relay.kick(7, 99, "gone")
    assert scene.sessions.of(7) == []
