"""Push tokens: a device registers, moves, is bounded, and is forgotten; and what the log makes of it anew."""

import pytest

from pixiu.backends.memory.stores import MemoryStores
from pixiu.im.draft import Actor
from pixiu.im.phones import FRESH_MS, retired
from pixiu.model.errors import NotAllowed
from pixiu.model.pixiu_pb2 import PushTokenChanged, Record
from pixiu.model.push_token import PUSH_TOKENS_MAX, PushToken
from pixiu.ports.log import MAIN
from pixiu.roles.carrier.appliers import Appliers, parse
from pixiu.testing.messaging.compare import describe_model, describe_stores, difference
from pixiu.testing.messaging.model import Model
from tests.im.world import World


def device(world: World, user: str, name: str = "phone", platform: str = "ios") -> Actor:
    return Actor(world.number(user), platform, name)


def tokens(world: World, user: str) -> list[tuple[str, str, str]]:
    return [(each.platform, each.device, each.token) for each in world.stores.push_tokens.of(world.number(user))]


@pytest.mark.feature("T2")
def test_a_device_registers_and_has_an_inbox_from_then_on() -> None:
    world = World()
    alice = device(world, "alice")
    answer = world.ask(alice, "register_push", {"provider": "apns", "token": "0aF1", "topic": "com.example.chat"})
    at = world.clock.now_ms()
    assert answer == {
        "platform": "ios", "device": "phone", "provider": "apns", "topic": "com.example.chat", "at": at,
    }  # fmt: skip
    (found,) = world.stores.push_tokens.of(alice.user)
    assert found == PushToken(
        alice.user, "ios", "phone", "apns", "0aF1", "com.example.chat", at, found.event_id
    )  # fmt: skip
    assert world.stores.inboxes.platforms(alice.user) == ("ios",)


def test_an_app_that_registers_whenever_it_starts_writes_once_a_day() -> None:
    world = World()
    alice = device(world, "alice")
    params = {"provider": "fcm", "token": "t:1"}
    first = world.ask(alice, "register_push", params)
    before = len(world.records())
    assert world.ask(alice, "register_push", params) == first
    assert len(world.records()) == before
    world.pass_time(FRESH_MS)
    assert world.ask(alice, "register_push", params)["at"] == world.clock.now_ms()
    assert len(world.records()) == before + 1
    world.ask(alice, "register_push", {"provider": "fcm", "token": "t:2"})
    assert tokens(world, "alice") == [("ios", "phone", "t:2")]


def test_a_device_that_unregisters_is_told_no_more_and_others_are() -> None:
    world = World()
    for name in ("one", "two"):
        world.ask(device(world, "alice", name), "register_push", {"provider": "fcm", "token": name})
    gone = {"platform": "ios", "device": "one", "provider": None}
    assert world.ask(device(world, "alice", "one"), "unregister_push", {}) == gone
    before = len(world.records())
    assert world.ask(device(world, "alice", "one"), "unregister_push", {}) == gone
    assert len(world.records()) == before
    assert tokens(world, "alice") == [("ios", "two", "two")]


def test_a_phone_that_is_handed_on_rings_for_its_new_owner_only() -> None:
    world = World()
    world.ask(device(world, "alice"), "register_push", {"provider": "apns", "token": "aa"})
    world.ask(device(world, "bob", "b"), "register_push", {"provider": "fcm", "token": "aa"})
    assert len(tokens(world, "alice")) == len(tokens(world, "bob")) == 1, "another provider's token is another one"
    world.ask(device(world, "bob"), "register_push", {"provider": "apns", "token": "aa"})
    assert tokens(world, "alice") == []
    assert tokens(world, "bob") == [("ios", "b", "aa"), ("ios", "phone", "aa")]


def test_two_who_register_one_phone_at_the_same_moment_do_not_both_have_it() -> None:
    world = World()
    alice, bob = device(world, "alice"), device(world, "bob")
    world.is_applying = False
    for actor in (alice, bob):
        world.begin(actor, "register_push", {"provider": "apns", "token": "aa"})
    world.settle()
    world.is_applying = True
    world.settle()
    assert (tokens(world, "alice"), tokens(world, "bob")) == ([], [("ios", "phone", "aa")])


def test_a_user_has_so_many_and_one_more_takes_the_place_of_the_oldest() -> None:
    world = World()
    for number in range(PUSH_TOKENS_MAX):
        world.ask(device(world, "alice", f"d{number}"), "register_push", {"provider": "fcm", "token": f"t{number}"})
    world.ask(device(world, "alice", "d0"), "register_push", {"provider": "fcm", "token": "again"})
    world.ask(device(world, "alice", "new"), "register_push", {"provider": "fcm", "token": "new"})
    held = [token for _, _, token in tokens(world, "alice")]
    assert held == [f"t{number}" for number in range(2, PUSH_TOKENS_MAX)] + ["again", "new"]


def test_a_token_that_has_been_replaced_is_not_retired_by_what_was_said_of_the_old_one() -> None:
    world = World()
    alice = device(world, "alice")
    world.ask(alice, "register_push", {"provider": "fcm", "token": "old"})
    (old,) = world.stores.push_tokens.of(alice.user)
    world.ask(alice, "register_push", {"provider": "fcm", "token": "new"})
    world.log.append(MAIN, retired(old, 1).SerializeToString(), lambda _: None)
    world.settle()
    assert tokens(world, "alice") == [("ios", "phone", "new")]
    (new,) = world.stores.push_tokens.of(alice.user)
    world.log.append(MAIN, retired(new, 1).SerializeToString(), lambda _: None)
    world.settle()
    assert tokens(world, "alice") == []


def test_a_caller_without_a_platform_is_no_device() -> None:
    world = World()
    for action, params in (("register_push", {"provider": "fcm", "token": "t"}), ("unregister_push", {})):
        with pytest.raises(NotAllowed, match="names no platform"):
            world.ask(Actor(world.number("alice")), action, params)


def test_a_replay_gives_the_same_and_so_does_the_model() -> None:
    world = World()
    for number in range(40):
        actor = device(world, ("alice", "bob")[number % 2], f"d{number % 19}", ("ios", "android")[number % 3 % 2])
        world.ask(actor, "register_push", {"provider": "fcm", "token": f"t{number % 23}"})
        if number % 5 == 0:
            world.ask(actor, "unregister_push", {})
    replayed = MemoryStores()
    appliers = Appliers(replayed)
    for _ in range(2):
        for record in world.log.records:
            if record.topic == MAIN:
                appliers.apply(record, parse(record))
    model = Model.of(world.log.records)
    assert len(model.push_tokens) > 10
    for stores in (replayed, world.stores):
        assert difference(describe_model(model), describe_stores(stores, model)) == ""


def test_a_record_that_makes_no_sense_is_refused() -> None:
    world = World()
    number = world.number("alice")
    for change in (PushTokenChanged(user=404, platform="ios"), PushTokenChanged(user=number, token="t")):
        world.log.append(MAIN, Record(push_token=change).SerializeToString(), lambda _: None)
        with pytest.raises(ValueError, match="push token"):
            world.settle()
        world._position += 1
