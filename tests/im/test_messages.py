"""Saying something: send, gsend, recall, system, broadcast."""

from base64 import b64encode
from typing import Any

import pytest

from pixiu.im.draft import Actor
from pixiu.model.errors import Conflict, NotAllowed, NotFound, RequestError, TooLarge
from tests.im.world import DAY_MS, World, ids, messages, unlimited


@pytest.mark.feature("R03")
def test_a_send_is_in_both_inboxes_with_one_id_one_body_and_the_peers_unread_is_one_more() -> None:
    world = World()
    world.actor("bob")
    sent = world.do("alice", "send", to="bob", text="hi 你好", send_id="s1")
    assert sent == {"message_id": sent["message_id"], "at": world.clock.now_ms()}
    expected = {
        "message_id": sent["message_id"], "from": "alice", "to": "bob", "at": sent["at"], "kind": "text",
        "text": "hi 你好", "send_id": "s1",
    }  # fmt: skip
    assert world.inbox("bob") == [expected]
    assert world.inbox("alice") == [expected]
    # Two inboxes and two timeline rows refer to one body.
    assert world.stores.bodies.references(int(str(sent["message_id"]))) == 4
    assert world.unread("bob") == {"alice": 1}
    assert world.unread("alice") == {}


@pytest.mark.feature("R04")
def test_a_send_to_oneself_appears_once_and_leaves_unread_as_it_is() -> None:
    world = World()
    sent = world.do("alice", "send", to="alice", text="remember")
    assert [each["message_id"] for each in world.inbox("alice")] == [sent["message_id"]]
    assert ids(world.do("alice", "history", {"with": "alice"})) == [sent["message_id"]]
    assert world.unread("alice") == {}


@pytest.mark.feature("R06")
def test_a_group_message_has_one_body_and_raises_unread_for_all_but_its_author() -> None:
    world = World()
    for name in ("bob", "carol"):
        world.actor(name)
    world.do("alice", "create_group", group="tea", members=["bob", "carol"])
    sent = world.do("alice", "gsend", group="tea", text="hi")
    for name in ("alice", "bob", "carol"):
        assert [each["message_id"] for each in world.inbox(name)][-1] == sent["message_id"]
        assert world.unread(name) == {"tea": 0 if name == "alice" else 1}
    # Three inboxes and one row.
    assert world.stores.bodies.references(int(str(sent["message_id"]))) == 4
    shown = world.inbox("bob")[-1]
    assert shown["group"] == "tea"
    assert "to" not in shown


@pytest.mark.feature("R07")
def test_who_is_no_member_can_neither_say_nor_read() -> None:
    world = World()
    world.do("alice", "create_group", group="tea")
    world.do("alice", "gsend", group="tea", text="private")
    for action, params in (
        ("gsend", {"group": "tea", "text": "hi"}),
        ("history", {"group": "tea"}),
        ("sync", {"group": {"tea": "0"}}),
        ("read", {"group": "tea"}),
        ("schedule", {"group": "tea", "text": "hi", "at": world.clock.now_ms() + 1000}),
    ):
        with pytest.raises(NotAllowed, match="not a member of group 'tea'"):
            world.do("mallory", action, params)


def test_a_muted_member_may_read_and_not_speak() -> None:
    world = World()
    world.do("alice", "create_group", group="tea", members=["bob"])
    world.do("alice", "manage", group="tea", user="bob", op="mute")
    with pytest.raises(NotAllowed, match="muted in group 'tea'"):
        world.do("bob", "gsend", group="tea", text="hi")
    world.do("bob", "history", group="tea")
    world.do("alice", "manage", group="tea", user="bob", op="unmute")
    assert world.do("bob", "gsend", group="tea", text="hi")["message_id"]


def test_everything_a_message_may_have_comes_out_as_it_went_in() -> None:
    world = World()
    first = world.do("alice", "send", to="bob", text="first")
    body = b64encode(bytes(range(256))).decode()
    given = {
        "kind": "plugin", "body": body, "send_id": "x", "ref": first["message_id"], "fields": {"a": "1", "b": ""},
        "priority": "high", "enc": "aes", "key_print": "-77", "subtype": 9,
    }  # fmt: skip
    world.do("alice", "send", {"to": "bob", **given})
    shown = messages(world.do("bob", "history", {"with": "alice"}))[0]
    assert {name: shown[name] for name in given} == given


