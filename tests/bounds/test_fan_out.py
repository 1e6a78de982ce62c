"""A record to a group costs its sender as much as the inbox entries that it creates."""

import time
from pathlib import Path

import pytest

from pixiu.config.messaging import MessagingSettings
from pixiu.im.draft import Actor
from pixiu.model.errors import RateLimited
from pixiu.model.pixiu_pb2 import TEXT, MsgChat
from pixiu.ports.log import SCHEDULE, LogRecord
from tests.im.world import World
from tests.sdk.world import take, world_at

HOUR_MS = 3_600_000


def world_with_group(members: int, **settings: int) -> tuple[World, Actor]:
    """The default rate (50 a second, 200 at once), and a group ``g`` that alice owns; her bucket is full."""
    world = World(MessagingSettings(**settings))  # type: ignore[arg-type]
    alice = world.actor("alice")
    world.ask(alice, "create_group", {"group": "g", "members": [f"m{each}" for each in range(members - 1)]})
    world.pass_time(HOUR_MS)
    return world, alice


def accepted(world: World, actor: Actor, action: str, params: dict[str, object]) -> int:
    """How many requests are accepted at once, before the first refusal."""
    for count in range(1_000):
        try:
            world.ask(actor, action, params)
        except RateLimited:
            return count
    raise AssertionError("no request was refused")


@pytest.mark.parametrize(("members", "count"), [(2, 200), (49, 200), (50, 100), (450, 20), (500, 18)])
def test_gsend_costs_one_more_for_every_50_members(members: int, count: int) -> None:
    world, alice = world_with_group(members)
    assert accepted(world, alice, "gsend", {"group": "g", "text": "x"}) == count


def test_member_of_a_group_of_500_sends_several_messages_per_second() -> None:
    world, alice = world_with_group(500)
    accepted(world, alice, "gsend", {"group": "g", "text": "x"})
    count = 0
    for _ in range(100):
        world.pass_time(100)
        try:
            world.ask(alice, "gsend", {"group": "g", "text": "x"})
            count += 1
        except RateLimited:
            pass
    assert 40 <= count <= 46


def test_group_without_inboxes_has_no_fan_out_cost() -> None:
    world, alice = world_with_group(200, group_inbox_limit=100)
    assert accepted(world, alice, "gsend", {"group": "g", "text": "x"}) == 200


def test_administrators_are_not_charged_for_fan_out() -> None:
    world, alice = world_with_group(450)
    for _ in range(30):
        world.ask(alice._replace(is_admin=True), "gsend", {"group": "g", "text": "x"})


def test_refused_gsend_appends_nothing_and_succeeds_after_retry_after_ms() -> None:
    world, alice = world_with_group(450)
    accepted(world, alice, "gsend", {"group": "g", "text": "x"})
    before = len(world.records())
    waited_ms: list[int] = []
    while len(waited_ms) < 3:
        try:
            world.ask(alice, "gsend", {"group": "g", "text": "y"})
            break
        except RateLimited as refusal:
            assert len(world.records()) == before
            assert refusal.retry_after_ms is not None
            waited_ms.append(refusal.retry_after_ms)
            world.pass_time(refusal.retry_after_ms)
    assert waited_ms == [20, 180], "for the first token, then for the other nine"


@pytest.mark.parametrize("is_applying", [True, False])
def test_retry_with_same_send_id_is_not_charged_for_fan_out(is_applying: bool) -> None:
    world, alice = world_with_group(450)
    world.is_applying = is_applying
    params = {"group": "g", "text": "x", "send_id": "s1"}
    answers = [world.begin(alice, "gsend", params) for _ in range(11)]
    world.settle()
    world.is_applying = True
    world.settle()
    assert len({str(each[0]) for each in answers}) == 1, "every retry gets the first answer"
    # The first cost 10, each retry 1: 180 of 200 are left.
    assert accepted(world, alice, "gsend", {"group": "g", "text": "y"}) == 18


