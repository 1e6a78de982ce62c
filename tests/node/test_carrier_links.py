"""A gateway of a cluster and the carriers of its users: who is asked, and what becomes of it when one is gone."""

from __future__ import annotations

import random
from typing import Any

import pytest

from pixiu.im.draft import Actor, UnknownUsers
from pixiu.links.leaders import Leader
from pixiu.model.errors import Overloaded, Unavailable
from pixiu.model.ids import Snowflakes
from pixiu.model.partitions import user_partition
from pixiu.roles.gateway import carriers as carriers_module
from tests.node.carrier_links import ClusterWorld
from tests.node.links import Client

ALL = [str(number) for number in range(1000, 1100)]
EVEN = next(user for user in ALL if user_partition(int(user), 2) == 0)
ODD, ODD_TOO = [user for user in ALL if user_partition(int(user), 2) == 1][:2]
"""Users whose own numbers put them into partition 0, and into partition 1."""


def test_users_are_spread_evenly_also_those_whose_numbers_the_log_gives() -> None:
    snowflakes = Snowflakes(1)
    given = [snowflakes.next(1_700_000_000_000 + 7 * number) for number in range(4_000)]
    for numbers in (given, range(1, 4_001)):
        for count in (2, 4, 8):
            counts = [0] * count
            for number in numbers:
                home = user_partition(number, count)
                counts[home] += 1
                assert user_partition(number, 2 * count) in (home, home + count), "doubling moves nobody elsewhere"
            assert max(counts) < 1.3 * min(counts), counts
    assert user_partition(0, 8) == 0


def is_gone(client: Client) -> bool:
    return client.transport.closed is not None


def sessions(world: ClusterWorld, partition: int) -> int:
    return world.carriers[partition].hub.sessions


@pytest.mark.feature("X75", "P02")
def test_users_of_two_partitions_at_two_gateways_talk() -> None:
    world = ClusterWorld()
    one, two = world.gateways
    even, odd = one.connect(EVEN), two.connect(ODD)
    assert (sessions(world, 0), sessions(world, 1)) == (1, 1)
    sent = even.ask("send", to=ODD, text="hi")["result"]["message_id"]
    world.run(20)
    assert (odd.texts, odd.ids()) == (["hi"], [sent])
    assert odd.pushed("message")[0]["message"]["from"] == EVEN
    answer = odd.ask("send", to=EVEN, text="hello", ref=sent)["result"]["message_id"]
    world.run(20)
    assert even.ids()[-1] == answer
    history = even.ask("history", **{"with": ODD})["result"]["messages"]
    assert [each["message_id"] for each in history] == [answer, sent]
    odd.ask("receipt", kind="read", message_ids=[sent])
    world.run(20)
    assert even.pushed("receipt")[0]["message_ids"] == [sent]
    odd.ask("receipt", kind="read", message_ids=[sent])
    world.run(20)
    assert len(even.pushed("receipt")) == 1, "it is known already, where it counts"
    assert "result" in even.ask("recall", message_id=sent)
    world.run(20)
    assert odd.pushed("recall"), "the receiver, who is elsewhere, is told"
    shown = odd.ask("history", **{"with": EVEN})["result"]["messages"]
    assert "hi" not in [each.get("text") for each in shown]
    again = two.connect(ODD, cursor=odd.cursor)
    assert not again.texts, "what was acked is not sent again"


def test_of_a_client_that_goes_while_it_logs_in_nothing_is_remembered() -> None:
    world = ClusterWorld()
    gateway = world.gateways[0]
    for _ in range(5):
        client = Client(gateway, EVEN)  # type: ignore[arg-type]
        client.connection.lost()
    world.run(60)
    assert sessions(world, 0) == 0
    assert (gateway.carriers._homes, gateway.carriers._users) == ({}, {})


