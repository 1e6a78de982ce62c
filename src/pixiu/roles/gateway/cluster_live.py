"""Typing and presence in a cluster: asked for at every partition of users, each of which knows who is there of its own.

A user's own carrier checks and answers; the others are told the same, for a guest, and tell their own users, or the
guest when one of those comes or goes. Who is online at any of them is online. A partition that cannot be reached leaves
its users out: they are shown as offline until it is back.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pixiu.model.errors import PixiuError

if TYPE_CHECKING:
    from pixiu.im.draft import Answer, Params
    from pixiu.roles.gateway.carriers import CarrierLinks, Partition
    from pixiu.roles.gateway.connection import Connection
    from pixiu.roles.gateway.gateway import Gateway
    from pixiu.roles.gateway.needs import Done

__all__ = ["ClusterLive"]

ONLINE = "online"


class ClusterLive:
    """``typing`` and ``presence`` of a gateway whose users are at several carriers."""

    def __init__(self, gateway: Gateway, carriers: CarrierLinks) -> None:
        self._carriers = carriers
        self._watched: dict[int, tuple[Connection, Params]] = {}
        """What each connection asked for last, by its number."""
        self._guests: set[int] = set()
        for action in ("typing", "presence"):
            gateway.offer(action, partial(self._perform, action))
        gateway.when_left.append(self._left)
        gateway.when_rejoined.append(self._rejoined)
        carriers.when_reached = self._reached

    def _perform(self, action: str, connection: Connection, params: Params, done: Done) -> None:
        home = self._carriers.home_of(connection.actor.session_id)
        others = [each for each in self._carriers.partitions.values() if each is not home and each.link.is_up]
        if home is None or not others:
            self._carriers.act(connection.actor, action, params, partial(self._noted, action, connection, params, done))
            return
        self._carriers.act(
            connection.actor, action, params, partial(self._allowed, action, connection, params, others, done)
        )

    def _allowed(
        self, action: str, connection: Connection, params: Params, others: list[Partition], done: Done,
        answer: Answer | PixiuError,
    ) -> None:  # fmt: skip
        """The user's own carrier has answered; if it allows it, tell the others, and answer when they have."""
        if isinstance(answer, PixiuError) or connection.is_closed:
            done(answer)
            return
        if action == "presence":
            self._watched[connection.number] = (connection, params)
        gathered = _Gathered(answer, len(others), done)
        for each in others:
            self._tell(each, action, connection, params, gathered.answered)

    def _tell(self, at: Partition, action: str, connection: Connection, params: Params, done: Done) -> None:
        self._guests.add(connection.actor.session_id)
        at.link.call(connection.actor, action, params, done, guest=connection)

    def _noted(
        self, action: str, connection: Connection, params: Params, done: Done, answer: Answer | PixiuError
    ) -> None:
        if action == "presence" and not isinstance(answer, PixiuError) and not connection.is_closed:
            self._watched[connection.number] = (connection, params)
        done(answer)

    # What becomes of connections and carriers.

    def _left(self, connection: Connection) -> None:
        self._watched.pop(connection.number, None)
        self._dismiss(connection.actor.session_id)

    def _rejoined(self, connection: Connection, before: int) -> None:
        """It has another session: that one follows the same users."""
        self._dismiss(before)
        watched = self._watched.get(connection.number)
        if watched is not None:
            self._perform("presence", connection, watched[1], lambda _answer: None)

    def _reached(self, partition: Partition) -> None:
        """A carrier is there again, and knows of no guests."""
        for connection, params in list(self._watched.values()):
            home = self._carriers.home_of(connection.actor.session_id)
            if home is not None and home is not partition:
                self._tell(partition, "presence", connection, params, partial(self._caught_up, connection))

    @staticmethod
    def _caught_up(connection: Connection, answer: Answer | PixiuError) -> None:
        """Who was shown as offline while a carrier was out of reach is online."""
        if isinstance(answer, PixiuError) or connection.is_closed:
            return
        for user, state in _states(answer).items():
            if state == ONLINE:
                connection.event(connection.actor.session_id, {"push": "presence", "user": user, "state": state})

    def _dismiss(self, session_id: int) -> None:
        if session_id in self._guests:
            self._guests.discard(session_id)
            for each in self._carriers.partitions.values():
                each.link.dismiss(session_id)


class _Gathered:
    """The answers of several carriers to one request."""

    def __init__(self, first: Answer, missing: int, done: Done) -> None:
        self._answer = dict(first)
        self._missing = missing
        self._done = done

    def answered(self, answer: Answer | PixiuError) -> None:
        if not isinstance(answer, PixiuError) and "states" in self._answer:
            found = _states(answer)
            online = {user: state for user, state in found.items() if state == ONLINE}
            self._answer["states"] = {**found, **_states(self._answer), **online}
        self._missing -= 1
        if not self._missing:
            self._done(self._answer)


def _states(answer: Answer) -> dict[str, object]:
    states = answer.get("states")
    return dict(states) if isinstance(states, dict) else {}
