"""Gateways in other processes than the node: the same as in one, through links that end and processes that freeze."""

from __future__ import annotations

from typing import Any

import pytest

from pixiu.machines.rooms import room_number
from pixiu.machines.wire import VERSION, Hello, LogOut, Stream, Welcome, encode
from pixiu.model.errors import Unavailable
from pixiu.roles.gateway import LinkNames
from tests.node.links import World


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.feature("R16", "R17")
def test_two_people_at_two_processes_talk_and_read_receipts(world: World) -> None:
    one, two = world.processes
    alice, bob = one.connect("alice"), two.connect("bob")
    sent = alice.ask("send", to="bob", text="hi")["result"]["message_id"]
    assert (bob.texts, bob.ids()) == (["hi"], [sent])
    assert bob.pushed("message")[0]["message"]["from"] == "alice"
    bob.ask("receipt", kind="read", message_ids=[sent])
    (receipt,) = alice.pushed("receipt")
    assert receipt["message_ids"] == [sent]
    assert world.sessions_of("alice") == ["gateway-1"] and world.sessions_of("bob") == ["gateway-2"]


def test_an_error_is_told_as_what_it_is(world: World) -> None:
    alice = world.processes[0].connect("alice")
    assert alice.ask("send", to="", text="hi")["error"]["code"] == "bad_request"
    assert alice.ask("gsend", group="nowhere", text="hi")["error"]["code"] == "not_found"
    assert alice.ask("nonsense")["error"]["code"] == "bad_request"
    assert alice.ask("send", to="bob", text="hi", count=2**70)["error"]["code"] == "bad_request"


def test_a_group_message_crosses_a_link_once_for_all_who_get_it(world: World) -> None:
    one, two = world.processes
    names = [f"member{number}" for number in range(20)]
    members = [two.connect(name) for name in names]
    alice = one.connect("alice")
    alice.ask("create_group", group="team", name="team", members=names)
    assert two.pipe is not None
    before = two.pipe.writes
    text = "x" * 2000
    world.run(100)
    alice.ask("gsend", group="team", text=text)
    assert all(text in member.texts for member in members)
    assert all(member.pushed("message")[-1]["message"]["group"] == "team" for member in members)
    assert two.pipe.writes - before <= 3, "not one per member"
    assert two.gateway.counters.encodings < 2 * len(members)


def test_slow_client_of_another_process_has_time_for_its_ack_until_it_has_its_messages(world: World) -> None:
    one, two = world.processes
    alice, bob = one.connect("alice"), two.connect("bob")
    bob.look = lambda: None  # type: ignore[method-assign]
    bob.transport.on_its_way = 400_000
    alice.ask("send", to="bob", text="hi")
    for _ in range(20):  # seconds; without an ack a session ends after 8
        world.run(1_000)
        bob.transport.on_its_way -= 20_000
        assert bob.transport.closed is None
    assert bob.texts == ["hi"], "it is not repeated while it is on its way"
    world.run(10_000)
    assert bob.transport.closed == (4403, "no_ack")


def test_the_node_counts_what_all_its_gateways_have_counted(world: World) -> None:
    one, two = world.processes
    alice = one.connect("alice")
    for name in ("bob", "carl"):
        two.connect(name)
    alice.ask("send", to="bob", text="hi")
    world.run(2 * world.settings.gateway.lease_ms)
    counters, parts = world.hub.counters, [one.gateway.counters, two.gateway.counters]
    for name in ("connections", "connections_max", "accepted", "requests", "pushes", "writes"):
        assert getattr(counters, name) == sum(getattr(part, name) for part in parts) > 0, name
    one.kill()
    world.run(1)
    assert counters.connections == 2, "what is there now"
    assert counters.connections_max == parts[1].connections_max
    assert counters.requests == sum(part.requests for part in parts), "what was counted stays counted"


