"""Notification tasks: one per user and message, with what a phone needs."""

import pytest

from pixiu.model.inbox import NEED_ALL, Entry
from pixiu.model.pixiu_pb2 import AES, GROUP, MsgChat, Notify, Record, Task
from pixiu.ports.log import NOTIFY
from pixiu.roles.carrier.notify import Notifier
from tests.roles.carrier.world import AT, World, group_made, opened, say, send, user

ANNA, BERT = 1, 2


def started() -> World:
    return World().start(user(ANNA), user(BERT), opened(BERT, "ios"), opened(BERT, "web"))


def notifier(world: World, *, text_max: int = 200, quiet: tuple[int, ...] = ()) -> Notifier:
    return Notifier(
        world.stores,
        world.log,
        world.clock,
        world.carrier.counters,
        text_max=text_max,
        is_quiet=lambda number: number in quiet,
    )


def missed(world: World, number: int, *platforms: str) -> dict[str, list[Entry]]:
    return {platform: world.stores.inboxes.after(number, platform, 0, 100).entries for platform in platforms}


def tasks(world: World) -> list[Notify]:
    world.run()
    return [Task.FromString(record.payload).notify for record in world.log.topic(NOTIFY, 0, 100)]


@pytest.mark.feature("T2")
def test_a_message_makes_one_task_for_all_platforms_that_were_away() -> None:
    world = started()
    first, second = world.write(send(ANNA, BERT, "hello"), send(ANNA, BERT, "again"))
    notifier(world).away(BERT, missed(world, BERT, "ios", "web"))
    made = tasks(world)
    assert [(each.message_id, list(each.platforms)) for each in made] == [
        (first, ["ios", "web"]), (second, ["ios", "web"])
    ]  # fmt: skip
    assert (made[0].user, getattr(made[0], "from"), made[0].conversation) == (BERT, ANNA, "u:1")
    assert (made[0].text, made[0].unread) == ("hello", 2)
    assert world.carrier.counters.notifications == 2


@pytest.mark.feature("T2")
def test_saying_again_that_someone_was_away_makes_no_second_task() -> None:
    world = started()
    world.write(send(ANNA, BERT))
    entries = missed(world, BERT, "ios")
    notifier(world).away(BERT, entries)
    world.run()
    notifier(world).away(BERT, entries)
    assert len(tasks(world)) == 1


def test_a_group_is_its_own_conversation() -> None:
    world = started()
    world.write(group_made(7, ANNA, [BERT]))
    (said,) = world.write(say(ANNA, 7))
    entries = [entry for entry in missed(world, BERT, "ios")["ios"] if entry.message_id == said]
    notifier(world).away(BERT, {"ios": entries})
    (made,) = tasks(world)
    assert (made.conversation, made.unread) == ("g:7", 1)


def test_the_text_is_cut_and_nothing_encrypted_is_shown() -> None:
    world = started()
    secret = MsgChat(fromId=ANNA, toId=BERT, data=b"ciphertext", encType=AES, chatType=GROUP).SerializeToString()
    world.write(send(ANNA, BERT, "x" * 300))
    world.write(Record(at=AT, actor=ANNA, to=BERT, chat=secret, options=NEED_ALL))
    notifier(world, text_max=10).away(BERT, missed(world, BERT, "ios"))
    assert [made.text for made in tasks(world)] == ["x" * 10, ""]


def test_nobody_is_notified_of_what_one_said_oneself_on_another_device() -> None:
    world = started()
    world.write(send(ANNA, BERT))
    notifier(world).away(ANNA, missed(world, ANNA, "first"))
    assert tasks(world) == []


def test_those_who_want_quiet_are_left_alone() -> None:
    world = started()
    world.write(send(ANNA, BERT))
    notifier(world, quiet=(BERT,)).away(BERT, missed(world, BERT, "ios"))
    assert tasks(world) == []


def test_a_message_whose_body_is_gone_is_not_announced() -> None:
    world = started()
    notifier(world).away(BERT, {"ios": [Entry(1, 12345, 1, AT, NEED_ALL, 0)]})
    assert tasks(world) == []