def test_a_name_is_resolved_once_and_its_user_is_where_the_number_says() -> None:
    world = ClusterWorld()
    gateway = world.gateways[0]
    client = gateway.connect("alice")
    number = client.connection.actor.user
    home = world.carriers[user_partition(number, 2)]
    assert home.hub.sessions == 1, "created on first use, at whichever carrier was asked"
    asked: list[str] = []
    for each in gateway.carriers.partitions.values():
        each.link.find = lambda user, done: asked.append(user)  # type: ignore[method-assign]
    again = gateway.connect("alice.phone")
    assert not asked and again.connection.actor.user == number
    assert home.hub.sessions == 2


def test_names_are_remembered_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carriers_module, "NUMBERS_MAX", 2)
    world = ClusterWorld()
    gateway = world.gateways[0]
    for name in ("alice", "bob", "carol", "alice"):
        gateway.connect(name)
    assert list(gateway.carriers._numbers) == ["carol", "alice"]


def test_whoever_does_not_exist_is_refused_and_asked_for_each_time() -> None:
    world = ClusterWorld(creates_users=False)
    gateway = world.gateways[0]
    stranger = gateway.connect("alice")
    assert stranger.transport.closed == (4401, "unauthenticated")
    found: list[object] = []
    gateway.carriers.find_user("alice", found.append)
    gateway.carriers.find_user(EVEN, found.append)
    world.run(20)
    assert [type(each) for each in found] == [UnknownUsers, UnknownUsers]
    made: list[Any] = []
    gateway.carriers.call(Actor(0, is_admin=True), "create_user", {"user": "alice"}, made.append)
    world.run(20)
    assert made[0]["user"] == "alice"
    assert gateway.connect("alice").transport.closed is None


@pytest.mark.feature("B18")
def test_a_partition_without_a_server_is_unavailable_for_its_users_alone_and_the_next_server_takes_them_over() -> None:
    world = ClusterWorld()
    one, two = world.gateways
    even, odd = one.connect(EVEN), two.connect(ODD)
    world.carriers[1].kill()
    world.run(20)
    refused = odd.ask("send", to=EVEN, text="lost?")["error"]
    assert refused["code"] == "unavailable" and refused["retry_after_ms"]
    assert two.carriers.problems() == {"carriers": "out of reach: partition 1 of 2"}
    assert two.carriers.is_useful
    newcomer = two.connect(ODD_TOO)
    assert newcomer.transport.closed is not None and newcomer.transport.closed[1] == "unavailable"
    for number in range(3):
        assert "result" in even.ask("send", to=ODD, text=f"kept {number}")
    world.run(3 * world.settings.gateway.lease_ms)
    assert odd.transport.closed is None, "it stays: rooms work, and no other gateway has the partition either"
    world.serve(1, epoch=2)
    world.run(200)
    assert odd.texts == ["kept 0", "kept 1", "kept 2"]
    assert odd.pushed("resync") and odd.transport.closed is None
    assert "result" in odd.ask("send", to=EVEN, text="back")
    world.run(20)
    assert even.texts == ["back"]
    assert not two.carriers.problems()
    assert [each.moves for each in two.carriers.partitions.values()] == [0, 1]


def test_no_client_is_closed_when_another_replica_serves() -> None:
    world = ClusterWorld(partitions=1, gateways=1, resync_percent=25)
    clients = [world.gateways[0].connect(str(2000 + number)) for number in range(8)]
    world.carriers[0].kill()
    world.serve(0, epoch=2)
    world.run(200)
    assert not any(is_gone(client) for client in clients)
    assert sessions(world, 0) == 8


@pytest.mark.feature("B18")
def test_a_share_of_the_clients_is_closed_after_the_gateway_itself_was_frozen() -> None:
    world = ClusterWorld(partitions=1, gateways=1, resync_percent=25)
    gateway = world.gateways[0]
    clients = [gateway.connect(str(2000 + number)) for number in range(8)]
    gateway.is_frozen = True
    world.run(3 * world.settings.gateway.lease_ms)
    gateway.is_frozen = False
    world.run(500)
    assert sum(map(is_gone, clients)) == 2
    assert sessions(world, 0) == 6


