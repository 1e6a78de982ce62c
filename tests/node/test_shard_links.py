"""A gateway of a cluster and the leader of its shard: where requests go, and what happens when the leader is gone."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from pixiu.im.draft import Actor, UnknownUsers
from pixiu.links.leaders import KnownLeaders, Leader
from pixiu.model.errors import Overloaded, Unavailable
from pixiu.roles.gateway import shards as shards_module
from tests.node.links import Client
from tests.node.shard_links import ADDRESS, ClusterGateway, ClusterWorld

if TYPE_CHECKING:
    from pixiu.links.leaders import LeaderMemory

ANN, BEN, CAL = "1000", "1001", "1002"
"""Users whose public ids are their own numbers."""


def is_gone(client: Client) -> bool:
    return client.transport.closed is not None


def sessions(world: ClusterWorld) -> int:
    return world.leaders[0].hub.sessions


@pytest.mark.feature("X75", "P02")
def test_users_at_two_gateways_talk() -> None:
    world = ClusterWorld()
    one, two = world.gateways
    ann, ben = one.connect(ANN), two.connect(BEN)
    assert sessions(world) == 2
    sent = ann.ask("send", to=BEN, text="hi")["result"]["message_id"]
    world.run(20)
    assert (ben.texts, ben.ids()) == (["hi"], [sent])
    assert ben.pushed("message")[0]["message"]["from"] == ANN
    answer = ben.ask("send", to=ANN, text="hello", ref=sent)["result"]["message_id"]
    world.run(20)
    assert ann.ids()[-1] == answer
    history = ann.ask("history", **{"with": BEN})["result"]["messages"]
    assert [each["message_id"] for each in history] == [answer, sent]
    ben.ask("receipt", kind="read", message_ids=[sent])
    world.run(20)
    assert ann.pushed("receipt")[0]["message_ids"] == [sent]
    ben.ask("receipt", kind="read", message_ids=[sent])
    world.run(20)
    assert len(ann.pushed("receipt")) == 1, "a repeated receipt is not pushed again"
    assert "result" in ann.ask("recall", message_id=sent)
    world.run(20)
    assert ben.pushed("recall"), "the receiver, at another gateway, gets the recall"
    shown = ben.ask("history", **{"with": ANN})["result"]["messages"]
    assert "hi" not in [each.get("text") for each in shown]
    again = two.connect(BEN, cursor=ben.cursor)
    assert not again.texts, "what was acked is not sent again"


def test_client_that_leaves_while_it_logs_in_is_forgotten() -> None:
    world = ClusterWorld()
    gateway = world.gateways[0]
    for _ in range(5):
        client = Client(gateway, ANN)  # type: ignore[arg-type]
        client.connection.lost()
    world.run(60)
    assert sessions(world) == 0
    assert (gateway.shards._homes, gateway.shards._users) == ({}, {})


def test_public_id_is_resolved_once() -> None:
    world = ClusterWorld()
    gateway = world.gateways[0]
    client = gateway.connect("alice")
    number = client.connection.actor.user
    assert sessions(world) == 1, "created on first use"
    asked: list[str] = []
    for each in gateway.shards.shards.values():
        each.link.find = lambda user, done: asked.append(user)  # type: ignore[method-assign]
    again = gateway.connect("alice.phone")
    assert not asked and again.connection.actor.user == number
    assert sessions(world) == 2


def test_numbers_are_remembered_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards_module, "NUMBERS_MAX", 2)
    world = ClusterWorld()
    gateway = world.gateways[0]
    for name in ("alice", "bob", "carol", "alice"):
        gateway.connect(name)
    assert list(gateway.shards._numbers) == ["carol", "alice"]


def test_unknown_user_is_refused_and_asked_for_each_time() -> None:
    world = ClusterWorld(creates_users=False)
    gateway = world.gateways[0]
    stranger = gateway.connect("alice")
    assert stranger.transport.closed == (4401, "unauthenticated")
    found: list[object] = []
    gateway.shards.find_user("alice", found.append)
    gateway.shards.find_user(ANN, found.append)
    world.run(20)
    assert [type(each) for each in found] == [UnknownUsers, UnknownUsers]
    made: list[Any] = []
    gateway.shards.call(Actor(0, is_admin=True), "create_user", {"user": "alice"}, made.append)
    world.run(20)
    assert made[0]["user"] == "alice"
    assert gateway.connect("alice").transport.closed is None


@pytest.mark.feature("B18")
def test_users_of_a_shard_without_leader_get_unavailable_until_the_next_one_leads() -> None:
    world = ClusterWorld()
    one, two = world.gateways
    ann, ben = one.connect(ANN), two.connect(BEN)
    world.leaders[0].kill()
    world.run(20)
    refused = ben.ask("send", to=ANN, text="lost?")["error"]
    assert refused["code"] == "unavailable" and refused["retry_after_ms"]
    assert two.shards.problems() == {"shards": "cannot be reached: shard 0 of 1; do they use the same secret?"}
    assert not two.shards.is_useful
    newcomer = two.connect(CAL)
    assert newcomer.transport.closed is not None and newcomer.transport.closed[1] == "unavailable"
    world.run(3 * world.settings.gateway.lease_ms)
    assert ben.transport.closed is None, "the connection stays, since live rooms work"
    two.is_frozen = True
    world.lead(epoch=2)
    world.run(200)
    for number in range(3):
        assert "result" in ann.ask("send", to=BEN, text=f"kept {number}")
    two.is_frozen = False
    world.run(200)
    assert ben.texts == ["kept 0", "kept 1", "kept 2"]
    assert ben.pushed("resync") and ben.transport.closed is None
    assert "result" in ben.ask("send", to=ANN, text="back")
    world.run(20)
    assert ann.texts == ["back"]
    assert not two.shards.problems()
    assert [each.moves for each in two.shards.shards.values()] == [1]
    assert two.shards.snapshot() == {
        "pixiu_gateway_shard_up": {("0",): 1},
        "pixiu_gateway_shard_sessions": {("0",): 1},
        "pixiu_gateway_shard_moves_total": 1,
    }


def test_every_shard_of_the_registry_has_a_link_and_one_that_is_down_is_named() -> None:
    world = ClusterWorld(shards=2, gateways=1)
    gateway = world.gateways[0]
    assert [each.link.is_up for each in gateway.shards.shards.values()] == [True, True]
    ann = gateway.connect(ANN)
    world.leaders[1].kill()
    world.run(20)
    assert gateway.shards.problems() == {"shards": "cannot be reached: shard 1 of 2"}
    assert gateway.shards.is_useful
    assert "result" in ann.ask("send", to=BEN, text="shard 0 is there") and not ann.pushed("resync")


def test_no_client_is_closed_when_another_replica_leads() -> None:
    world = ClusterWorld(gateways=1, resync_percent=25)
    clients = [world.gateways[0].connect(str(2000 + number)) for number in range(8)]
    world.leaders[0].kill()
    world.lead(epoch=2)
    world.run(200)
    assert not any(is_gone(client) for client in clients)
    assert sessions(world) == 8


@pytest.mark.feature("B18")
def test_a_share_of_the_clients_is_closed_after_the_gateway_itself_was_frozen() -> None:
    world = ClusterWorld(gateways=1, resync_percent=25)
    gateway = world.gateways[0]
    clients = [gateway.connect(str(2000 + number)) for number in range(8)]
    gateway.is_frozen = True
    world.run(3 * world.settings.gateway.lease_ms)
    gateway.is_frozen = False
    world.run(500)
    assert sum(map(is_gone, clients)) == 2
    assert sessions(world) == 6


def test_frozen_leader_is_left_and_used_again_when_it_goes_on() -> None:
    world = ClusterWorld()
    gateway = world.gateways[0]
    ann, ben = gateway.connect(ANN), gateway.connect(BEN)
    world.leaders[0].is_frozen = True
    ben.say({"id": 900, "action": "send", "params": {"to": ANN, "text": "outcome unknown"}})
    world.run(2 * world.settings.gateway.lease_ms)
    (refused,) = [frame for frame in ben.transport.frames if frame.get("id") == 900]
    assert refused["error"]["code"] == "unavailable", "the request ends after the lease"
    world.leaders[0].is_frozen = False
    world.run(3 * world.settings.gateway.lease_ms)
    assert "result" in ben.ask("send", to=ANN, text="thawed")
    world.run(20)
    assert ben.transport.closed is None
    assert ann.texts[-1] == "thawed"


def test_leader_that_was_replaced_while_frozen_is_not_used_again() -> None:
    world = ClusterWorld(gateways=1)
    gateway = world.gateways[0]
    ben = gateway.connect(BEN)
    old = world.leaders[0]
    old.is_frozen = True
    world.lead(epoch=2)
    world.run(100)
    assert "result" in ben.ask("send", to=ANN, text="at the next one")
    old.is_frozen = False
    world.write_leader(0, 1, old.name)
    world.run(2_000)
    assert gateway.leaders.of(0) == Leader(2, "shard-0-2", ADDRESS), "epochs do not go back"
    assert old.hub.sessions == 0 and sessions(world) == 1


def test_cluster_without_shards_has_rooms_and_keeps_its_clients_when_a_shard_comes() -> None:
    world = ClusterWorld(shards=0, gateways=1)
    gateway = world.gateways[0]
    alice = gateway.connect("alice")
    refused = alice.ask("send", to="bob", text="hi")["error"]
    assert refused["code"] == "unavailable" and "rooms work" in refused["message"]
    answers: list[object] = []
    gateway.shards.call(Actor(7), "user", {}, answers.append)
    assert isinstance(answers[0], Unavailable)
    assert gateway.shards.is_useful and not gateway.shards.problems()
    world.lead(epoch=1)
    world.write("shard/partition_num", {"count": 1})
    world.run(300)
    assert alice.transport.closed is None and alice.pushed("resync")
    assert "result" in alice.ask("send", to="bob", text="hi")
    assert not gateway.shards._alone.has(alice.connection.actor.session_id) and not gateway.shards._alone._names


@pytest.mark.feature("R16")
def test_typing_and_presence_cross_gateways_and_presence_survives_a_change_of_leader() -> None:
    world = ClusterWorld()
    one, two = world.gateways
    ann, ben = one.connect(ANN), two.connect(BEN)
    ann.ask("contact", user=BEN)
    ben.ask("contact", user=ANN)
    assert ann.ask("presence")["result"]["states"] == {BEN: "online"}
    ann.ask("typing", **{"with": BEN})
    assert ben.pushed("typing") == [{"push": "typing", "with": ANN}]
    ben.connection.lost()
    world.run(100)
    assert ann.pushed("presence")[-1] == {"push": "presence", "user": BEN, "state": "offline"}
    back = two.connect(BEN)
    world.run(100)
    assert ann.pushed("presence")[-1]["state"] == "online"
    world.leaders[0].kill()
    world.lead(epoch=2)
    world.run(300)
    back.connection.lost()
    world.run(100)
    assert ann.pushed("presence")[-1]["state"] == "offline", "the next leader has the presence subscriptions"


@pytest.mark.feature("R18")
def test_rooms_of_groups_are_at_the_shard() -> None:
    world = ClusterWorld(gateways=1)
    gateway = world.gateways[0]
    ann, ben = gateway.connect(ANN), gateway.connect(BEN)
    ann.ask("create_group", group="team", name="team", members=[BEN])
    assert "result" in ann.ask("enter", room="g:team")
    assert "result" in ben.ask("enter", room="g:team")
    stranger = gateway.connect(CAL)
    assert stranger.ask("enter", room="g:team")["error"]["code"] == "forbidden"
    assert stranger.ask("enter", room="g:nowhere")["error"]["code"] == "not_found"


def test_programs_act_without_a_session() -> None:
    world = ClusterWorld()
    shards = world.gateways[0].shards
    ben = world.gateways[1].connect(BEN)
    found: list[object] = []
    for user in (ANN, "robot"):
        shards.find_user(user, found.append)
    world.run(30)
    assert found[0] == int(ANN)
    answers: list[Any] = []
    shards.call(Actor(int(ANN), "web", "d"), "send", {"to": BEN, "text": "from a program"}, answers.append)
    world.run(30)
    shards.call(Actor(int(ANN), "web", "d"), "typing", {"with": BEN}, answers.append)
    world.run(30)
    assert ben.texts == ["from a program"] and answers[0]["message_id"] == ben.ids()[0]
    assert getattr(answers[1], "code", "") == "bad_request", "typing takes a connection"


def test_erased_user_is_logged_out_and_unknown() -> None:
    world = ClusterWorld(gateways=1)
    shards = world.gateways[0].shards
    ann, ben = world.gateways[0].connect(ANN), world.gateways[0].connect(BEN)
    ann.ask("send", to=BEN, text="gone soon")
    answers: list[Any] = []
    shards.call(Actor(0, is_admin=True), "erase_user", {"user": BEN}, answers.append)
    world.run(50)
    assert answers[0]["found"]["timeline_rows"] == 1 and answers[0]["remains"]["timeline_rows"] == 0
    assert is_gone(ben)
    assert ann.ask("send", to=BEN, text="too late")["error"]["code"] == "not_found"


def test_clients_stay_while_no_shard_is_reachable_and_get_what_they_missed() -> None:
    world = ClusterWorld(gateways=1, resync_percent=25)
    gateway = world.gateways[0]
    clients = [gateway.connect(user) for user in (ANN, BEN, CAL)]
    ann, ben, _ = clients
    world.leaders[0].kill()
    world.run(35_000)
    assert not any(map(is_gone, clients)), "35 leases"
    assert not gateway.shards.is_useful
    refused = ann.ask("send", to=BEN, text="lost?")["error"]
    assert refused["code"] == "unavailable" and refused["retry_after_ms"] > 0
    assert "result" in ann.ask("ping"), "what needs no shard is answered"
    world.lead(epoch=2)
    world.run(200)
    assert not any(map(is_gone, clients))
    assert "result" in ann.ask("send", to=BEN, text="back")
    world.run(20)
    assert ben.texts == ["back"] and len(ben.pushed("resync")) == 1


def test_login_without_a_shard_is_closed_with_the_time_to_try_again() -> None:
    world = ClusterWorld(gateways=1)
    world.leaders[0].kill()
    world.run(100)
    client = world.gateways[0].connect(ANN)
    (told,) = client.pushed("reconnect")
    assert told["after_ms"] > 0
    assert client.transport.closed == (1013, "unavailable")


def test_client_stays_when_the_leader_is_lost_again_before_it_has_a_session() -> None:
    world = ClusterWorld(gateways=1)
    gateway = world.gateways[0]
    clients = [gateway.connect(str(2000 + number)) for number in range(4)]
    world.leaders[0].kill()
    world.run(20)
    again = world.lead(epoch=2)
    again.is_frozen = True  # it takes the link and answers no login
    world.run(30)
    again.is_frozen = False
    while not gateway.shards.shards[0].link.is_up:
        world.run(1)
    again.is_frozen = True
    world.run(3 * world.settings.gateway.lease_ms)
    assert not any(map(is_gone, clients))
    again.is_frozen = False
    world.run(5_000)
    assert not any(map(is_gone, clients))
    assert sessions(world) == 4
    assert "result" in clients[0].ask("send", to="2001", text="back")


def test_rejoin_that_is_refused_for_now_is_tried_again() -> None:
    world = ClusterWorld(gateways=1)
    gateway = world.gateways[0]
    client = gateway.connect(ANN)
    world.leaders[0].kill()
    world.run(20)
    replica = world.lead(epoch=2)
    connect, refusals = replica.messaging.connect, [Overloaded("too many logins", retry_after_ms=10)] * 3

    def refusing(*arguments: Any, **more: Any) -> Any:
        if refusals:
            arguments[4](refusals.pop())
        else:
            connect(*arguments, **more)

    replica.messaging.connect = refusing  # type: ignore[method-assign]
    world.run(5_000)
    assert not refusals and not is_gone(client)
    assert sessions(world) == 1


class Memory:
    """A ``LeaderMemory`` in a variable."""

    def __init__(self, known: KnownLeaders | None = None) -> None:
        self.known = known

    def recall(self) -> KnownLeaders | None:
        return self.known

    def keep(self, known: KnownLeaders) -> None:
        self.known = known


def without_registry(world: ClusterWorld, memory: LeaderMemory) -> ClusterGateway:
    """A gateway that starts while the registry does not answer."""
    gateway = ClusterGateway(world, "gateway-late", memory=memory, has_registry=False)
    world.gateways.append(gateway)
    return gateway


def test_gateway_that_loses_the_registry_keeps_its_links_and_new_clients_can_log_in() -> None:
    world = ClusterWorld(gateways=1)
    gateway = world.gateways[0]
    ann = gateway.connect(ANN)
    gateway.registry.suspend()
    world.run(30_000)
    ben = gateway.connect(BEN)
    assert "result" in ann.ask("send", to=BEN, text="still here")
    assert ben.texts == ["still here"] and not ann.pushed("resync")
    gateway.registry.expire()
    world.run(2_000)
    assert not is_gone(ann) and not ann.pushed("resync") and not gateway.shards.problems()


def test_gateway_starts_with_the_leaders_that_it_knew_while_the_registry_cannot_be_read() -> None:
    world = ClusterWorld(gateways=0)
    first, memory = world.leaders[0], Memory()
    world.gateways.append(ClusterGateway(world, "gateway-1", memory=memory))
    world.run(100)
    assert memory.known == KnownLeaders(1, {0: Leader(1, first.name, ADDRESS)})
    late = without_registry(world, memory)
    world.run(500)
    refused = late.connect(ANN)
    assert refused.transport.closed == (1013, "unavailable"), "nothing is known yet"
    assert late.shards.problems() == {"registry": "the registry has not been read"} and not late.shards.is_useful
    world.run(1_000)
    ann, ben = late.connect(ANN), world.gateways[0].connect(BEN)
    assert "result" in ann.ask("send", to=BEN, text="without a registry") and ben.texts == ["without a registry"]
    assert late.shards.is_useful


def test_leader_from_the_memory_gives_way_to_what_the_registry_says() -> None:
    world = ClusterWorld(gateways=0)
    memory = Memory(KnownLeaders(1, {0: Leader(99, "shard-0-99", ADDRESS)}))
    late = without_registry(world, memory)
    world.run(3_000)
    assert late.connect(ANN).transport.closed == (1013, "unavailable"), "that shard has no leader now"
    late.registry.resume()
    world.run(200)
    assert late.leaders.of(0) == Leader(1, "shard-0-1", ADDRESS), "also under a lower epoch"
    assert memory.known == KnownLeaders(1, {0: Leader(1, "shard-0-1", ADDRESS)})
    assert late.connect(ANN).transport.closed is None
    world.write_leader(0, 0, "shard-0-0")
    world.run(2_000)
    assert late.leaders.of(0) == Leader(1, "shard-0-1", ADDRESS), "from now on epochs do not go back"


class Person:
    """A user who connects again whenever the connection is closed, with the cursor."""

    def __init__(self, world: ClusterWorld, user: str) -> None:
        self.user = user
        self.received: set[str] = set()
        self.promised: list[str] = []
        self._world = world
        self._client = world.gateways[0].connect(user)
        self._number = 0

    def say(self, to: Person, gateway: int) -> None:
        """Send, and note what was accepted."""
        self.look(gateway)
        self._number += 1
        text = f"{self.user} {self._number}"
        self._client.say({"id": self._number, "action": "send", "params": {"to": to.user, "text": text}})
        self._world.run(20)
        answers = [frame for frame in self._client.transport.frames if frame.get("id") == self._number]
        if answers and "result" in answers[0]:
            to.promised.append(text)

    def look(self, gateway: int) -> None:
        """Take what has come; connect again if need be."""
        self.received.update(self._client.texts)
        if is_gone(self._client):
            self._client = self._world.gateways[gateway].connect(self.user, cursor=self._client.cursor)


@pytest.mark.sim
@pytest.mark.feature("X73", "B18")
@pytest.mark.parametrize("seed", range(6))
def test_accepted_messages_arrive_whatever_happens_to_leaders_and_gateways(seed: int) -> None:
    chance = random.Random(seed)
    world = ClusterWorld(resync_percent=25)
    people = [Person(world, user) for user in (ANN, BEN, CAL, "alice")]
    for _ in range(40):
        leader = world.leaders[0]
        fault = chance.random()
        if fault < 0.1:
            leader.kill()
            world.run(chance.randrange(200))
            world.lead(epoch=leader.epoch + 1)
        elif fault < 0.2:  # the frozen one is replaced, or goes on
            leader.is_frozen = True
            world.run(chance.randrange(2_000))
            if chance.random() < 0.5:
                world.lead(epoch=leader.epoch + 1)
                leader.kill()  # its lease is over: it sends nothing more
            leader.is_frozen = False
        elif fault < 0.25:
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
        assert set(person.promised) <= person.received, (person.user, set(person.promised) - person.received)
