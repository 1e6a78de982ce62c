"""A device that comes back with its cursor: what it has sent itself is nothing that it missed."""

from __future__ import annotations

import pytest

from pixiu.roles.relay.resuming import Resuming
from tests.roles.relay.scene import Client, Scene

pytestmark = pytest.mark.feature("P06", "B20")


def with_own_sends(scene: Scene, count: int = 2) -> Client:
    """A client that has acked one message, and has then sent some."""
    client = scene.connect(1, device="phone")
    scene.run()
    scene.say(1)
    scene.run()
    for _ in range(count):
        scene.say(1, session=client.session_id)
    scene.run()
    assert (client.useqs, client.cursor) == ([1], 1)
    return client


@pytest.mark.parametrize("is_seen_to_leave", [True, False])
def test_own_sends_are_held_by_the_session_and_by_the_one_after_it(is_seen_to_leave: bool) -> None:
    scene = Scene()
    client = with_own_sends(scene)
    assert scene.relay.holds(client.session_id, 1) == 3
    assert scene.relay.holds(client.session_id, 0) == 0
    if is_seen_to_leave:
        scene.relay.disconnect(client.session_id)
    again = scene.connect(1, device="phone", cursor=1)
    assert scene.relay.holds(again.session_id, 1) == 3
    scene.run()
    assert scene.relay.holds(again.session_id, 1) == 3
    assert again.pushes == [], "its own words do not come as news, even if their rows are not written yet"
    scene.say(1, session=again.session_id)
    scene.run()
    assert scene.relay.holds(again.session_id, 1) == 4, "the cursor that it knows is still the first one"
    scene.say(1)
    scene.run()
    assert (again.useqs, scene.relay.holds(again.session_id, 5)) == ([5], 5)


def test_rows_that_are_not_written_yet_bring_nothing_twice() -> None:
    scene = Scene(ledger_ms=5_000)
    client = with_own_sends(scene)
    scene.relay.disconnect(client.session_id)
    again = scene.connect(1, device="phone", cursor=1)
    scene.run()
    assert scene.waiting(1) == [1, 2, 3]
    assert again.pushes == []


def test_another_device_or_another_cursor_gets_no_such_credit() -> None:
    scene = Scene()
    scene.relay.disconnect(with_own_sends(scene).session_id)
    other = scene.connect(1, device="laptop", cursor=1)
    scene.run()
    assert scene.relay.holds(other.session_id, 1) == 1
    scene.relay.disconnect(other.session_id)
    older = scene.connect(1, device="phone", cursor=2)
    scene.run()
    assert scene.relay.holds(older.session_id, 2) == 2


def test_what_expired_behind_the_cursor_is_missed_all_the_same() -> None:
    scene = Scene()
    client = scene.connect(1, device="phone")
    scene.run()
    scene.say(1)
    scene.run()
    scene.store(1, age_ms=scene.settings.expire_ms + 1)
    scene.relay.flush(1, "web")
    scene.run()
    scene.say(1, session=client.session_id)
    scene.run()
    assert scene.relay.holds(client.session_id, 1) == 1


def test_the_memory_of_those_who_left_is_bounded() -> None:
    scene = Scene()
    client = with_own_sends(scene)
    resuming = Resuming(left_max=3)
    live = scene.relay._live[client.session_id]
    for number in range(5):
        live.session = live.session._replace(device=f"phone-{number}")
        resuming.leaves(live)
    assert len(resuming) == 3
    live.session = live.session._replace(device="elsewhere")
    live.inbox.delivery.logged_out(client.session_id)
    assert resuming.came(live.inbox, "phone-4", 1) == (1, 3)
    assert resuming.came(live.inbox, "phone-0", 1) == (1, 1), "the oldest was forgotten"


@pytest.mark.parametrize("device", ["phone", "laptop"])
def test_what_was_acked_a_moment_ago_does_not_come_again(device: str) -> None:
    """Whoever comes next is quicker than the log."""
    scene = Scene(ledger_ms=5_000)
    client = scene.connect(1, device="phone")
    scene.run()
    for _ in range(3):
        scene.say(1)
    scene.run()
    assert client.useqs == [1, 2, 3]
    scene.relay.disconnect(client.session_id)
    again = scene.connect(1, device=device)
    scene.run()
    assert (scene.waiting(1), again.pushes) == ([1, 2, 3], [])
    scene.say(1)
    scene.run()
    assert again.useqs == [4]
    scene.run(6_000)
    assert scene.waiting(1) == []
