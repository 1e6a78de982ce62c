"""Rechecks of open connections: what closes them, and how much of a turn or of auth_url they may take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pixiu.config.security import SecuritySettings
from pixiu.model.errors import PixiuError, Unauthenticated, Unavailable
from pixiu.roles.gateway import Rechecks
from pixiu.roles.gateway.rechecks import ASKED_MAX, CHECKS_PER_TURN, CLOSES_PER_TURN
from tests.roles.gateway.scene import Scene

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.ports.authentication import Identity
    from pixiu.roles.gateway import Connection


class Keys:
    """An ``Authentication`` whose decisions a test sets; counts the rechecks of each turn."""

    def __init__(self, scene: Scene) -> None:
        self.generation = 1
        self.decide: Callable[[Identity], Identity | PixiuError] = lambda identity: identity
        self.by_turn: dict[float, int] = {}
        self.waiting: list[tuple[Identity, Callable[[Identity | PixiuError], object]]] | None = None
        self._scene = scene

    def authenticate(self, token: str, done: Callable[[Identity | PixiuError], object]) -> None:
        raise AssertionError("a recheck must not authenticate again")

    def recheck(self, identity: Identity, done: Callable[[Identity | PixiuError], object]) -> None:
        turn = self._scene.clock.monotonic_us()
        self.by_turn[turn] = self.by_turn.get(turn, 0) + 1
        if self.waiting is not None:
            self.waiting.append((identity, done))
        else:
            done(self.decide(identity))

    @property
    def count(self) -> int:
        return sum(self.by_turn.values())


def opened(scene: Scene, count: int, **changed: Any) -> list[Connection]:
    connections = []
    for number in range(count):
        connection, _ = scene.open(f"u{number + 1}", address="127.0.0.1")
        assert connection.identity is not None
        connection.identity = connection.identity._replace(**changed)
        connections.append(connection)
    return connections


def watched(scene: Scene, **settings: Any) -> tuple[Keys, Rechecks]:
    keys = Keys(scene)
    rechecks = Rechecks(scene.gateway, keys, scene.clock, scene.scheduler, SecuritySettings(**settings))
    rechecks.start()
    return keys, rechecks


def refuse(_: Identity) -> PixiuError:
    return Unauthenticated("the token is not valid")


@pytest.fixture
def scene() -> Scene:
    return Scene(ping_interval_ms=3_600_000, idle_timeout_ms=7_200_000)


def test_key_change_rechecks_every_connection_in_slices(scene: Scene) -> None:
    connections = opened(scene, 3 * CHECKS_PER_TURN + 1, key="k")
    keys, _ = watched(scene, auth_recheck_ms=86_400_000)
    scene.run(300)
    keys.by_turn.clear()
    keys.generation += 1
    scene.run(300)
    assert keys.count >= len(connections)
    assert max(keys.by_turn.values()) <= CHECKS_PER_TURN + 1
    assert not any(connection.is_closed for connection in connections)


def test_retired_key_closes_a_bounded_number_of_connections_per_turn(scene: Scene) -> None:
    connections = opened(scene, 5 * CLOSES_PER_TURN, key="old")
    kept = opened(scene, 1, key="new")
    keys, _ = watched(scene, auth_recheck_ms=86_400_000)
    keys.decide = lambda identity: identity if identity.key == "new" else refuse(identity)
    scene.run(100)
    keys.by_turn.clear()
    keys.generation += 1
    scene.run(500)
    assert all(connection.is_closed for connection in connections) and not kept[0].is_closed
    assert max(keys.by_turn.values()) <= CLOSES_PER_TURN + 1
    assert scene.gateway.counters.closed == {("unauthenticated",): len(connections)}


def test_every_connection_is_rechecked_once_per_interval(scene: Scene) -> None:
    opened(scene, 50, key="k")
    keys, _ = watched(scene, auth_recheck_ms=1_000)
    scene.run(10_050)
    assert 450 <= keys.count <= 550
    assert max(keys.by_turn.values()) <= 10, "spread over the interval"


def test_requests_to_auth_url_are_bounded_by_rate_and_in_flight(scene: Scene) -> None:
    opened(scene, 200, token="t")
    keys, _ = watched(scene, auth_recheck_ms=1_000, auth_rechecks_per_second=50)
    scene.run(10_000)
    assert 400 <= keys.count <= 510
    keys.waiting = []
    scene.run(5_000)
    assert len(keys.waiting) == ASKED_MAX, "no more until the server answers"
    for identity, done in keys.waiting:
        done(identity)
    keys.waiting = None
    before = keys.count
    scene.run(1_000)
    assert keys.count > before + 20


def test_connection_stays_while_auth_url_is_unavailable_and_until_its_identity_expires(scene: Scene) -> None:
    (connection,) = opened(scene, 1, token="t", expires_at=scene.clock.now_ms() + 60_000)
    keys, _ = watched(scene, auth_recheck_ms=1_000)
    keys.decide = lambda identity: identity._replace(expires_at=scene.clock.now_ms() + 60_000)
    scene.run(100_000)
    assert not connection.is_closed
    keys.decide = lambda _: Unavailable("down")
    scene.run(50_000)
    assert scene.gateway.counters.closed == {}
    scene.run(3_600_000)  # the next visit of the gateway
    assert scene.gateway.counters.closed == {("expired",): 1}


def test_confirmed_identity_that_expires_sooner_closes_in_time(scene: Scene) -> None:
    opened(scene, 1, token="t", expires_at=scene.clock.now_ms() + 600_000)
    keys, _ = watched(scene, auth_recheck_ms=10_000)
    soon = scene.clock.now_ms() + 12_000
    keys.decide = lambda identity: identity._replace(expires_at=soon)
    scene.run(11_900)
    assert scene.gateway.counters.closed == {}
    scene.run(200)
    assert scene.gateway.counters.closed == {("expired",): 1}


@pytest.mark.parametrize("changed", [{"user": "other"}, {"platform": "ios"}, {"device": "x"}, {"is_admin": True}])
def test_token_that_stands_for_another_identity_closes_the_connection(scene: Scene, changed: dict[str, Any]) -> None:
    (connection,) = opened(scene, 1, token="t")
    keys, _ = watched(scene, auth_recheck_ms=1_000)
    keys.decide = lambda identity: identity._replace(**changed)
    scene.run(2_000)
    assert connection.is_closed


def test_stopped_rechecks_ask_nothing(scene: Scene) -> None:
    opened(scene, 3, key="k")
    keys, rechecks = watched(scene, auth_recheck_ms=1_000)
    rechecks.stop()
    keys.generation += 1
    scene.run(5_000)
    assert keys.count == 0
