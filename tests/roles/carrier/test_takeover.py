"""A carrier that stood by takes over: whom it wakes for what came before."""

from typing import Never

import pytest

from pixiu.model.errors import Unavailable
from pixiu.model.pixiu_pb2 import Record
from tests.roles.carrier.world import ANNA, BERT, World, ledger, opened, rows, send, user


def woken(world: World) -> list[tuple[int, str, int]]:
    return [(wake.user, wake.platform, entry.useq) for wake in world.wakes for entry in wake.entries]


def standing_by(*records: Record) -> World:
    """A carrier that does not serve has applied all of this."""
    world = World()
    world.is_serving = False
    world.start(user(ANNA), user(BERT))
    world.write(*records)
    assert world.wakes == []
    return world


def serves(world: World) -> None:
    world.is_serving = True
    world.carrier.serve(0)


def test_what_waits_is_woken_for_and_not_what_was_acked_long_ago() -> None:
    # Otherwise phones ring for what was read, each time that another replica serves.
    said = [send(ANNA, BERT, f"line {number}") for number in range(3)]
    acked = ledger(["ios"], acked=rows((BERT, 0, 1, 2)))
    world = standing_by(opened(BERT, "ios"), opened(BERT, "web"), *said, acked)
    serves(world)
    assert [each for each in woken(world) if each[:2] == (BERT, "ios")] == [(BERT, "ios", 3)]
    assert [each[2] for each in woken(world) if each[:2] == (BERT, "web")] == [1, 2, 3]


def test_so_it_is_when_the_first_inbox_has_got_its_name_meanwhile() -> None:
    acked = ledger(["ios"], acked=rows((BERT, 0, 1, 1)))
    world = standing_by(send(ANNA, BERT), send(ANNA, BERT), opened(BERT, "ios"), acked)
    serves(world)
    assert [each for each in woken(world) if each[0] == BERT] == [(BERT, "ios", 2)]


def test_while_the_store_is_down_it_wakes_once_too_often_rather_than_not_at_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = standing_by(send(ANNA, BERT))

    def down(_user: int, _platform: str) -> Never:
        raise Unavailable("the store is down")

    monkeypatch.setattr(world.stores.inboxes, "state", down)
    serves(world)
    assert (BERT, "first", 1) in woken(world)