@pytest.mark.feature("R18")
def test_a_room_has_listeners_at_both_and_each_gets_one_frame_for_all(world: World) -> None:
    one, two = world.processes
    here, there = [one.connect(f"a{n}") for n in range(5)], [two.connect(f"b{n}") for n in range(5)]
    for client in [*here, *there]:
        client.ask("enter", room="lobby")
    world.run(1100)
    frames = world.broker.counters.frames
    here[0].ask("say", room="lobby", text="to all")
    assert [client.texts for client in [*here, *there]] == [["to all"]] * 10
    assert world.broker.counters.frames - frames == 2
    there[0].ask("say", **{"room": "lobby", "text": "for sure", "class": "reliable"})
    assert all(client.texts == ["to all", "for sure"] for client in [*here, *there])
    assert world.broker.rooms.unsettled == 0, "both have acked it"
    there[0].ask("leave", room="lobby")
    here[0].ask("say", room="lobby", text="without you")
    assert there[0].texts == ["to all", "for sure"] and there[1].texts[-1] == "without you"


def test_typing_and_presence_reach_across(world: World) -> None:
    one, two = world.processes
    alice, bob = one.connect("alice"), two.connect("bob")
    alice.ask("send", to="bob", text="hi")
    alice.ask("contact", user="bob")
    bob.ask("contact", user="alice")
    bob.ask("typing", **{"with": "alice"})
    assert alice.pushed("typing") == [{"push": "typing", "with": "bob"}]
    assert alice.ask("presence")["result"]["states"] == {"bob": "online"}
    bob.connection.lost()
    world.run(100)
    assert alice.pushed("presence")[-1] == {"push": "presence", "user": "bob", "state": "offline"}


def test_a_kick_reaches_the_connection_and_a_second_login_replaces_the_first(world: World) -> None:
    one, two = world.processes
    first = one.connect("bob.phone")
    second = two.connect("bob.phone")
    assert first.transport.closed is not None and first.pushed("kick") == [{"push": "kick", "reason": "new_session"}]
    assert second.transport.closed is None and world.sessions_of("bob") == ["gateway-2"]
    (session,) = world.messaging.relay.sessions_of(world.number("bob"))
    world.messaging.relay.kick(session.user, session.session_id, "spam")
    world.run(5)
    assert second.pushed("kick") == [{"push": "kick", "reason": "spam"}]
    assert world.hub.sessions == 0 and two.link.sessions == 0


@pytest.mark.feature("P15", "C8")
def test_a_dead_process_takes_its_sessions_with_it_and_messages_wait(world: World) -> None:
    one, two = world.processes
    clients = [one.connect(f"user{number}") for number in range(30)]
    alice = two.connect("alice")
    for client in clients[:3]:
        client.ask("enter", room="lobby")
    one.kill()
    world.run(1)
    assert world.sessions.ended == ["gateway-1"], "one end for all"
    assert world.sessions.removed == [], "and nothing for each"
    assert not any(world.messaging.relay.is_present(world.number(f"user{n}")) for n in range(30))
    assert world.messaging.relay.counters.sessions == 1 and world.hub.sessions == 1
    assert world.broker.rooms.sessions == 0
    assert alice.ask("send", to="user7", text="later")["result"]
    back = two.connect("user7", cursor=clients[7].cursor)
    assert back.texts == ["later"]


@pytest.mark.feature("P15")
def test_who_is_also_at_a_living_process_stays_and_takes_over(world: World) -> None:
    one, two = world.processes
    two.connect("bob.desk")
    phone = one.connect("bob.phone")
    desk = world.clients[0][1]
    world.send("alice", "bob", "first")
    one.kill()
    world.run(5)
    world.send("alice", "bob", "second")
    world.run(50)
    assert desk.texts[-1] == "second" and set(desk.texts) == {"first", "second"}
    assert phone.texts == ["first"]
    state = world.messaging.stores.inboxes.state(world.number("bob"), "web")
    world.run(5000)
    state = world.messaging.stores.inboxes.state(world.number("bob"), "web")
    assert state is not None and state.waiting == 0, "acks of the one that stays count"


