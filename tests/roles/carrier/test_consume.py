"""The carrier: order, lanes, commits, takeovers, and what it never does."""

import logging

import pytest

from pixiu.config.messaging import CarrierSettings
from pixiu.model.conversation import Direct
from pixiu.model.errors import Unavailable
from pixiu.model.pixiu_pb2 import MemberChanged, Record
from pixiu.model.timeline import PrivateRow
from pixiu.model.wake import Wake
from pixiu.ports.log import DEAD, MAIN, LogRecord
from pixiu.ports.stores import Lane, Stores
from pixiu.roles.carrier.dead_letters import dead_letters
from pixiu.roles.carrier.reached import Limits
from tests.roles.carrier.world import (
    ANNA,
    BERT,
    CARL,
    World,
    content,
    group_made,
    member,
    opened,
    receipt,
    say,
    send,
    user,
)

LIMITS_OF_TWO = Limits(2)


class Down:
    """A port that can be switched off: then every call fails."""

    def __init__(self, port: object) -> None:
        self._port = port
        self.is_down = False
        self.calls_left: int | None = None
        """Fail once, after this many more calls."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("_"):
            raise AttributeError(name)
        method = getattr(self._port, name)

        def call(*args: object, **kwargs: object) -> object:
            if self.calls_left is not None:
                self.calls_left -= 1
                if self.calls_left < 0:
                    self.calls_left = None
                    raise Unavailable("the store hiccuped")
            if self.is_down:
                raise Unavailable("the store is down")
            return method(*args, **kwargs)

        return call


def people(world: World | None = None) -> World:
    return (world or World()).start(user(ANNA), user(BERT), user(CARL))


def switched(world: World, port: str) -> Down:
    """Put a switch before a port; the carrier is made anew to use it."""
    down = Down(getattr(world.stores, port))
    setattr(world.stores, port, down)
    world.carrier = world.new_carrier()
    return down


@pytest.mark.feature("T6")
def test_a_message_is_in_the_stores_before_anyone_is_woken() -> None:
    world = World()
    seen: list[bool] = []

    def wake(wakes: list[Wake]) -> None:
        for each in wakes:
            entries = world.stores.inboxes.after(each.user, each.platform, 0, 10).entries
            bodies = world.stores.bodies.get([entry.message_id for entry in each.entries])
            seen.append(set(each.entries) <= set(entries) and len(bodies) == len(each.entries))

    world.wake = wake
    people(world)
    world.write(send(ANNA, BERT))
    assert seen == [True, True]


def test_records_are_applied_in_order_and_positions_follow() -> None:
    world = people()
    world.log.publish("someone.elses", b"not ours")
    said = world.write(send(ANNA, BERT), send(BERT, ANNA))
    assert [wake.entries[-1].message_id for wake in world.wakes[-2:]] == [said[1], said[1]]
    assert world.carrier.applied_all == world.log.committed
    assert [world.carrier.applied(lane) for lane in Lane] == [world.log.committed] * 4
    assert not world.carrier.is_behind
    assert world.carrier.problems() == []


def test_whoever_waits_for_an_event_is_called_when_all_lanes_have_it() -> None:
    world = people()
    called: list[int] = []
    event_id = world.log.committed + 1
    world.carrier.when_applied(event_id, lambda: called.append(len(world.stores.timelines.private_forward(BERT))))
    world.run()
    assert called == []
    world.write(send(ANNA, BERT))
    assert called == [1]
    world.carrier.when_applied(event_id, lambda: called.append(-1))
    assert called == [1]
    world.run()
    assert called == [1, -1]


def test_the_stores_are_made_durable_every_so_often_and_at_the_end() -> None:
    world = people(World(CarrierSettings(commit_ms=50)))
    world.run(60)
    done = world.log.committed
    assert world.stores.applied(Lane.INBOXES) == done
    commits = world.carrier.counters.commits
    world.run(1000)
    assert world.carrier.counters.commits == commits
    world.write(send(ANNA, BERT))
    assert world.stores.applied(Lane.INBOXES) == done
    world.carrier.stop()
    assert [world.stores.applied(lane) for lane in Lane] == [done + 1] * 4


def test_much_that_was_applied_is_made_durable_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(CarrierSettings(commit_ms=10_000, commit_bytes=65536))
    people(world)
    assert world.carrier.counters.commits == 0
    monkeypatch.setattr(type(world.stores), "pending_bytes", 65536)
    for _ in range(32):  # it is not looked at behind each of them
        world.write(send(ANNA, BERT))
    assert world.carrier.counters.commits == 1
    assert world.stores.applied(Lane.INBOXES) >= world.log.committed - 32


def test_a_commit_that_fails_is_a_problem_until_it_succeeds() -> None:
    world = people()
    world.run(100)
    commit = world.stores.commit

    def fail(applied: object) -> None:
        raise Unavailable("no space left")

    world.stores.commit = fail  # type: ignore[method-assign]
    world.write(send(ANNA, BERT))
    world.run(100)
    assert world.carrier.problems() == ["commit: no space left"]
    world.stores.commit = commit  # type: ignore[method-assign]
    world.run(2000)
    assert world.carrier.problems() == []
    assert world.stores.applied(Lane.TIMELINES) == world.log.committed


# Lanes.


def test_a_store_that_is_down_holds_up_its_own_lane_only() -> None:
    world = World()
    down = switched(world, "timelines")
    people(world)
    down.is_down = True
    said = world.write(*(send(ANNA, BERT, str(index)) for index in range(20)))
    world.run(5000)
    assert [entry.message_id for entry in world.stores.inboxes.after(BERT, "first", 0, 100).entries] == said
    assert world.carrier.applied(Lane.INBOXES) == world.log.committed
    assert world.carrier.applied(Lane.TIMELINES) == 3
    assert world.carrier.problems() == ["timelines: the store is down"]
    assert world.stores.applied(Lane.TIMELINES) == 3
    assert world.stores.applied(Lane.INBOXES) == world.log.committed

    down.is_down = False
    world.run(2000)
    assert [row.message_id for row in world.stores.timelines.private_forward(BERT)] == said
    assert world.stores.unread.get(BERT, Direct(ANNA)) == 20
    assert world.carrier.problems() == []
    assert world.carrier.applied_all == world.log.committed
    assert dead_letters(world.log) == []
    assert world.carrier.counters.dead_letters == 0


def test_a_lane_that_comes_back_catches_up_while_the_others_go_on() -> None:
    world = World(CarrierSettings(batch_count=4))
    down = switched(world, "timelines")
    people(world)
    down.is_down = True
    first = world.write(*(send(ANNA, BERT) for _ in range(30)))
    down.is_down = False
    for _ in range(30):
        world.scheduler.after(999.5, lambda: world.append(send(BERT, ANNA)))
    world.run(3000)
    assert world.carrier.applied_all == world.log.committed
    ids = [row.message_id for row in world.stores.timelines.private_forward(BERT, limit=1000)]
    assert ids == sorted(ids)
    assert len(ids) == 60
    assert ids[:30] == first


def test_nobody_is_a_member_of_a_group_that_the_rosters_lane_has_not_reached() -> None:
    world = World()
    down = switched(world, "contacts")
    people(world)
    world.write(group_made(7, ANNA, [BERT]))
    down.is_down = True
    link = Record(at=1, actor=ANNA, contact={"user": ANNA, "peer": BERT, "is_linked": True})
    world.write(link, member(7, CARL, MemberChanged.JOIN), say(ANNA, 7, "welcome"), send(ANNA, BERT))
    # Inboxes wait as well: who gets the group's message is not known yet.
    assert world.carrier.applied(Lane.ROSTERS) == world.carrier.applied(Lane.INBOXES) - 1
    down.is_down = False
    world.run(5000)
    assert world.carrier.problems() == []
    assert len(world.stores.inboxes.after(CARL, "first", 0, 10).entries) == 2


def test_lanes_that_were_committed_apart_are_brought_together_again() -> None:
    world = World()
    down = switched(world, "timelines")
    people(world)
    down.is_down = True
    world.write(group_made(7, ANNA, [BERT]), send(ANNA, BERT), say(ANNA, 7), member(7, BERT, MemberChanged.QUIT))
    world.run(100)
    world.stores.timelines = down._port  # type: ignore[assignment]
    positions = {lane: world.stores.applied(lane) for lane in Lane}
    assert positions[Lane.TIMELINES] < positions[Lane.INBOXES]
    reference = people()
    reference.write(group_made(7, ANNA, [BERT]), send(ANNA, BERT), say(ANNA, 7), member(7, BERT, MemberChanged.QUIT))

    world.carrier.stop()
    world.carrier = world.new_carrier()
    world.wakes.clear()
    world.carrier.start()
    world.run(100)
    assert world.wakes == []
    assert content(world.stores) == content(reference.stores)


@pytest.mark.parametrize("port", ["inboxes", "bodies", "unread", "timelines", "groups", "keys", "recent"])
def test_a_store_that_fails_in_the_middle_of_a_record_changes_nothing_in_the_end(port: str) -> None:
    script = [
        opened(BERT, "web"),
        opened(BERT, "ios"),
        group_made(7, ANNA, [BERT, CARL]),
        say(ANNA, 7),
        send(ANNA, BERT),
        member(7, CARL, MemberChanged.QUIT),
        *(send(CARL, BERT, str(index)) for index in range(4)),
    ]
    reference = people(World(limits=LIMITS_OF_TWO))
    reference.write(*script)
    wanted = content(reference.stores)
    woken = {(wake.user, wake.platform, entry.useq) for wake in reference.wakes for entry in wake.entries}
    for calls in range(0, 60, 3):
        world = World(CarrierSettings(lane_retry_ms=1), limits=LIMITS_OF_TWO)
        down = switched(world, port)
        people(world)
        down.calls_left = calls
        world.write(*script)
        world.run(200)
        setattr(world.stores, port, down._port)
        assert content(world.stores) == wanted, calls
        assert {(wake.user, wake.platform, entry.useq) for wake in world.wakes for entry in wake.entries} == woken
        assert world.carrier.problems() == []


# Records that cannot be applied.


@pytest.mark.feature("P11")
def test_what_cannot_be_read_is_set_aside_once_and_the_rest_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    world = people()
    with caplog.at_level(logging.ERROR):
        world.append(b"\xff\xff\xff")
        world.append(say(ANNA, 404))
        said = world.write(send(ANNA, BERT))
    assert world.stores.inboxes.after(BERT, "first", 0, 10).entries[-1].message_id == said[-1]
    letters = dead_letters(world.log)
    assert [letter.task.WhichOneof("what") for letter in letters] == ["undecodable", "undecodable"]
    assert letters[0].task.undecodable.payload == b"\xff\xff\xff"
    assert "no group 404" in letters[1].task.reason
    assert world.carrier.counters.dead_letters == world.carrier.counters.undecodable == 2
    assert [record.message for record in caplog.records] == ["dead letter", "dead letter"]


def test_nothing_is_committed_before_what_was_set_aside_is_in_the_log() -> None:
    world = people()
    world.run(100)
    before = world.stores.applied(Lane.ROSTERS)
    world.append(b"\xff\xff\xff")
    world.scheduler.soon(lambda: setattr(world.log, "refusal", Unavailable("the log is full")))
    world.run(500)
    assert world.stores.applied(Lane.ROSTERS) == before
    world.log.refusal = None
    world.run(3000)
    assert world.stores.applied(Lane.ROSTERS) > before
    assert len(dead_letters(world.log)) == 1


def test_a_carrier_that_dies_after_setting_something_aside_does_not_do_it_twice() -> None:
    world = people(World(CarrierSettings(commit_ms=1000)))
    world.append(b"\xff\xff\xff")
    world.run(10)
    assert len(dead_letters(world.log)) == 1
    world.crash()
    world.run(2000)
    assert len(dead_letters(world.log)) == 1


@pytest.mark.feature("P11")
def test_a_record_that_was_set_aside_can_be_given_back() -> None:
    world = people()
    world.append(say(ANNA, 7, "too early"))
    world.run()
    world.write(group_made(7, ANNA, [BERT]))
    (letter,) = dead_letters(world.log)
    errors: list[object] = []
    world.carrier.dead.replay(letter.event_id, errors.append)
    world.run()
    assert errors == [None]
    assert dead_letters(world.log) == []
    assert len(world.stores.timelines.group_forward(7)) == 2


@pytest.mark.feature("P10", "P04")
def test_what_nobody_acks_waits_in_order_and_is_no_dead_letter() -> None:
    world = people()
    said = world.write(*(send(ANNA, BERT, str(index)) for index in range(5)))
    world.run(24 * 3_600_000)
    assert [entry.message_id for entry in world.stores.inboxes.after(BERT, "first", 0, 10).entries] == said
    assert dead_letters(world.log) == []


# Takeovers.


@pytest.mark.feature("R10", "X59")
@pytest.mark.parametrize("died_at", [0.2, 1, 5, 12, 25, 60])
def test_when_a_carrier_dies_midway_another_one_makes_each_record_count_once(died_at: float) -> None:
    script = [user(ANNA), user(BERT), user(CARL), group_made(7, ANNA, [BERT, CARL])]
    script += [each for index in range(60) for each in (send(ANNA, BERT, str(index)), say(BERT, 7, str(index)))]
    world = World(CarrierSettings(batch_count=3, commit_ms=7))
    world.carrier.start()
    for index, record in enumerate(script):
        world.scheduler.run_for(0.3)
        world.append(record, key=b"k%d" % index)
        if abs(index * 0.3 - died_at) < 0.15:
            world.crash()
    world.run(100)
    reference = World()
    for index, record in enumerate(script):
        reference.append(record, key=b"k%d" % index)
    reference.carrier.start()
    reference.run(100)
    for number in (ANNA, BERT, CARL):
        assert world.stores.unread.of(number) == reference.stores.unread.of(number)
    assert world.stores.unread.get(BERT, Direct(ANNA)) == 60
    assert [entry.useq for entry in world.stores.inboxes.after(BERT, "first", 0, 1000).entries] == list(range(1, 122))
    assert len(world.stores.timelines.group_forward(7, limit=1000)) == 61
    group = world.stores.groups.get(7)
    assert group is not None
    assert group.message_count == 61


# What is told live.


def test_a_receipt_is_told_to_the_sender_by_public_id() -> None:
    world = World().start(user(ANNA, "anna"), user(BERT, "bert"))
    (said,) = world.write(send(ANNA, BERT))
    world.write(receipt(ANNA, BERT, [said], is_read=True, at=99))
    world.write(receipt(ANNA, BERT, [said], is_read=True, at=100))
    expected = {"push": "receipt", "with": "bert", "message_ids": [str(said)], "kind": "read", "at": 99}
    assert world.told == [(ANNA, expected)]
    assert world.stores.timelines.private_row(ANNA, said) == PrivateRow(said, BERT, False, 2, 0, 99)


def test_what_a_large_group_says_is_told_to_its_room() -> None:
    world = people()
    (made,) = world.write(group_made(7, ANNA, [BERT], is_large=True))
    world.wakes.clear()
    (said,) = world.write(say(ANNA, 7))
    assert world.wakes == []
    assert [(told.group, told.message_id, told.previous) for told in world.said[1:]] == [(7, said, made)]


# Turns.


def test_sends_go_first_for_a_while_and_then_both_take_turns() -> None:
    world = people(World(CarrierSettings(yield_ms=500)))
    world.is_writer_busy = True
    world.append(send(ANNA, BERT))
    world.run(400)
    assert world.carrier.behind == 1
    world.run(200)
    assert world.carrier.behind == 0


def test_sends_go_first_only_as_long_as_few_events_wait() -> None:
    world = people(World(CarrierSettings(yield_ms=60_000, yield_count=3)))
    world.is_writer_busy = True
    for _ in range(2):
        world.append(send(ANNA, BERT))
    world.run(400)
    assert world.carrier.behind == 2
    world.append(send(ANNA, BERT))
    world.run(400)
    assert world.carrier.behind == 0


def test_a_writer_that_has_nothing_to_do_lets_the_carrier_go_on() -> None:
    world = people()
    world.is_writer_busy = True
    world.append(send(ANNA, BERT))
    world.run(100)
    assert world.carrier.behind == 1
    world.is_writer_busy = False
    world.run(2)
    assert world.carrier.behind == 0


@pytest.mark.feature("P06")
def test_what_was_accepted_is_delivered_by_whoever_comes_next() -> None:
    world = World().start(user(ANNA), user(BERT))
    world.run(100)
    world.append(send(ANNA, BERT))
    world.crash()
    world.run(100)
    assert len(world.stores.inboxes.after(BERT, "first", 0, 10).entries) == 1


@pytest.mark.feature("P07")
def test_a_send_is_one_record_whatever_the_number_of_platforms() -> None:
    world = people()
    world.write(*(opened(BERT, platform) for platform in ("web", "ios", "tv")))
    before = len(world.log.topic(MAIN, 0, 1000))
    world.write(send(ANNA, BERT))
    assert len(world.log.topic(MAIN, 0, 1000)) == before + 1
    assert world.log.topic(DEAD, 0, 10) == []
    assert len(world.stores.inboxes.platforms(BERT)) == 3


def test_a_stopped_carrier_applies_nothing_more() -> None:
    world = people()
    world.carrier.stop()
    world.write(send(ANNA, BERT))
    world.run(1000)
    stores: Stores = world.stores
    assert stores.inboxes.after(BERT, "first", 0, 10).entries == []


def test_a_bug_makes_the_node_unready_and_neither_spins_nor_skips(monkeypatch: pytest.MonkeyPatch) -> None:
    world = people()
    calls = []

    def broken(*_arguments: object) -> bool:
        calls.append(1)
        raise RuntimeError("a slip")

    with monkeypatch.context() as patch:
        patch.setattr(world.stores.bodies, "put", broken)
        world.write(send(ANNA, BERT))
        world.run(3500)
        assert world.carrier.problems() == ["RuntimeError: a slip"]
        assert 2 <= len(calls) <= 6
    world.run(3000)
    assert world.carrier.problems() == []
    assert len(world.stores.inboxes.after(BERT, "first", 0, 10).entries) == 1
    assert world.log.topic(DEAD, 0, 10) == []


def test_a_log_that_cannot_be_read_makes_the_node_unready_and_nothing_is_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = people()
    calls = []

    def silent(*_arguments: object) -> list[LogRecord]:
        calls.append(1)
        raise Unavailable("the log does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(world.log, "read", silent)
        world.write(send(ANNA, BERT, "first"))
        world.run(3500)
        world.write(send(ANNA, BERT, "second"))
        assert world.carrier.problems() == ["log: the log does not answer"]
        assert 2 <= len(calls) <= 6, "tried again, and not all the time"
    world.run(3000)
    assert world.carrier.problems() == []
    assert len(world.stores.inboxes.after(BERT, "first", 0, 10).entries) == 2
