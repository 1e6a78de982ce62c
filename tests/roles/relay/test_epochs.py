"""Inboxes whose numbers are of an epoch: clients know cursors, stores and ledgers plain numbers."""

import pytest

from pixiu.config import InboxSettings
from pixiu.model.cursor import Cursors
from tests.roles.relay.scene import Scene

NOW, BEFORE = Cursors(7), Cursors(6)


def test_pushes_have_cursors_and_acks_of_them_count() -> None:
    scene = Scene(epoch=7)
    older, newer = scene.connect(1, "web", "a"), scene.connect(1, "web", "b")
    scene.run()
    for _ in range(3):
        scene.say(1)
    scene.run()
    assert older.useqs == newer.useqs == [NOW.of(useq) for useq in (1, 2, 3)]
    assert [push.previous_useq for push in newer.pushes] == [0, NOW.of(1), NOW.of(2)]
    assert scene.waiting(1) == []
    assert scene.rows("acked")[-1][3] == 3, "the ledger is of the log, and knows its numbers"


@pytest.mark.parametrize("epoch", [7, 0])
def test_who_comes_with_a_cursor_of_another_epoch_gets_all_that_waits(epoch: int) -> None:
    scene = Scene(epoch=epoch)
    for _ in range(4):
        scene.store(1)
    client = scene.connect(1, "web", "a", cursor=BEFORE.of(3), acks_after_ms=None)
    scene.run()
    assert client.useqs == [scene.cursors.of(useq) for useq in (1, 2, 3, 4)]
    assert scene.relay.ack(client.session_id, BEFORE.of(4)), "the session is known"
    scene.run()
    assert scene.waiting(1) == [1, 2, 3, 4], "and nothing was acked"
    scene.relay.ack(client.session_id, scene.cursors.of(4))
    scene.run()
    assert scene.waiting(1) == []


def test_who_comes_with_a_cursor_of_this_epoch_goes_on_behind_it_and_repeats_have_cursors_too() -> None:
    scene = Scene(InboxSettings(ack_timeout_ms=250), epoch=7)
    for _ in range(4):
        scene.store(1)
    client = scene.connect(1, "web", "a", cursor=NOW.of(3), acks_after_ms=None)
    scene.run(400)
    assert client.useqs == [NOW.of(4)] * 2 and client.pushes[-1].is_resend
    assert scene.waiting(1) == [4]