@pytest.mark.feature("B18", "C9", "T7")
def test_a_process_that_freezes_longer_than_its_lease_is_dead_and_comes_back_for_its_clients() -> None:
    world = World(2, resync_percent=25)
    one, two = world.processes
    clients = {f"user{number}": one.connect(f"user{number}") for number in range(8)}
    for name, client in clients.items():
        world.send("alice", name, "before")
        client.ask("enter", room="lobby")
    world.run(50)
    epoch = world.sessions.epoch_of("gateway-1")
    one.is_frozen = True
    world.run(2000)
    assert world.sessions.epoch_of("gateway-1") == 0, "declared dead"
    assert not any(world.messaging.relay.is_present(world.number(name)) for name in clients)
    for name in clients:
        world.send("alice", name, "meanwhile")
    one.is_frozen = False
    world.run(500)
    assert world.sessions.epoch_of("gateway-1") > epoch, "it lives again, another life"
    closed = [name for name, client in clients.items() if client.transport.closed]
    assert len(closed) == 2, "the configured share"
    for name, client in clients.items():
        if name in closed:
            assert client.pushed("kick") == [{"push": "kick", "reason": "resync"}]
            client = two.connect(name, cursor=client.cursor)
            assert client.texts == ["meanwhile"]
        else:
            assert client.pushed("resync") == [{"push": "resync"}]
            assert client.texts == ["before", "meanwhile"], "on the same connection, nothing twice"
    world.send("alice", "user0", "after")
    world.run(50)
    speaker = next(client for client in clients.values() if client.transport.closed is None)
    speaker.ask("say", room="lobby", text="still here")
    listening = [client for client in clients.values() if client.transport.closed is None]
    assert all(client.texts[-1] == "still here" for client in listening), "their rooms came with them"


@pytest.mark.feature("B18")
def test_a_short_freeze_changes_nothing(world: World) -> None:
    one, _ = world.processes
    bob = one.connect("bob")
    one.is_frozen = True
    world.run(700)
    world.send("alice", "bob", "meanwhile")
    one.is_frozen = False
    world.run(100)
    assert bob.texts == ["meanwhile"] and not bob.pushed("resync")
    assert bob.transport.closed is None


@pytest.mark.feature("B18")
def test_a_node_that_stood_still_itself_drops_nobody_for_silence(world: World) -> None:
    one, _ = world.processes
    one.connect("bob")
    epoch = world.sessions.epoch_of("gateway-1")
    world.is_frozen = True
    world.run(5000)
    world.is_frozen = False
    world.run(500)
    assert "gateway-1" in world.hub.links
    assert world.sessions.epoch_of("gateway-1") == epoch


@pytest.mark.feature("T7")
def test_a_link_that_breaks_is_made_again_and_requests_meanwhile_are_refused() -> None:
    world = World(1, resync_percent=0)
    (one,) = world.processes
    alice, bob = one.connect("alice"), one.connect("bob")
    alice.ask("send", to="bob", text="before")
    alice.say({"id": "cut", "action": "send", "params": {"to": "bob", "text": "cut", "send_id": "1"}})
    world.is_unreachable = True
    world.hub.links["gateway-1"].cut("a test")
    world.run(100)
    assert alice.ask("send", to="bob", text="x")["error"]["code"] == "unavailable"
    refused = one.gateway.refusal("10.0.0.9")
    assert isinstance(refused, Unavailable) and refused.retry_after_ms
    world.send("alice", "bob", "meanwhile")
    world.is_unreachable = False
    world.run(3000)
    assert one.gateway.refusal("10.0.0.9") is None
    assert bob.texts.count("before") == bob.texts.count("meanwhile") == 1
    assert alice.transport.closed is None and alice.pushed("resync")
    alice.ask("send", to="bob", text="cut", send_id="1")
    assert bob.texts.count("cut") == 1, "whether it was done or not, it is done once"


