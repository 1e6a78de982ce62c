"""Both ends of the way from a broker to a gateway, over a link that loses, repeats and reorders."""

from __future__ import annotations

import random

import pytest

from pixiu.machines.room_link import RESENDS_MAX, Ack, Frame, Incoming, Outgoing
from pixiu.machines.rooms import Fan

ROOM = 7


def outgoing(life: int = 1) -> Outgoing:
    return Outgoing(life, resend_ms=100, reliable_ms=10_000)


def live(message_id: int) -> Fan:
    return Fan(ROOM, message_id, b"live")


def reliable(message_id: int) -> Fan:
    return Fan(ROOM, message_id, b"reliable", is_reliable=True)


def ids(fans: list[Fan]) -> list[int]:
    return [fan.message_id for fan in fans]


def test_frames_without_reliable_fans_want_no_ack() -> None:
    link = outgoing()
    frame = link.seal([live(1)], 0)
    assert (frame.number, link.unacked) == (0, 0)
    assert link.due(10**6) == ([], [])


def test_on_a_quiet_link_everything_comes_in_order_whatever_its_class() -> None:
    link, end = outgoing(), Incoming()
    got: list[int] = []
    for message_id in range(1, 20, 3):
        frame = link.seal([live(message_id), reliable(message_id + 1), live(message_id + 2)], 0)
        got += ids(end.receive(frame))
        assert ids(link.acked(end.ack)) == [message_id + 1]
    assert got == list(range(1, 22))
    assert link.unacked == 0


def test_what_is_not_acked_goes_again_without_its_live_part_and_ever_more_seldom() -> None:
    link = outgoing()
    link.seal([live(1), reliable(2)], 0)
    times = [now for now in range(0, 5000, 50) if link.due(now)[0]]
    assert times == [100, 300, 700, 1500, 3100]
    ((frame,), _) = link.due(10_000 - 1)
    assert (ids(list(frame.fans)), frame.number, frame.serial) == ([2], 1, 0)


def test_a_frame_that_overtakes_waits_for_the_one_before_it_but_its_live_part_does_not() -> None:
    link, end = outgoing(), Incoming()
    first = link.seal([reliable(1), live(2)], 0)
    second = link.seal([reliable(3), live(4)], 0)
    assert ids(end.receive(second)) == [4]
    assert end.ack.through == 0
    assert ids(end.receive(first)) == [1, 3], "live talk that was overtaken is dropped"
    assert (end.ack.through, end.late) == (2, 1)


def test_a_frame_that_comes_twice_counts_once() -> None:
    link, end = outgoing(), Incoming()
    for frame in (link.seal([live(1)], 0), link.seal([live(2), reliable(3)], 0)):
        assert end.receive(frame)
        assert end.receive(frame) == []
    ahead = link.seal([live(4), reliable(5)], 0), link.seal([live(6), reliable(7)], 0)
    assert ids(end.receive(ahead[1])) == [6]
    assert end.receive(ahead[1]) == []
    assert ids(end.receive(ahead[0])) == [5, 7]


def test_what_is_given_up_is_waited_for_no_more() -> None:
    link, end = outgoing(), Incoming()
    link.seal([reliable(1)], 0)  # lost for good
    later = link.seal([reliable(2)], 5000)
    assert end.receive(later) == []
    frames, lost = link.due(10_000)
    assert ids(lost) == [1]
    assert [fan for frame in frames for fan in end.receive(frame)] == [reliable(2)]
    assert ids(link.acked(end.ack)) == [2]


def test_held_frames_are_delivered_when_all_before_and_beside_them_were_given_up() -> None:
    link, end = outgoing(), Incoming()
    link.seal([reliable(1)], 0)
    held = link.seal([reliable(2)], 0)
    assert end.receive(held) == []
    assert ids(link.due(10_000)[1]) == [1, 2]
    assert ids(end.receive(link.seal([live(3)], 10_000))) == [2, 3]


