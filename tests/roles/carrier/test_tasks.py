"""Tasks: attempts, due times, dead letters, and what happens when a carrier dies in between."""

from collections.abc import Callable
from itertools import pairwise

import pytest

from pixiu.config.messaging import CarrierSettings
from pixiu.model.errors import Conflict, NotFound, PixiuError, Unavailable
from pixiu.model.failure import Failure
from pixiu.model.pixiu_pb2 import FlushInbox, KickSession, Notify, Record, Task
from pixiu.ports.log import DEAD, NOTIFY, SCHEDULE, TASKS, LogRecord
from pixiu.ports.stores import Lane
from pixiu.roles.carrier.consume import Carrier
from pixiu.roles.carrier.dead_letters import dead_letters
from pixiu.roles.carrier.tasks import GeneralTasks
from tests.roles.carrier.world import World, send

RETRY_MS = 10_000


def notify(*platforms: str, message_id: int = 1) -> bytes:
    return Task(notify=Notify(user=1, platforms=platforms, message_id=message_id)).SerializeToString()


def world_of(**settings: int) -> World:
    return World(CarrierSettings(task_retry_ms=RETRY_MS, **settings)).start()


def publish(world: World, topic: str, payload: bytes) -> None:
    world.log.publish(topic, payload)
    world.run()


def fails(*platforms: str) -> Callable[[Task], Failure | None]:
    return lambda task: Failure("the server is down", platforms)


def test_a_task_that_is_done_is_done_once() -> None:
    world = world_of()
    publish(world, NOTIFY, notify("ios"))
    world.run(100_000)
    assert len(world.performed) == 1
    assert world.carrier.applied(Lane.TASKS) == world.log.committed
    assert world.stores.applied(Lane.TASKS) == world.log.committed
    assert world.carrier.counters.tasks == 1


