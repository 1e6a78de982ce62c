"""A carrier that stood by serves from now on: whom it wakes, and who writes dead letters."""

from pixiu.model.pixiu_pb2 import Record
from tests.roles.carrier.world import ANNA, BERT, Down, World, ledger, opened, rows, send, user


def woken(world: World) -> list[tuple[int, str, int]]:
    return [(wake.user, wake.platform, entry.useq) for wake in world.wakes for entry in wake.entries]


def takes_over(*records: Record) -> World:
    """A carrier stood by while all of this was written, and serves now."""
    world = World()
    world.is_serving = False
    world.start(user(ANNA), user(BERT))
    world.write(*records)
    assert world.wakes == []
    world.is_serving = True
    world.carrier.serve(0)
    return world


def test_who_takes_over_wakes_for_what_waits_and_not_for_what_was_acked_long_ago() -> None:
    # Otherwise phones ring for what was read, each time that another replica serves.
    said = [send(ANNA, BERT, f"line {number}") for number in range(3)]
    world = takes_over(opened(BERT, "ios"), opened(BERT, "web"), *said, ledger(["ios"], acked=rows((BERT, 0, 1, 2))))
    assert [each for each in woken(world) if each[:2] == (BERT, "ios")] == [(BERT, "ios", 3)]
    assert [each[2] for each in woken(world) if each[:2] == (BERT, "web")] == [1, 2, 3]


def test_who_takes_over_does_not_wake_for_what_was_acked_under_the_name_of_the_first_platform() -> None:
    world = takes_over(
        send(ANNA, BERT), send(ANNA, BERT), opened(BERT, "ios"), ledger(["ios"], acked=rows((BERT, 0, 1, 1)))
    )
    assert [each for each in woken(world) if each[0] == BERT] == [(BERT, "ios", 2)]


def test_who_takes_over_while_the_store_is_down_wakes_once_too_often_rather_than_not_at_all() -> None:
    world = World()
    world.is_serving = False
    world.start(user(ANNA), user(BERT))
    world.write(send(ANNA, BERT))
    down = Down(world.stores.inboxes)
    down.is_down = True
    world.stores.inboxes = down  # type: ignore[assignment]
    world.is_serving = True
    world.carrier.serve(0)
    assert (BERT, "first", 1) in woken(world)


def test_only_the_carrier_that_serves_writes_dead_letters() -> None:
    world = World()
    world.is_serving = False
    world.start(user(ANNA))
    for is_serving in (False, True):
        world.is_serving = is_serving
        world.append(b"\xff\xff\xff")
        world.run()
        assert world.carrier.counters.undecodable == 1 + is_serving
        assert world.carrier.counters.dead_letters == is_serving
        assert world.carrier.applied_all == world.log.committed
