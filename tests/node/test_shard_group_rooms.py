"""What is for one user, and what is said in the room of a group, when people are at several gateways."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pixiu.im.draft import Actor
from pixiu.machines.wire import Pushes
from pixiu.model.errors import PixiuError
from pixiu.model.inbox import NEED_OFFLINE
from tests.node.shard_links import ClusterWorld
from tests.node.test_shard_links import ANN, BEN, CAL

if TYPE_CHECKING:
    from tests.node.links import Client
    from tests.node.shard_links import ClusterGateway


@pytest.mark.feature("X70")
def test_message_to_one_user_goes_once_to_the_right_gateway_or_waits_or_is_dropped_and_counted() -> None:
    """The shard routes to the user's gateway and to no other."""
    world = ClusterWorld()
    one, two = world.gateways
    ann, ben = one.connect(ANN), two.connect(BEN)
    pushed_to: list[ClusterGateway] = []
    for gateway in world.gateways:
        for shard in gateway.shards.shards.values():
            note_pushes(shard.link, pushed_to, gateway)
    ann.ask("send", to=BEN, text="you are there")
    world.run(50)
    assert ben.texts == ["you are there"] and pushed_to == [two], "one push, to where the user is"
    away = two.connect(CAL)
    away.connection.lost()
    world.run(50)
    publisher, relay = Actor(0, "", "", 0, is_admin=True), world.leaders[0].messaging.relay.counters
    for options, text in ((0, "now or never"), (NEED_OFFLINE, "it can wait")):
        answers: list[Any] = []
        params = {"uids": [CAL], "msg_bodies": [text], "msg_options": options}
        one.shards.call(publisher, "push", params, answers.append)
        world.run(50)
        assert not isinstance(answers[0], PixiuError), answers
    assert relay.dead == 1, "what is not kept is dropped, and counted"
    waiting = world.leaders[0].messaging.stores.inboxes.after(int(CAL), "web", 0, 10).entries
    assert len(waiting) == 1, "what is kept is in the inbox"
    assert pushed_to == [two], "no gateway got either of them"
    late = one.connect(CAL)
    world.run(50)
    assert late.texts == ["it can wait"]


def note_pushes(link: Any, pushed_to: list[ClusterGateway], gateway: ClusterGateway) -> None:
    """Note which gateway gets messages for its sessions."""
    perform = link._receivers[Pushes]

    def noted(message: Pushes) -> None:
        pushed_to.append(gateway)
        perform(message)

    link._receivers[Pushes] = noted


def said_to(client: Client) -> list[tuple[str, str, str]]:
    """Speaker, text and message id of what a client was shown of the room."""
    said = [frame["message"] for frame in client.pushed("message")]
    return [(each["from"], each["text"], each["message_id"]) for each in said if each.get("room") == "g:team"]


@pytest.mark.feature("R18")
@pytest.mark.parametrize("kind", ["live", "reliable"])
def test_message_in_the_room_of_a_group_is_shown_once_at_every_gateway(kind: str) -> None:
    world = ClusterWorld()
    one, two = world.gateways
    ann, ben, cal = one.connect(ANN), one.connect(BEN), two.connect(CAL)
    ann.ask("create_group", group="team", name="team", members=[BEN, CAL])
    for each in (ann, ben, cal):
        assert "result" in each.ask("enter", room="g:team")
    answers = [
        each.ask("say", room="g:team", text=text, **{"class": kind})["result"]
        for each, text in ((ann, "from ann"), (ben, "from ben"), (cal, "from cal"))
    ]
    world.run(100)
    ids = [answer["message_id"] for answer in answers]
    assert len(set(ids)) == 3 and {answer["members"] for answer in answers} == {3}
    for each in (ann, ben, cal):
        assert said_to(each) == [
            (ANN, "from ann", ids[0]), (BEN, "from ben", ids[1]), (CAL, "from cal", ids[2])
        ]  # fmt: skip
    ben.ask("quit", group="team")
    assert ben.ask("say", room="g:team", text="still here?")["error"]["code"] == "forbidden"
    assert len(said_to(ann)) == 3, "a refused message is shown to no client"


def test_message_in_the_room_of_a_group_is_refused_while_the_shard_is_away_and_rooms_come_back_with_it() -> None:
    world = ClusterWorld(gateways=1)
    gateway = world.gateways[0]
    ann, ben = gateway.connect(ANN), gateway.connect(BEN)
    ann.ask("create_group", group="team", name="team", members=[BEN])
    for each in (ann, ben):
        each.ask("enter", room="g:team")
    world.leaders[0].kill()
    world.run(50)
    for kind in ("live", "reliable"):
        refused = ann.ask("say", room="g:team", text="hear me", **{"class": kind})["error"]
        assert refused["code"] == "unavailable" and refused["retry_after_ms"]
    world.lead(epoch=2)
    world.run(500)
    assert "result" in ann.ask("say", room="g:team", text="again", **{"class": "reliable"})
    world.run(50)
    assert [text for _, text, _ in said_to(ben)] == ["again"], "both are in the room again"
