"""Which rooms are hot: by deliveries per second, of the last seconds, in bounded memory."""

from pixiu.roles.broker.broker import RoomRow
from pixiu.roles.broker.hot import HotRooms


class Hand:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic_us(self) -> int:
        return self.ms * 1000


def row(room: str, deliveries: int, *, messages: int = 1) -> RoomRow:
    return RoomRow(room, 0, messages, deliveries, 100 * messages, 7, 5)


def test_the_hottest_come_first_with_their_rates() -> None:
    clock = Hand()
    hot = HotRooms(clock, span_ms=5000)
    for _ in range(4):
        clock.ms += 1000
        hot.report(row("lobby", 100, messages=10))
        hot.report(row("quiet", 2))
        hot.report(row("empty", 0, messages=0))
    found = hot.top(20)
    assert [(each.room, each.deliveries, each.messages) for each in found] == [
        ("lobby", 100.0, 10.0),
        ("quiet", 2.0, 1.0),
    ]
    assert (found[0].members, found[0].users, found[0].bytes) == (7, 5, 10_000 / 10)
    assert [each.room for each in hot.top(1)] == ["lobby"]


def test_a_room_that_fell_silent_cools_down_and_goes() -> None:
    clock = Hand()
    hot = HotRooms(clock, span_ms=5000)
    clock.ms += 1000
    hot.report(row("lobby", 100))
    clock.ms += 5000
    assert hot.top(1)[0].deliveries < 100 / 5
    clock.ms += 5000
    assert hot.top(1) == []
    hot.report(row("lobby", 100))
    clock.ms += 60_000
    assert hot.top(1) == []


def test_at_the_bound_the_cooler_half_is_forgotten() -> None:
    clock = Hand()
    hot = HotRooms(clock, span_ms=5000, rooms_max=100)
    for number in range(1000):
        hot.report(row(str(number), number))
    found = hot.top(2000)
    assert len(found) <= 100
    assert found[0].room == "999"