def test_encrypted_text_passes_through_untouched() -> None:
    world = World()
    body = b64encode(b"\xff\x00secret").decode()
    world.do("alice", "send", to="bob", kind="text", body=body, enc="chacha20", key_print=5)
    shown = world.inbox("alice")[-1]
    assert shown["kind"] == "text"
    assert shown["body"] == body
    assert shown["enc"] == "chacha20"
    assert shown["key_print"] == "5"
    assert "text" not in shown


def test_plain_text_given_as_body_must_be_text() -> None:
    world = World()
    with pytest.raises(RequestError, match="UTF-8"):
        world.do("alice", "send", to="bob", kind="text", body=b64encode(b"\xff").decode())
    world.do("alice", "send", to="bob", kind="text", body=b64encode("é".encode()).decode())
    assert world.inbox("alice")[-1]["text"] == "é"


def test_a_message_may_have_so_many_bytes_and_no_more() -> None:
    world = World(unlimited(message_bytes_max=10))
    world.do("alice", "send", to="bob", text="é" * 5)
    with pytest.raises(TooLarge, match="10 bytes, not 12"):
        world.do("alice", "send", to="bob", text="é" * 6)


@pytest.mark.feature("B07")
def test_a_recall_removes_the_content_at_both_sides_for_good_and_tells_both() -> None:
    world = World()
    world.actor("bob")
    sent = world.do("alice", "send", to="bob", text="oops", fields={"a": "b"}, send_id="s")
    assert world.do("alice", "recall", message_id=sent["message_id"]) == {}
    for name, peer in (("alice", "bob"), ("bob", "alice")):
        newest, recalled = messages(world.do(name, "history", {"with": peer}))
        assert recalled == {
            "message_id": sent["message_id"], "from": "alice", "to": "bob", "at": sent["at"], "kind": "text",
            "recalled": True,
        }  # fmt: skip
        assert newest["kind"] == "delete"
        assert newest["ref"] == sent["message_id"]
        assert [each.get("text") for each in world.inbox(name)] == [None, None]
    before = len(world.records())
    assert world.do("alice", "recall", message_id=sent["message_id"]) == {}
    assert len(world.records()) == before


@pytest.mark.feature("B07")
def test_a_private_message_is_recalled_by_its_author_only() -> None:
    world = World()
    sent = world.do("alice", "send", to="bob", text="mine")
    with pytest.raises(NotAllowed, match="not yours"):
        world.do("bob", "recall", message_id=sent["message_id"])
    with pytest.raises(NotFound):
        world.do("carol", "recall", message_id=sent["message_id"])
    assert world.texts("bob", {"with": "alice"}) == ["mine"]


@pytest.mark.feature("B07")
def test_a_group_message_is_recalled_by_its_author_or_an_admin() -> None:
    world = World()
    world.do("alice", "create_group", group="tea", members=["bob", "carol", "dave"])
    world.do("alice", "manage", group="tea", user="dave", op="admin")
    sent = [world.do("bob", "gsend", group="tea", text=text)["message_id"] for text in ("one", "two", "three")]
    with pytest.raises(NotAllowed, match="only its author and admins"):
        world.do("carol", "recall", message_id=sent[0])
    with pytest.raises(NotAllowed, match="not a member"):
        world.do("eve", "recall", message_id=sent[0])
    # The cache is warm, so that it is updated too.
    world.do("carol", "sync", group={"tea": 0})
    world.do("bob", "recall", message_id=sent[0])
    world.do("dave", "recall", message_id=sent[1])
    world.do("alice", "recall", message_id=sent[2])
    for answer in (world.do("carol", "history", group="tea"), world.do("carol", "sync", group={"tea": 0})):
        shown = {each["message_id"]: each for each in messages(answer)}
        assert [shown[each].get("recalled") for each in sent] == [True] * 3
        assert not any("text" in shown[each] for each in sent)