class Firing:
    """Performs scheduled sends when they are due, and notes the time at which each message was sent."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.records: list[LogRecord] = []
        self.answers: list[object] = []
        self._after = 0

    def run(self, milliseconds: int, *, step_ms: int = 20) -> None:
        for _ in range(milliseconds // step_ms):
            self.world.pass_time(step_ms)
            while due := self.world.log.topic(SCHEDULE, self._after, 1_000):
                self._after = due[-1].event_id
                for record in due:
                    self.fire(record)

    def fire(self, record: LogRecord) -> None:
        self.records.append(record)
        self.world.proxy.fire(record.payload, record.event_id, self.answers.append)
        self.world.settle()

    def sent(self) -> list[tuple[str, int]]:
        """The messages in their order: text and time."""
        chats = [MsgChat.FromString(record.chat) for record in self.world.records() if record.chat and record.group]
        return [(chat.data.decode(), chat.tm) for chat in chats if chat.msgType == TEXT]


def schedule_many(world: World, actor: Actor, count: int, in_ms: int = HOUR_MS, **where: object) -> int:
    """Schedule that many messages for one moment, which is returned."""
    due = world.clock.now_ms() + in_ms
    for number in range(count):
        world.ask(actor, "schedule", {**(where or {"group": "g"}), "text": f"{number:03}", "at": due})
    return due


def test_schedule_to_a_group_costs_as_little_as_any_schedule() -> None:
    world, alice = world_with_group(450)
    due = world.clock.now_ms() + HOUR_MS
    assert accepted(world, alice, "schedule", {"group": "g", "text": "x", "at": due}) == 200


def test_due_sends_are_charged_and_those_over_the_rate_are_delayed_in_order() -> None:
    world, alice = world_with_group(450)
    due = schedule_many(world, alice, 100)
    firing = Firing(world)
    firing.run(HOUR_MS, step_ms=1_000)
    firing.run(60_000)
    sent = firing.sent()
    assert [text for text, _ in sent] == [f"{number:03}" for number in range(100)], "each once, in order"
    late_ms = [at - due for _, at in sent]
    assert late_ms[:20] == [0] * 20, "20 times 10 is the burst"
    # The others, 80 times 10, get half of the rate: 25 a second.
    assert all(400 * n <= late_ms[19 + n] <= 400 * n + 40 for n in range(1, 81)), late_ms
    assert len(firing.records) == 180, "a delayed send is delayed once"
    assert world.ask(alice, "scheduled", {})["scheduled"] == []


def test_user_whose_scheduled_sends_are_delayed_can_still_send() -> None:
    world, alice = world_with_group(450)
    schedule_many(world, alice, 100)
    firing = Firing(world)
    firing.run(HOUR_MS, step_ms=1_000)
    with pytest.raises(RateLimited):
        world.ask(alice, "send", {"to": "m1", "text": "at once"})
    count = 0
    for _ in range(100):
        firing.run(100)
        try:
            world.ask(alice, "send", {"to": "m1", "text": "x"})
            count += 1
        except RateLimited:
            pass
    assert count >= 90


def test_due_send_is_charged_to_the_rate_of_its_author() -> None:
    world, alice = world_with_group(450)
    schedule_many(world, alice, 5)
    firing = Firing(world)
    firing.run(HOUR_MS, step_ms=1_000)
    assert len(firing.sent()) == 5
    assert accepted(world, alice, "gsend", {"group": "g", "text": "x"}) == 15


def test_delayed_sends_are_listed_with_their_new_time_and_can_be_dropped() -> None:
    world, alice = world_with_group(450)
    due = schedule_many(world, alice, 30)
    firing = Firing(world)
    firing.run(HOUR_MS, step_ms=1_000)
    rows = world.ask(alice, "scheduled", {})["scheduled"]
    assert isinstance(rows, list)
    assert [(row["text"], row["at"] - due) for row in rows] == [(f"{20 + n:03}", 400 * (n + 1)) for n in range(10)]
    firing.run(20)
    world.ask(alice, "unschedule", {"schedule_id": rows[3]["schedule_id"]})
    firing.run(10_000)
    assert [text for text, _ in firing.sent()] == [f"{number:03}" for number in range(30) if number != 23]


@pytest.mark.parametrize("send_id", ["", "s"])
def test_record_that_fires_again_after_its_delay_was_noted_is_sent_once(send_id: str) -> None:
    world, alice = world_with_group(450)
    due = world.clock.now_ms() + HOUR_MS
    world.ask(alice, "schedule", {"group": "g", "text": "once", "at": due, "send_id": send_id or None})
    firing = Firing(world)
    world.pass_time(HOUR_MS)
    accepted(world, alice, "gsend", {"group": "g", "text": "x"})
    (record,) = world.log.topic(SCHEDULE, 0, 10)
    firing._after = record.event_id
    firing.fire(record)
    assert [text for text, _ in firing.sent()].count("once") == 0, "it is delayed"
    # The process ends before it has noted that the record is done, and performs it again after its next start.
    firing.fire(record)
    firing.run(10_000)
    firing.fire(record)
    firing.run(10_000)
    assert [text for text, _ in firing.sent()].count("once") == 1
    assert len(firing.records) == 5, "the delayed one fired twice, and was a repeat once"
    assert accepted(world, alice, "gsend", {"group": "g", "text": "x"}) == 20, "repeats are not charged"


def test_send_that_an_administrator_has_scheduled_is_not_charged() -> None:
    world, alice = world_with_group(450)
    due = schedule_many(world, alice._replace(is_admin=True), 40)
    firing = Firing(world)
    firing.run(HOUR_MS, step_ms=1_000)
    assert [at for _, at in firing.sent()] == [due] * 40
    assert accepted(world, alice, "gsend", {"group": "g", "text": "x"}) == 20


def test_what_is_sent_says_nothing_about_its_delay() -> None:
    world, alice = world_with_group(450)
    schedule_many(world, alice, 21)
    firing = Firing(world)
    firing.run(HOUR_MS + 10_000, step_ms=1_000)
    assert len(firing.sent()) == 21
    assert not any(record.HasField("scheduled") for record in world.records())


async def test_server_delays_scheduled_group_messages_over_the_rate(tmp_path: Path) -> None:
    limits = {"sends_per_second": 100, "send_burst": 40}
    async with world_at(tmp_path, messaging=limits) as world, world.connect("eve") as eve, world.connect("m1") as m1:
        await eve.act("create_group", group="g", members=[f"m{each}" for each in range(149)])
        due = int(time.time() * 1000) + 1_500
        for number in range(30):
            await eve.act("schedule", group="g", text=f"{number}", at=due)
        messages = [each for each in await take(m1, 31) if each.text != ""]
        sent = [each for each in messages if each.text.isdigit()]
        assert [each.text for each in sent] == [f"{number}" for number in range(30)]
        assert sent[0].at - due < 1_000
        # Each costs 4. The burst covers 10, and the other 20 get 50 of the 100 tokens a second: 12 each second.
        assert sent[-1].at - sent[0].at > 1_200
        assert (await eve.act("scheduled"))["scheduled"] == []


def test_notices_to_a_group_are_charged_for_fan_out() -> None:
    world, alice = world_with_group(450)
    changes: list[tuple[str, dict[str, object]]] = [
        ("manage", {"group": "g", "user": "m1", "op": "mute"}),
        ("manage", {"group": "g", "user": "m1", "op": "admin"}),
        ("manage", {"group": "g", "op": "history", "history": "since_join"}),
        ("manage", {"group": "g", "user": "m2", "op": "remove"}),
        ("manage", {"group": "g", "user": "m2", "op": "invite"}),
    ]
    for action, params in changes:
        world.ask(alice, action, params)
    # 10, 10, 10, 10, and 9 for the group of 449: 151 of 200 are left.
    assert accepted(world, alice, "gsend", {"group": "g", "text": "x"}) == 15


def test_recall_in_a_group_is_charged_for_fan_out() -> None:
    world, alice = world_with_group(450)
    said = world.ask(alice, "gsend", {"group": "g", "text": "x"})
    world.ask(alice, "recall", {"message_id": said["message_id"]})
    world.ask(alice, "recall", {"message_id": said["message_id"]})  # changes nothing, and costs 1
    assert accepted(world, alice, "gsend", {"group": "g", "text": "x"}) == 17


async def test_server_accepts_as_many_group_messages_as_their_fan_out_allows(tmp_path: Path) -> None:
    limits = {"sends_per_second": 1, "send_burst": 60}
    async with world_at(tmp_path, messaging=limits) as world, world.connect("eve") as eve:
        await eve.act("create_group", group="g", members=[f"m{each}" for each in range(149)])  # 3 of 60
        count = 0
        with pytest.raises(RateLimited, match="this one counts as 4"):
            for _ in range(57):
                await eve.act("gsend", group="g", text="x", timeout_seconds=0.5)
                count += 1
        assert 14 <= count <= 20, "57 tokens are left, 4 for each message, and 1 more each second"


def test_join_and_quit_are_charged_for_their_notices() -> None:
    world, _ = world_with_group(450)
    visitor = world.actor("visitor")
    for _ in range(5):
        world.ask(visitor, "join", {"group": "g"})  # 10
        world.ask(visitor, "quit", {"group": "g"})  # 10
    assert accepted(world, visitor, "send", {"to": "alice", "text": "x"}) == 100