@pytest.mark.feature("P09")
def test_a_task_is_tried_again_after_the_delay_and_ever_later_until_the_limit() -> None:
    world = world_of(task_retries_max=3)
    times: list[int] = []

    def answer(task: Task) -> Failure:
        times.append(world.clock.now_ms())
        return Failure("the server is down")

    world.answer = answer
    publish(world, NOTIFY, notify("ios"))
    world.run(3_600_000)
    assert [task.attempt for task in world.performed] == [0, 1, 2, 3]
    waits = [later - sooner for sooner, later in pairwise(times)]
    assert [wait // RETRY_MS for wait in waits] == [1, 2, 4]
    assert all(wait % RETRY_MS < 50 for wait in waits)
    assert world.performed[2].last_attempt_at == times[1]
    assert world.performed[2].reason == "the server is down"


@pytest.mark.feature("P09")
def test_nobody_waits_longer_than_ten_minutes() -> None:
    world = world_of(task_retries_max=12)
    times: list[int] = []

    def answer(task: Task) -> Failure:
        times.append(world.clock.now_ms())
        return Failure("down")

    world.answer = answer
    publish(world, NOTIFY, notify("ios"))
    world.run(10 * 3_600_000)
    assert len(times) == 13
    assert max(later - sooner for sooner, later in pairwise(times)) < 600_100


@pytest.mark.feature("P08")
def test_only_the_platforms_that_failed_are_tried_again() -> None:
    world = world_of()
    world.answer = fails("desktop")
    publish(world, NOTIFY, notify("mobile", "desktop"))
    world.answer = lambda task: None
    world.run(RETRY_MS + 100)
    assert [list(task.notify.platforms) for task in world.performed] == [["mobile", "desktop"], ["desktop"]]
    assert world.performed[1].notify.message_id == 1


@pytest.mark.feature("P09", "P06")
def test_a_task_is_finished_only_when_the_log_has_its_repeat() -> None:
    world = world_of()
    world.run(100)

    def answer(task: Task) -> Failure:
        world.log.refusal = Unavailable("full")
        return Failure("down")

    world.answer = answer
    publish(world, NOTIFY, notify("ios"))
    position = world.carrier.applied(Lane.TASKS)
    world.run(5000)
    assert world.carrier.applied(Lane.TASKS) == position < world.log.committed
    assert world.carrier.tasks is not None
    assert world.carrier.tasks.under_way == 1
    world.log.refusal = None
    world.answer = lambda task: None
    world.run(RETRY_MS)
    assert world.carrier.applied(Lane.TASKS) == world.log.committed
    assert [task.attempt for task in world.performed] == [0, 1]


@pytest.mark.feature("P11", "T2")
def test_a_task_that_never_succeeds_becomes_one_dead_letter_and_can_be_given_back() -> None:
    world = world_of(task_retries_max=2)
    world.answer = fails()
    publish(world, NOTIFY, notify("ios", message_id=77))
    world.run(3_600_000)
    (letter,) = dead_letters(world.log)
    assert (letter.task.attempt, letter.task.reason, letter.task.notify.message_id) == (2, "the server is down", 77)
    assert world.carrier.counters.dead_letters == 1
    assert len(world.log.topic(DEAD, 0, 10)) == 1

    world.answer = lambda task: None
    answers: list[PixiuError | None] = []
    world.carrier.dead.replay(letter.event_id, answers.append)
    world.run()
    assert answers == [None]
    assert (world.performed[-1].attempt, world.performed[-1].notify.message_id) == (0, 77)
    assert dead_letters(world.log) == []
    assert world.carrier.counters.replayed == 1

    world.carrier.dead.replay(letter.event_id, answers.append)
    world.carrier.dead.replay(999, answers.append)
    world.run()
    assert isinstance(answers[1], Conflict)
    assert isinstance(answers[2], NotFound)
    assert len(world.performed) == 4


@pytest.mark.feature("P11")
def test_a_task_that_nobody_can_do_is_dead_at_once() -> None:
    world = world_of()
    world.answer = lambda task: Failure("what is that?", is_final=True)
    publish(world, TASKS, Task(kick=KickSession(user=1)).SerializeToString())
    publish(world, NOTIFY, b"\xff\xff")
    letters = dead_letters(world.log)
    assert [letter.task.WhichOneof("what") for letter in letters] == ["kick", "undecodable"]
    assert world.carrier.applied(Lane.TASKS) == world.log.committed


def test_a_performer_that_breaks_is_a_failure_like_any_other() -> None:
    world = world_of(task_retries_max=0)

    def answer(task: Task) -> Failure | None:
        raise RuntimeError("a bug")

    world.answer = answer
    publish(world, NOTIFY, notify("ios"))
    (letter,) = dead_letters(world.log)
    assert letter.task.reason == "RuntimeError: a bug"


def test_scheduled_sends_do_not_wait_for_slow_notifications() -> None:
    world = World(CarrierSettings(tasks_in_flight_max=3))
    world.perform = lambda task, done: None  # type: ignore[method-assign]
    world.carrier = world.new_carrier()
    world.start()
    for index in range(10):
        publish(world, NOTIFY, notify("ios", message_id=index))
    for index in range(5):
        publish(world, SCHEDULE, Record(actor=index + 1).SerializeToString())
    assert world.carrier.tasks is not None
    assert world.carrier.tasks.under_way == 3
    assert world.carrier.counters.tasks == 5


@pytest.mark.feature("T8")
def test_no_more_tasks_are_under_way_than_allowed_and_the_rest_waits_in_the_log() -> None:
    world = World(CarrierSettings(tasks_in_flight_max=3))
    waiting: list[Callable[[Failure | None], None]] = []
    world.perform = lambda task, done: waiting.append(done)  # type: ignore[method-assign]
    world.carrier = world.new_carrier()
    world.start()
    for index in range(10):
        publish(world, NOTIFY if index % 2 else TASKS, notify("ios", message_id=index))
    assert len(waiting) == 3
    waiting[1](None)
    waiting[1](None)
    world.run()
    assert len(waiting) == 4
    for _ in range(10):
        for done in waiting:
            done(None)
        world.run()
    assert len(waiting) == 10
    assert world.carrier.applied(Lane.TASKS) == world.log.committed


@pytest.mark.feature("T8")
def test_the_position_is_that_of_the_lowest_unfinished_task() -> None:
    world = World()
    waiting: list[Callable[[Failure | None], None]] = []
    world.perform = lambda task, done: waiting.append(done)  # type: ignore[method-assign]
    world.carrier = world.new_carrier()
    world.start()
    for index in range(4):
        publish(world, NOTIFY, notify("ios", message_id=index))
    waiting[3](None)
    waiting[1](None)
    assert world.carrier.applied(Lane.TASKS) == 0
    waiting[0](None)
    assert world.carrier.applied(Lane.TASKS) == 2
    world.run(100)
    assert world.stores.applied(Lane.TASKS) == 2
    waiting[2](None)
    assert world.carrier.applied(Lane.TASKS) == 4


@pytest.mark.feature("T8", "R10")
def test_what_a_dead_carrier_had_under_way_is_done_by_the_next_one() -> None:
    world = World()
    world.perform = lambda task, done: None  # type: ignore[method-assign]
    world.carrier = world.new_carrier()
    world.start()
    publish(world, NOTIFY, notify("ios"))
    world.run(1000)
    del world.perform
    world.crash()
    world.run(100)
    assert [task.notify.message_id for task in world.performed] == [1]
    world.crash()
    world.run(1000)
    assert len(world.performed) == 1


def test_a_repeat_that_is_due_after_a_crash_still_comes() -> None:
    world = world_of()
    world.answer = fails()
    publish(world, NOTIFY, notify("ios"))
    world.run(1000)
    world.answer = lambda task: None
    world.crash()
    world.run(RETRY_MS)
    assert [task.attempt for task in world.performed] == [0, 1]


# General tasks.


@pytest.mark.feature("P17")
def test_kicks_and_flushes_are_handed_on_and_a_vanished_session_is_no_failure() -> None:
    calls: list[tuple[object, ...]] = []
    general = GeneralTasks(kick=lambda *args: calls.append(args), flush=lambda *args: calls.append(args))
    answers: list[Failure | None] = []
    general.perform(Task(kick=KickSession(user=1, session=99, reason="admin")), answers.append)
    general.perform(Task(flush=FlushInbox(user=1, platform="web")), answers.append)
    general.perform(Task(), answers.append)
    assert calls == [(1, 99, "admin"), (1, "web")]
    assert answers[:2] == [None, None]
    assert answers[2] is not None
    assert answers[2].is_final


# Scheduled sends.


def scheduling(world: World, answer: Callable[[LogRecord], Failure | None]) -> list[Record]:
    """A world whose scheduled sends are answered like this; returns what was performed."""
    performed: list[Record] = []

    def perform(record: LogRecord, parsed: Record, done: Callable[[Failure | None], None]) -> None:
        performed.append(parsed)
        done(answer(record))

    world.carrier = Carrier(
        world.stores, world.log, world.clock, world.scheduler, world.settings,
        wake=world.wakes.extend, tell=lambda number, event: None,
        notify=world.perform, general=world.perform, schedule=perform,
    )  # fmt: skip
    world.start()
    return performed


def test_a_scheduled_send_is_performed_when_its_time_has_come() -> None:
    world = World()
    performed = scheduling(world, lambda record: None)
    world.log.schedule(SCHEDULE, send(1, 2, "later").SerializeToString(), world.clock.now_ms() + 5000)
    world.run(4900)
    assert performed == []
    world.run(200)
    assert performed == [send(1, 2, "later")]


@pytest.mark.feature("P11")
def test_a_scheduled_send_that_is_refused_is_a_dead_letter_with_the_code() -> None:
    world = World()
    performed = scheduling(world, lambda record: Failure("blocked", code="forbidden", is_final=True))
    publish(world, SCHEDULE, send(1, 2).SerializeToString())
    (letter,) = dead_letters(world.log)
    assert (letter.task.refused.code, letter.task.reason) == ("forbidden", "blocked")
    answers: list[PixiuError | None] = []
    world.carrier.dead.replay(letter.event_id, answers.append)
    world.run()
    assert len(performed) == 2


def test_a_scheduled_send_that_cannot_be_sent_now_is_tried_again() -> None:
    world = World()
    failures: list[Failure | None] = [Failure("busy"), Failure("busy"), None]
    performed = scheduling(world, lambda record: failures.pop(0))
    publish(world, SCHEDULE, send(1, 2).SerializeToString())
    world.run(100_000)
    assert len(performed) == 3
    assert world.carrier.applied(Lane.TASKS) == world.log.committed
    assert dead_letters(world.log) == []


def test_tasks_that_cannot_be_read_now_are_done_later_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_of()
    calls = []

    def silent(*_arguments: object) -> list[LogRecord]:
        calls.append(1)
        raise Unavailable("the log does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(world.log, "topic", silent)
        for number in range(5):
            publish(world, NOTIFY, notify("ios", message_id=number + 1))
        publish(world, "pixiu.main", b"")  # a record without tasks does not pass over them
        before = len(calls)
        world.run(3_500)
        assert len(calls) - before <= 4 * 3, "tried again once a second for each topic, and not more often"
        assert world.performed == []
    world.run(3_000)
    assert [task.notify.message_id for task in world.performed] == [1, 2, 3, 4, 5]
    assert world.carrier.applied(Lane.TASKS) == world.log.committed
