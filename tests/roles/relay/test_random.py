"""A relay in random weather: many sessions of few users, slow clients, slow logs, a store that fails now and then."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest

from pixiu.config import InboxSettings
from pixiu.model.errors import Unavailable
from pixiu.model.inbox import NEED_ACK, NEED_ALL, NEED_OFFLINE, Page
from tests.roles.relay.scene import Client, Scene

USERS = (1, 2, 3)
PLATFORMS = ("web", "mobile")


class Weather:
    """One seed's world."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.scene = Scene(
            InboxSettings(window=rng.choice([1, 3, 64]), read_limit=rng.choice([1, 4, 64]), sessions_max=3),
            ledger_ms=rng.choice([0.1, 5, 3_000]),
        )
        self.clients: list[Client] = []
        self.seen: dict[tuple[int, str], set[int]] = defaultdict(set)
        self.sent: dict[tuple[int, str], set[int]] = defaultdict(set)
        self.chance_down = rng.choice([0.0, 0.0, 0.2])
        real = self.scene.inboxes.after

        def sometimes(user: int, platform: str, after: int, limit: int) -> Page:
            if rng.random() < self.chance_down:
                raise Unavailable("down")
            return real(user, platform, after, limit)

        self.scene.inboxes.after = sometimes  # type: ignore[method-assign]

    def connect(self, user: int, platform: str) -> Client:
        acks_after_ms = self.rng.choice([0, 0, 30, 1_500, 10_000])
        client = self.scene.connect(user, platform, self.rng.choice("abcd"), acks_after_ms=acks_after_ms)
        self.clients.append(client)
        return client

    def say(self, user: int) -> None:
        """To all platforms of a user, perhaps from one of its sessions."""
        options = self.rng.choice([NEED_ALL, NEED_ALL, NEED_OFFLINE | NEED_ACK, NEED_OFFLINE])
        own = [client for client in self.live() if client.session is not None and client.session.user == user]
        origin = self.rng.choice(own).session_id if own and self.rng.random() < 0.3 else 0
        wakes = []
        for platform in PLATFORMS:
            wake = self.scene.store(
                user, platform, options=options, session=origin, with_bodies=self.rng.random() < 0.7
            )
            message_id = wake.entries[0].message_id
            if options & NEED_ACK:  # others may be lost on a connection that breaks
                self.sent[user, platform].add(message_id)
            if any(client.session_id == origin and self.platform(client) == platform for client in own):
                self.seen[user, platform].add(message_id)
            wakes.append(wake)
        if self.rng.random() < 0.5:
            self.scene.relay.wake(wakes)
        else:
            self.scene.scheduler.after(self.rng.randint(1, 50), lambda: self.scene.relay.wake(wakes))

    def live(self) -> list[Client]:
        return [client for client in self.clients if not client.closed]

    def platform(self, client: Client) -> str:
        assert client.session is not None
        return client.session.platform

    def step(self) -> None:
        rng, scene = self.rng, self.scene
        match rng.choice(["say", "say", "say", "connect", "disconnect", "kick", "beat", "flush", "time", "time"]):
            case "say":
                self.say(rng.choice(USERS))
            case "connect":
                self.connect(rng.choice(USERS), rng.choice(PLATFORMS))
            case "disconnect" if self.live():
                client = rng.choice(self.live())
                client.closed = "gone"
                scene.relay.disconnect(client.session_id)
            case "kick" if self.live() and rng.random() < 0.3:
                client = rng.choice(self.live())
                assert client.session is not None
                scene.relay.kick(client.session.user, client.session_id, "admin")
            case "beat" if self.live():
                assert scene.relay.heartbeat(rng.choice(self.live()).session_id)
            case "flush":
                scene.relay.flush(rng.choice(USERS), rng.choice(PLATFORMS))
            case _:
                scene.run(rng.choice([0, 1, 40, 700, 2_500]))
        self.check()

    def check(self) -> None:
        relay = self.scene.relay
        assert sum(len(self.scene.sessions.of(user)) for user in USERS) == len(relay._live) == len(self.live())
        for inboxes in relay._users.values():
            for inbox in inboxes:
                inbox.delivery.check()
                numbers = [live.session.number for live in inbox.sessions]
                assert numbers == sorted(numbers, reverse=True)
                assert 1 <= len(numbers) <= (1 if inbox.platform == "mobile" else 3)


@pytest.mark.sim
@pytest.mark.feature("P12", "B14", "B20", "E42")
@pytest.mark.parametrize("first", range(0, 100, 25))
def test_every_inbox_is_delivered_in_full(first: int) -> None:
    for seed in range(first, first + 25):
        weather = Weather(seed)
        for _ in range(80):
            weather.step()
        weather.chance_down = 0.0
        for client in weather.live():
            client.acks_after_ms = 0
        for user in USERS:
            for platform in PLATFORMS:
                if not weather.scene.relay._find(user, platform):
                    weather.connect(user, platform).acks_after_ms = 0
        weather.scene.run(60_000)
        weather.check()
        for client in weather.clients:
            assert client.session is not None
            weather.seen[client.session.user, client.session.platform] |= client.held
        for key, sent in weather.sent.items():
            assert weather.seen[key] >= sent, f"seed {seed}, {key}: {sorted(sent - weather.seen[key])} are missing"
            assert weather.scene.waiting(*key) == [], f"seed {seed}, {key}"
        weather.scene.check_rows()