def test_a_carrier_that_stands_still_is_left_and_asked_again_when_it_goes_on() -> None:
    world = ClusterWorld()
    gateway = world.gateways[0]
    even, odd = gateway.connect(EVEN), gateway.connect(ODD)
    world.carriers[1].is_frozen = True
    odd.say({"id": 900, "action": "send", "params": {"to": EVEN, "text": "into the void"}})
    world.run(2 * world.settings.gateway.lease_ms)
    (refused,) = [frame for frame in odd.transport.frames if frame.get("id") == 900]
    assert refused["error"]["code"] == "unavailable", "nobody waits for ever"
    assert "result" in even.ask("send", to=ODD, text="meanwhile")
    world.carriers[1].is_frozen = False
    world.run(3 * world.settings.gateway.lease_ms)
    assert "result" in odd.ask("send", to=EVEN, text="thawed")
    world.run(20)
    assert "meanwhile" in odd.texts and odd.transport.closed is None
    assert even.texts[-1] == "thawed"


def test_a_server_that_was_replaced_while_it_stood_still_is_not_gone_back_to() -> None:
    world = ClusterWorld(gateways=1)
    gateway = world.gateways[0]
    odd = gateway.connect(ODD)
    old = world.carriers[1]
    old.is_frozen = True
    world.serve(1, epoch=2)
    world.run(100)
    assert "result" in odd.ask("send", to=EVEN, text="at the next one")
    old.is_frozen = False
    world.write("carrier/partition1/leader", {"epoch": 1, "name": old.name, "address": "127.0.0.1:1"})
    world.run(2_000)
    assert gateway.leaders.of(1) == Leader(2, "carrier-1-2", "127.0.0.1:1"), "epochs do not go back"
    assert old.hub.sessions == 0 and sessions(world, 1) == 1


def test_whom_a_carrier_ends_as_moved_comes_to_the_new_partition_over_the_same_connection() -> None:
    world = ClusterWorld(partitions=1, gateways=1)
    even, odd = (world.gateways[0].connect(user) for user in (EVEN, ODD))
    world.count = 2
    world.serve(1, epoch=1)
    relay = world.carriers[0].messaging.relay
    relay.kick(int(ODD), odd.connection.actor.session_id, "moved")
    world.run(100)
    assert not is_gone(odd) and odd.connection.is_cut_off, "nobody has said yet where to"
    world.write("carrier/partition_num", {"count": 2})
    world.run(1_500)
    assert (sessions(world, 0), sessions(world, 1)) == (1, 1)
    assert "result" in odd.ask("send", to=EVEN, text="from the new place")
    world.run(20)
    assert even.texts == ["from the new place"]


@pytest.mark.feature("X14")
def test_when_the_count_doubles_sessions_move_to_where_their_users_are() -> None:
    world = ClusterWorld(partitions=1, gateways=1)
    gateway = world.gateways[0]
    even, odd = gateway.connect(EVEN), gateway.connect(ODD)
    assert sessions(world, 0) == 2
    world.count = 2
    world.serve(1, epoch=1)
    world.run(20)
    assert sessions(world, 0) == 2, "nobody moves before the flip"
    world.write("carrier/partition_num", {"count": 2})
    world.run(200)
    assert (sessions(world, 0), sessions(world, 1)) == (1, 1)
    assert "result" in even.ask("send", to=ODD, text="over there")
    world.run(20)
    assert odd.texts == ["over there"] and odd.pushed("resync")
    assert not even.pushed("resync"), "who stays does not notice"


