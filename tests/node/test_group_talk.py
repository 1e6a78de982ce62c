"""What is for one user, and what is said in the room of a group, over the partitions of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pixiu.im.draft import Actor
from pixiu.machines.wire import Pushes
from pixiu.model.errors import PixiuError
from pixiu.model.inbox import NEED_OFFLINE
from tests.node.carrier_links import ClusterWorld
from tests.node.test_carrier_links import EVEN, ODD, ODD_TOO

if TYPE_CHECKING:
    from tests.node.carrier_links import ClusterGateway
    from tests.node.links import Client


@pytest.mark.feature("X70")
def test_what_is_sent_to_one_user_goes_once_to_the_right_gateway_or_waits_or_is_dropped_and_counted() -> None:
    """The relay's way of chat: the carrier of a user knows where the user is, and no other gateway is told."""
    world = ClusterWorld()
    one, two = world.gateways
    even, odd = one.connect(EVEN), two.connect(ODD)
    came: list[ClusterGateway] = []
    for gateway in world.gateways:
        for partition in gateway.carriers.partitions.values():
            note_pushes(partition.link, came, gateway)
    even.ask("send", to=ODD, text="you are there")
    world.run(50)
    assert odd.texts == ["you are there"] and came == [two], "one push, to where the user is"
    away = two.connect(ODD_TOO)
    away.connection.lost()
    world.run(50)
    publisher, dead = Actor(0, "", "", 0, is_admin=True), world.carriers[1].messaging.relay.counters
    for options, text in ((0, "now or never"), (NEED_OFFLINE, "it can wait")):
        answers: list[Any] = []
        params = {"uids": [ODD_TOO], "msg_bodies": [text], "msg_options": options}
        one.carriers.call(publisher, "push", params, answers.append)
        world.run(50)
        assert not isinstance(answers[0], PixiuError), answers
    assert dead.dead == 1, "what is for this moment is dropped, and counted"
    waiting = world.carriers[1].messaging.stores.inboxes.after(int(ODD_TOO), "web", 0, 10).entries
    assert len(waiting) == 1, "what lasts is in the inbox"
    assert came == [two], "of neither a gateway has heard"
    late = one.connect(ODD_TOO)
    world.run(50)
    assert late.texts == ["it can wait"]


def note_pushes(link: Any, came: list[ClusterGateway], gateway: ClusterGateway) -> None:
    """Keep where messages for sessions come."""
    perform = link._receivers[Pushes]

    def noted(message: Pushes) -> None:
        came.append(gateway)
        perform(message)

    link._receivers[Pushes] = noted


def said_to(client: Client) -> list[tuple[str, str, str]]:
    """What a client was shown of the room, by whom, with its number."""
    said = [frame["message"] for frame in client.pushed("message")]
    return [(each["from"], each["text"], each["message_id"]) for each in said if each.get("room") == "g:team"]


@pytest.mark.feature("R18")
@pytest.mark.parametrize("kind", ["live", "reliable"])
def test_what_is_said_in_the_room_of_a_group_is_heard_once_in_every_partition(kind: str) -> None:
    world = ClusterWorld()
    one, two = world.gateways
    even, odd, far = one.connect(EVEN), one.connect(ODD), two.connect(ODD_TOO)
    even.ask("create_group", group="team", name="team", members=[ODD, ODD_TOO])
    for each in (even, odd, far):
        assert "result" in each.ask("enter", room="g:team")
    answers = [
        each.ask("say", room="g:team", text=text, **{"class": kind})["result"]
        for each, text in ((even, "from the even"), (odd, "from the odd"), (far, "from afar"))
    ]
    world.run(100)
    ids = [answer["message_id"] for answer in answers]
    assert len(set(ids)) == 3
    for each in (even, odd, far):
        assert said_to(each) == [
            (EVEN, "from the even", ids[0]), (ODD, "from the odd", ids[1]), (ODD_TOO, "from afar", ids[2])
        ]  # fmt: skip
    odd.ask("quit", group="team")
    assert odd.ask("say", room="g:team", text="still here?")["error"]["code"] == "forbidden"
    assert len(said_to(even)) == 3, "what is refused at home goes nowhere"


def test_reliable_talk_in_the_room_of_a_group_is_not_promised_to_a_partition_that_is_gone() -> None:
    world = ClusterWorld(gateways=1)
    gateway = world.gateways[0]
    even, odd = gateway.connect(EVEN), gateway.connect(ODD)
    even.ask("create_group", group="team", name="team", members=[ODD])
    for each in (even, odd):
        each.ask("enter", room="g:team")
    world.carriers[1].kill()
    world.run(50)
    refused = even.ask("say", room="g:team", text="hear me", **{"class": "reliable"})["error"]
    assert refused["code"] == "unavailable" and "others have heard it" in refused["message"]
    assert "result" in even.ask("say", room="g:team", text="never mind")
