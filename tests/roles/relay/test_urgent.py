"""Early copies of urgent messages: who gets them, how often, and that they count for nothing."""

from __future__ import annotations

from pixiu.config import InboxSettings
from pixiu.roles.relay.deliveries import EARLY_MAX
from tests.roles.relay.scene import Client, Scene

SETTINGS = InboxSettings(window=4, read_limit=4, sessions_max=2)


def early(client: Client) -> list[int]:
    return [push.message_id for push in client.pushes if not push.useq]


def in_place(client: Client) -> list[int]:
    return [push.useq for push in client.pushes if push.useq]


def behind_a_backlog(count: int = 20) -> tuple[Scene, Client]:
    """A client that acks nothing, with a full window and more messages after it."""
    scene = Scene(SETTINGS)
    for _ in range(count):
        scene.say(1)
    client = scene.connect(1, acks_after_ms=None)
    scene.run()
    assert in_place(client) == [1, 2, 3, 4]
    return scene, client


def test_early_copy_leaves_cursor_inbox_and_ledger_as_they_were() -> None:
    scene, client = behind_a_backlog()
    handed = scene.rows("handed")
    wake = scene.store(1, is_urgent=True)
    scene.relay.wake([wake])
    scene.run()
    assert early(client) == [wake.entries[0].message_id]
    assert client.cursor == 4
    assert (scene.rows("handed"), scene.rows("acked")) == (handed, [])
    assert scene.waiting(1) == list(range(1, 22))
    client.acks_after_ms = 0
    scene.relay.ack(client.session_id, 4)
    scene.run(100)
    assert in_place(client) == list(range(1, 22))
    assert scene.waiting(1) == []
    scene.check_rows()


def test_session_gets_one_early_copy_per_message_however_often_it_is_woken() -> None:
    scene, client = behind_a_backlog()
    wake = scene.store(1, is_urgent=True)
    for _ in range(3):
        scene.relay.wake([wake])
    assert len(early(client)) == 1


def test_early_copies_are_bounded_and_room_returns_when_the_messages_follow() -> None:
    scene, client = behind_a_backlog(8)
    for _ in range(EARLY_MAX + 5):
        scene.say(1, is_urgent=True)
    assert len(early(client)) == EARLY_MAX == scene.relay.counters.early
    scene.relay.ack(client.session_id, 4)
    scene.relay.ack(client.session_id, 8)  # entries 9 to 12, copied early before, are pushed in their places
    assert in_place(client) == list(range(1, 13))
    for _ in range(6):
        scene.say(1, is_urgent=True)
    assert len(early(client)) == EARLY_MAX + 4


def test_every_session_of_the_platform_gets_the_copy_but_not_the_one_that_sent_it() -> None:
    scene, older = behind_a_backlog()
    newest = scene.connect(1, device="b", acks_after_ms=None)
    scene.run()
    scene.say(1, is_urgent=True)
    scene.say(1, is_urgent=True, session=older.session_id)
    assert (len(early(older)), len(early(newest))) == (1, 2)


def test_client_that_keeps_up_gets_no_early_copies() -> None:
    scene = Scene(SETTINGS)
    client = scene.connect(1)
    scene.run()
    for _ in range(10):
        scene.say(1, is_urgent=True)
        scene.run()
    assert early(client) == []
    assert in_place(client) == list(range(1, 11))