def test_a_gateway_that_finds_no_node_sends_its_clients_away() -> None:
    world = World(1)
    (one,) = world.processes
    bob = one.connect("bob")
    world.is_unreachable = True
    world.hub.links["gateway-1"].cut("a test")
    world.run(2500)
    assert bob.transport.closed is not None and bob.pushed("reconnect")


def test_a_process_that_does_not_read_is_cut_at_the_bound_and_rooms_wait_before_that() -> None:
    world = World(2, link_bytes_max=2**20, lease_ms=600_000)
    one, two = world.processes
    bob = one.connect("bob")
    bob.ask("enter", room="lobby")
    loud = two.connect("loud")
    loud.ask("enter", room="lobby")
    assert one.pipe is not None
    one.pipe.is_stuck = True
    for number in range(60):
        loud.ask("say", room="lobby", text=f"{number}" * 3000)
    assert "gateway-1" in world.hub.links, "live talk gives way to newer talk"
    assert len(loud.texts) == 60
    assert one.pipe.pending() < 2**20
    for number in range(200):
        world.send("alice", "bob", f"{number}" * 10_000)
    assert "gateway-1" not in world.hub.links
    assert not world.messaging.relay.is_present(world.number("bob"))
    assert world.broker.rooms.audience(room_number("lobby")).keys() == {"gateway-2"}


@pytest.mark.feature("P16")
def test_a_gateway_that_names_an_unknown_session_is_told_so(world: World) -> None:
    one, _ = world.processes
    bob = one.connect("bob")
    (session,) = world.messaging.relay.sessions_of(world.number("bob"))
    world.messaging.relay.disconnect(session.session_id)  # behind the gateway's back
    bob.say({"action": "ack", "params": {"cursor": "1"}})
    world.run(5)
    assert bob.pushed("kick") == [{"push": "kick", "reason": "unknown_session"}]
    assert world.hub.sessions == 0


class Raw:
    """A link's other end, spoken by hand."""

    def __init__(self, world: World) -> None:
        self.stream = Stream()
        self.said: list[Any] = []
        self.is_closed = False
        self.end = world.hub.accept()
        self.end.opened(self)

    def write(self, data: bytes) -> None:
        self.said += self.stream.feed(data)

    def pending(self) -> int:
        return 0

    def close(self) -> None:
        self.is_closed = True


def test_strangers_are_cut(world: World) -> None:
    for said in (b"GET / HTTP/1.1\r\n\r\n", encode(LogOut(1)), encode(Hello(VERSION + 1, "new")), encode(Hello(1, ""))):
        raw = Raw(world)
        raw.end.received(said)
        assert raw.is_closed and raw.said == []
    silent = Raw(world)
    world.run(2000)
    assert silent.is_closed, "one that says nothing is cut after the lease"


def test_a_name_that_comes_again_ends_the_link_before_it(world: World) -> None:
    one, _ = world.processes
    one.connect("bob")
    raw = Raw(world)
    raw.end.received(encode(Hello(VERSION, "gateway-1")))
    world.scheduler.run_ready()
    (welcome,) = raw.said
    assert isinstance(welcome, Welcome) and welcome.epoch == world.sessions.epoch_of("gateway-1")
    assert not world.messaging.relay.is_present(world.number("bob"))


def test_names_are_bounded_and_one_that_is_forgotten_is_never_a_number() -> None:
    names = LinkNames(names_max=3)
    names.learn({1: "alice", 2: "bob"}, {9: "team"})
    names.learn({1: "alice", 3: "carl", 4: "dora"}, {})
    assert [names.user_name(number) for number in (0, 1, 3, 4)] == ["0", "alice", "carl", "dora"]
    with pytest.raises(Unavailable):
        names.user_name(2)
    with pytest.raises(Unavailable):
        names.group_name(1)