def test_a_new_life_of_the_broker_counts_anew_and_its_old_frames_are_dead() -> None:
    old, new, end = outgoing(1), outgoing(2), Incoming()
    for message_id in (1, 2, 3):
        end.receive(old.seal([reliable(message_id)], 0))
    straggler = old.seal([reliable(4)], 0)
    assert ids(end.receive(new.seal([reliable(5)], 0))) == [5]
    assert end.ack == Ack(2, 1)
    assert end.receive(straggler) == []
    assert new.acked(Ack(1, 99)) == [], "an ack of another life is not for this one"


def test_a_gateway_that_begins_anew_starts_where_the_broker_is() -> None:
    link, end = outgoing(), Incoming()
    for message_id in (1, 2, 3):
        end.receive(link.seal([reliable(message_id)], 0))
    link.acked(end.ack)
    again = Incoming()
    assert ids(again.receive(link.seal([reliable(4)], 0))) == [4]
    assert ids(link.acked(again.ack)) == [4]


def test_repeats_at_a_time_and_what_is_held_are_bounded() -> None:
    link, end = outgoing(), Incoming(held_max=5)
    frames = [link.seal([reliable(message_id)], 0) for message_id in range(1, 201)]
    assert len(link.due(100)[0]) == RESENDS_MAX
    for frame in frames[1:]:
        assert end.receive(frame) == []
    assert ids(end.receive(frames[0])) == [1, 2, 3, 4, 5, 6]


def test_a_link_that_closes_says_what_will_not_arrive() -> None:
    link = outgoing()
    link.seal([reliable(1), live(2), reliable(3)], 0)
    assert ids(link.close()) == [1, 3]
    assert link.unacked == 0


class Weather:
    """One link: frames one way, acks the other, each lost, repeated and late by chance."""

    def __init__(self, seed: int, loss: float) -> None:
        self.rng = random.Random(seed)
        self.loss = loss
        self.link, self.end = Outgoing(1, resend_ms=20, reliable_ms=10**9), Incoming()
        self.now = 0
        self.flying: list[tuple[int, Frame | Ack]] = []
        self.got: list[Fan] = []

    def put(self, thing: Frame | Ack) -> None:
        copies = self.rng.choice([1, 1, 1, 2])
        self.flying += [(self.now + self.rng.randrange(60), thing) for _ in range(copies) if self.is_lucky()]

    def is_lucky(self) -> bool:
        return self.rng.random() >= self.loss

    def step(self, batch: list[Fan]) -> None:
        self.now += self.rng.randrange(1, 10)
        if batch:
            self.put(self.link.seal(batch, self.now))
        for frame in self.link.due(self.now)[0]:
            self.put(frame)
        arrived = sorted((each for each in self.flying if each[0] <= self.now), key=lambda each: each[0])
        self.flying = [each for each in self.flying if each[0] > self.now]
        for _, thing in arrived:
            if isinstance(thing, Ack):
                self.link.acked(thing)
            else:
                self.got += self.end.receive(thing)
                if thing.number:
                    self.put(self.end.ack)


@pytest.mark.sim
@pytest.mark.parametrize("loss", [0.0, 0.3, 0.6])
def test_on_any_link_reliable_fans_come_once_and_in_order_and_live_ones_at_most_once(loss: float) -> None:
    for seed in range(30):
        weather = Weather(seed, loss)
        fans = [weather.rng.choice([live, reliable])(message_id) for message_id in range(1, 301)]
        for start in range(0, 300, 3):
            weather.step(fans[start : start + 3])
        for _ in range(100_000):
            if not weather.link.unacked:
                break
            weather.step([])
        assert ids([fan for fan in weather.got if fan.is_reliable]) == ids([fan for fan in fans if fan.is_reliable])
        live_ids = ids([fan for fan in weather.got if not fan.is_reliable])
        assert live_ids == sorted(set(live_ids)), f"seed {seed}"