@pytest.mark.feature("X14")
def test_who_logged_in_at_the_old_partition_while_it_doubled_is_not_left_there_when_it_ends() -> None:
    world = ClusterWorld(partitions=1, gateways=1)
    gateway, before = world.gateways[0], world.carriers[0]
    before.is_frozen = True
    odd = gateway.connect(ODD)
    world.count = 2
    world.serve(1, epoch=1)
    world.write("carrier/partition_num", {"count": 2})
    world.run(200)
    before.is_frozen = False
    world.run(50)
    assert (sessions(world, 0), sessions(world, 1)) == (1, 0), "its answer comes from where it was asked"
    before.kill()
    world.serve(0, epoch=2)
    world.run(2_000)
    assert not is_gone(odd) and (sessions(world, 0), sessions(world, 1)) == (0, 1)
    assert "result" in odd.ask("send", to=EVEN, text="I am here")


def test_a_cluster_without_carriers_has_rooms_and_takes_its_clients_along_when_they_come() -> None:
    world = ClusterWorld(partitions=0, gateways=1)
    gateway = world.gateways[0]
    alice = gateway.connect("alice")
    refused = alice.ask("send", to="bob", text="hi")["error"]
    assert refused["code"] == "unavailable" and "rooms work" in refused["message"]
    answers: list[object] = []
    gateway.carriers.call(Actor(7), "user", {}, answers.append)
    assert isinstance(answers[0], Unavailable)
    world.count = 2
    for partition in (0, 1):
        world.serve(partition, epoch=1)
    world.write("carrier/partition_num", {"count": 2})
    world.run(300)
    assert alice.transport.closed is None
    assert "result" in alice.ask("send", to="bob", text="hi")


@pytest.mark.feature("R16")
def test_typing_and_presence_cross_partitions() -> None:
    world = ClusterWorld()
    one, two = world.gateways
    even, odd = one.connect(EVEN), two.connect(ODD)
    even.ask("contact", user=ODD)
    odd.ask("contact", user=EVEN)
    assert even.ask("presence")["result"]["states"] == {ODD: "online"}
    even.ask("typing", **{"with": ODD})
    assert odd.pushed("typing") == [{"push": "typing", "with": EVEN}]
    odd.connection.lost()
    world.run(100)
    assert even.pushed("presence")[-1] == {"push": "presence", "user": ODD, "state": "offline"}
    back = two.connect(ODD)
    world.run(100)
    assert even.pushed("presence")[-1]["state"] == "online"
    world.carriers[1].kill()
    world.serve(1, epoch=2)
    world.run(300)
    back.connection.lost()
    world.run(100)
    assert even.pushed("presence")[-1]["state"] == "offline", "the next server was told who is watched"
    even.connection.lost()
    world.run(20)
    assert not world.carriers[1].hub.links["gateway-1.1"]._guests


@pytest.mark.feature("R18")
def test_rooms_of_groups_are_at_the_carriers() -> None:
    world = ClusterWorld(gateways=1)
    gateway = world.gateways[0]
    even, odd = gateway.connect(EVEN), gateway.connect(ODD)
    even.ask("create_group", group="team", name="team", members=[ODD])
    assert "result" in even.ask("enter", room="g:team")
    assert "result" in odd.ask("enter", room="g:team")
    stranger = gateway.connect(ODD_TOO)
    assert stranger.ask("enter", room="g:team")["error"]["code"] == "forbidden"
    assert stranger.ask("enter", room="g:nowhere")["error"]["code"] == "not_found"


def test_what_a_carrier_has_not_applied_yet_is_waited_for_before_it_is_refused() -> None:
    world = ClusterWorld(gateways=1, creates_users=False)
    gateway = world.gateways[0]
    made: list[object] = []
    for user in (EVEN, ODD):
        gateway.carriers.call(Actor(0, is_admin=True), "create_user", {"user": user}, made.append)
    world.run(20)
    even, odd = gateway.connect(EVEN), gateway.connect(ODD)
    world.carriers[1].log.lag()
    assert "result" in even.ask("create_group", group="team", name="team", members=[ODD])
    assert "result" in odd.ask("gsend", group="team", text="I know it already")
    assert world.carriers[1].caught_up == 1
    assert odd.ask("gsend", group="nowhere", text="?")["error"]["code"] == "not_found"
    assert world.carriers[1].caught_up == 2, "asked once more, and no more"
    world.carriers[1].log.lag()
    gateway.carriers.call(Actor(0, is_admin=True), "create_user", {"user": ODD_TOO}, made.append)
    world.run(20)
    assert gateway.connect(ODD_TOO).transport.closed is None