@pytest.mark.feature("B07")
def test_a_recall_comes_in_time_or_not_at_all() -> None:
    world = World(unlimited(recall_ms=1000))
    sent = [world.do("alice", "send", to="bob", text="x")["message_id"] for _ in range(2)]
    world.pass_time(1000)
    world.do("alice", "recall", message_id=sent[0])
    world.pass_time(1)
    with pytest.raises(NotAllowed, match="1001 ms old; it can be recalled for 1000 ms"):
        world.do("alice", "recall", message_id=sent[1])


def test_without_a_limit_a_recall_is_never_late() -> None:
    world = World(unlimited(recall_ms=0))
    sent = world.do("alice", "send", to="bob", text="x")
    world.pass_time(1000 * DAY_MS)
    assert world.do("alice", "recall", message_id=sent["message_id"]) == {}


def test_recalls_and_the_systems_words_cannot_be_recalled() -> None:
    world = World()
    world.do("alice", "create_group", group="tea", members=["bob"])
    sent = world.do("alice", "send", to="bob", text="x")
    world.do("alice", "recall", message_id=sent["message_id"])
    recall = messages(world.do("alice", "history", {"with": "bob"}))[0]["message_id"]
    notice = messages(world.do("alice", "history", group="tea"))[0]["message_id"]
    broadcast = world.admin("broadcast", group="tea", text="maintenance")["message_id"]
    for message_id in (recall, notice, broadcast):
        with pytest.raises((Conflict, NotFound)):
            world.do("alice", "recall", message_id=message_id)


def test_the_system_speaks_to_one_user() -> None:
    world = World()
    world.actor("bob")
    sent = world.admin("system", to="bob", text="welcome", fields={"action": "greeting"})
    shown = world.inbox("bob")
    assert [each["message_id"] for each in shown] == [sent["message_id"]]
    assert shown[0]["from"] == "0"
    assert shown[0]["kind"] == "system"
    assert shown[0]["text"] == "welcome"
    assert shown[0]["fields"] == {"action": "greeting"}
    assert world.unread("bob") == {"0": 1}
    assert world.texts("bob", {"with": "0"}) == ["welcome"]
    assert world.do("bob", "read", {"with": "0"}) == {"unread": 0}


def test_the_system_speaks_to_a_group() -> None:
    world = World()
    world.do("alice", "create_group", group="tea", members=["bob"])
    world.admin("broadcast", group="tea", text="maintenance")
    shown = messages(world.do("bob", "history", group="tea"))[0]
    assert shown["from"] == "0"
    assert shown["group"] == "tea"
    assert shown["kind"] == "system"
    assert shown["fields"] == {"action": "broadcast"}
    assert world.unread("alice") == {"tea": 1}


def test_only_admins_speak_for_the_system_and_a_publisher_is_no_user() -> None:
    world = World()
    for action, params in (
        ("system", {"to": "bob", "text": "x"}),
        ("broadcast", {"group": "tea", "text": "x"}),
        ("push", {"uids": ["bob"], "msg_bodies": ["x"]}),
    ):
        with pytest.raises(NotAllowed, match="for admins"):
            world.do("alice", action, params)
    with pytest.raises(NotAllowed, match="done by a user"):
        world.ask(Actor(0, is_admin=True), "send", {"to": "bob", "text": "x"})


def test_a_senders_own_fields_cannot_pass_for_the_systems() -> None:
    world = World()
    world.do("alice", "send", to="bob", text="x", fields={"action": "join"})
    assert world.inbox("alice")[-1]["kind"] == "text"
    for name in ("user", "group"):
        with pytest.raises(RequestError, match="the system's own"):
            world.do("alice", "send", to="bob", text="x", fields={name: "5"})


@pytest.mark.parametrize(
    "said",
    [
        {"text": "", "fields": {"sticker": "7"}}, {"text": "", "enc": "aes"}, {"body": "", "kind": "plugin"},
        {"body": "", "kind": "text", "enc": "custom"}, {"text": " "},
    ],
)  # fmt: skip
def test_what_has_no_text_and_says_something_else_is_taken(said: dict[str, Any]) -> None:
    world = World()
    for name in ("alice", "bob"):
        world.actor(name)
    assert world.do("alice", "send", to="bob", **said)["message_id"]