def test_programs_ask_without_a_session() -> None:
    world = ClusterWorld()
    carriers = world.gateways[0].carriers
    odd = world.gateways[1].connect(ODD)
    found: list[object] = []
    for user in (EVEN, "robot"):
        carriers.find_user(user, found.append)
    world.run(30)
    assert found[0] == int(EVEN)
    answers: list[Any] = []
    carriers.call(Actor(int(EVEN), "web", "d"), "send", {"to": ODD, "text": "from a program"}, answers.append)
    world.run(30)
    carriers.call(Actor(int(EVEN), "web", "d"), "typing", {"with": ODD}, answers.append)
    world.run(30)
    assert odd.texts == ["from a program"] and answers[0]["message_id"] == odd.ids()[0]
    assert getattr(answers[1], "code", "") == "bad_request", "typing takes a connection"


def test_a_user_is_erased_where_the_user_is() -> None:
    world = ClusterWorld(gateways=1)
    carriers = world.gateways[0].carriers
    even, odd = world.gateways[0].connect(EVEN), world.gateways[0].connect(ODD)
    even.ask("send", to=ODD, text="gone soon")
    answers: list[Any] = []
    carriers.call(Actor(0, is_admin=True), "erase_user", {"user": ODD}, answers.append)
    world.run(50)
    assert answers[0]["found"]["timeline_rows"] == 1 and answers[0]["remains"]["timeline_rows"] == 0
    assert is_gone(odd)
    assert even.ask("send", to=ODD, text="too late")["error"]["code"] == "not_found"


def test_clients_stay_while_no_carrier_is_reachable_and_get_what_they_missed() -> None:
    world = ClusterWorld(gateways=1, resync_percent=25)
    gateway = world.gateways[0]
    clients = [gateway.connect(user) for user in (EVEN, ODD, ODD_TOO)]
    even, odd, _ = clients
    for carrier in list(world.carriers.values()):
        carrier.kill()
    world.run(35_000)
    assert not any(map(is_gone, clients)), "35 leases"
    assert not gateway.carriers.is_useful
    refused = even.ask("send", to=ODD, text="lost?")["error"]
    assert refused["code"] == "unavailable" and refused["retry_after_ms"] > 0
    assert "result" in even.ask("ping"), "what needs no carrier is answered"
    for partition in (0, 1):
        world.serve(partition, epoch=2)
    world.run(200)
    assert not any(map(is_gone, clients))
    assert "result" in even.ask("send", to=ODD, text="back")
    world.run(20)
    assert odd.texts == ["back"] and len(odd.pushed("resync")) == 1


def test_a_login_without_a_carrier_is_closed_with_the_time_to_try_again() -> None:
    world = ClusterWorld(gateways=1)
    for carrier in list(world.carriers.values()):
        carrier.kill()
    world.run(100)
    client = world.gateways[0].connect(EVEN)
    (told,) = client.pushed("reconnect")
    assert told["after_ms"] > 0
    assert client.transport.closed == (1013, "unavailable")


def test_a_client_stays_when_the_carrier_is_lost_again_while_its_session_is_asked_for() -> None:
    world = ClusterWorld(partitions=1, gateways=1)
    gateway = world.gateways[0]
    clients = [gateway.connect(str(2000 + number)) for number in range(4)]
    world.carriers[0].kill()
    world.run(20)
    again = world.serve(0, epoch=2)
    again.is_frozen = True  # it takes the link and answers no login
    world.run(30)
    again.is_frozen = False
    while not gateway.carriers.partitions[0].link.is_up:
        world.run(1)
    again.is_frozen = True
    world.run(3 * world.settings.gateway.lease_ms)
    assert not any(map(is_gone, clients))
    again.is_frozen = False
    world.run(5_000)
    assert not any(map(is_gone, clients))
    assert sessions(world, 0) == 4
    assert "result" in clients[0].ask("send", to="2001", text="back")


def test_a_rejoin_that_is_refused_for_now_is_tried_again() -> None:
    world = ClusterWorld(partitions=1, gateways=1)
    gateway = world.gateways[0]
    client = gateway.connect(EVEN)
    world.carriers[0].kill()
    world.run(20)
    carrier = world.serve(0, epoch=2)
    connect, refusals = carrier.messaging.connect, [Overloaded("too many logins", retry_after_ms=10)] * 3

    def refusing(*arguments: Any, **more: Any) -> Any:
        if refusals:
            arguments[4](refusals.pop())
        else:
            connect(*arguments, **more)

    carrier.messaging.connect = refusing  # type: ignore[method-assign]
    world.run(5_000)
    assert not refusals and not is_gone(client)
    assert sessions(world, 0) == 1


class Person:
    """Somebody who comes back whenever the connection is closed, with the cursor."""

    def __init__(self, world: ClusterWorld, user: str) -> None:
        self.user = user
        self.heard: set[str] = set()
        self.promised: list[str] = []
        self._world = world
        self._client = world.gateways[0].connect(user)
        self._number = 0

    def say(self, to: Person, gateway: int) -> None:
        """Write, and note what was accepted."""
        self.look(gateway)
        self._number += 1
        text = f"{self.user} {self._number}"
        self._client.say({"id": self._number, "action": "send", "params": {"to": to.user, "text": text}})
        self._world.run(20)
        answers = [frame for frame in self._client.transport.frames if frame.get("id") == self._number]
        if answers and "result" in answers[0]:
            to.promised.append(text)

    def look(self, gateway: int) -> None:
        """Take what has come; come back if need be."""
        self.heard.update(self._client.texts)
        if is_gone(self._client):
            self._client = self._world.gateways[gateway].connect(self.user, cursor=self._client.cursor)


@pytest.mark.sim
@pytest.mark.feature("X73", "B18")
@pytest.mark.parametrize("seed", range(6))
def test_whatever_happens_to_carriers_and_gateways_what_was_accepted_arrives(seed: int) -> None:
    chance = random.Random(seed)
    world = ClusterWorld(resync_percent=25)
    people = [Person(world, user) for user in (EVEN, ODD, ODD_TOO, "alice")]
    for _ in range(40):
        carrier = world.carriers[chance.randrange(2)]
        blow = chance.random()
        if blow < 0.1:
            carrier.kill()
            world.run(chance.randrange(200))
            world.serve(carrier.partition, epoch=carrier.epoch + 1)
        elif blow < 0.2:  # the one that stands still is replaced, and goes on later
            carrier.is_frozen = True
            world.run(chance.randrange(2_000))
            if chance.random() < 0.5:
                world.serve(carrier.partition, epoch=carrier.epoch + 1)
                carrier.kill()  # its lease is over: it says nothing any more
            carrier.is_frozen = False
        elif blow < 0.25:
            gateway = chance.choice(world.gateways)
            gateway.is_frozen = True
            world.run(chance.randrange(3_000))
            gateway.is_frozen = False
        sender, to = chance.sample(people, 2)
        sender.say(to, chance.randrange(2))
        world.run(chance.randrange(100))
    for _ in range(10):
        world.run(700)
        for person in people:
            person.look(0)
    assert sum(len(person.promised) for person in people) > 20
    for person in people:
        assert set(person.promised) <= person.heard, (person.user, set(person.promised) - person.heard)
