"""Who counts as usable: what the registry lists, held against what heartbeats say.

The registry is late and may be wrong about the living and the dead; heartbeats are quick and know nothing of intent.
One observer keeps a ``View`` of the instances of one role and partition::

              listed                  reply, Running            silent
    Unknown ─────────▶ Probing ─────────────────▶ Usable ─────────────▶ Suspect ──▶ Dead
       ▲                  │  not listed any more     │  ▲ not listed,        │        │ two good
       └──────────────────┴──────────────────────────┘  │ yet it replies     │        ▼ replies
                                                     Lingering (a grace)    └─────▶ Usable

When the registry itself cannot be reached the list is frozen, and heartbeats alone take instances out and in.

Heartbeats are also the measure: how many come back, and how fast. ``cost`` is for choosing between instances that are
as good as each other; ``weights`` for shares of keys, in steps and slowly, so that few keys move (E53).
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Instance", "Peer", "PeerState", "Standing", "View", "ViewRules"]

EJECTED_SHARE = 3
"""At most one of so many instances is given no weight for being bad: rather slow than nobody."""
EJECTED_COST = 10
"""So many times as dear as the best is bad."""
OPEN_MAX = 16
"""Heartbeats of one instance whose answer is still taken, however late."""


class PeerState(Enum):
    """What an instance says of itself."""

    INIT = "Init"
    RUNNING = "Running"
    DRAINING = "Draining"


class Standing(Enum):
    """What the observer thinks of it."""

    PROBING = "probing"
    USABLE = "usable"
    SUSPECT = "suspect"
    DEAD = "dead"
    LINGERING = "lingering"


class Instance(NamedTuple):
    """An entry of the registry."""

    address: str
    state: PeerState


class ViewRules(NamedTuple):
    """Times of a view, in milliseconds."""

    heartbeat_ms: int = 1_000
    suspect_ms: int = 3_000
    dead_ms: int = 5_000
    grace_ms: int = 30_000
    """How long one that replies is kept though the registry has lost it."""
    returns: int = 2
    """Good replies in a row that bring a dead one back."""
    has_leader: bool = False
    """Of a role with a leader one that is not listed is out at once: it may have been replaced."""
    half_life_ms: int = 10_000
    """How fast the round trip's measure forgets."""
    success_half_life: int = 4
    """Heartbeats after which half of what was known of an instance's success is forgotten (X31)."""
    weigh_ms: int = 30_000
    """Weights change at most so often."""


class Peer:
    """One instance, as seen from here."""

    __slots__ = (
        "good",
        "heard_ms",
        "instance",
        "is_listed",
        "is_waiting",
        "open",
        "replica",
        "rtt_ms",
        "sent_ms",
        "standing",
        "success",
        "unlisted_ms",
    )

    def __init__(self, replica: int, instance: Instance, now_ms: float) -> None:
        self.replica = replica
        self.instance = instance
        self.standing = Standing.PROBING
        self.is_listed = True
        self.unlisted_ms = 0.0
        self.heard_ms = now_ms
        self.sent_ms = -1.0
        self.good = 0
        self.success = 1.0
        self.rtt_ms = 0.0
        self.is_waiting = False
        self.open: dict[int, float] = {}
        """Heartbeats without an answer yet: their numbers and times."""

    @property
    def is_usable(self) -> bool:
        """May it get work?"""
        return self.standing in (Standing.USABLE, Standing.LINGERING) and self.instance.state is PeerState.RUNNING

    def cost(self, in_flight: int = 0) -> float:
        """How dear it is to give it work: slow, unreliable and busy ones are."""
        return max(self.rtt_ms, 0.01) * (in_flight + 1) / max(self.success, 0.05) ** 2


class View:
    """All instances of one role and partition, by replica id. Time is an argument."""

    def __init__(self, rules: ViewRules) -> None:
        self.stamp = 0
        """Another number whenever somebody else may be known or usable, so that nobody has to look before that."""
        self._rules = rules
        self._peers: dict[int, Peer] = {}
        self._success_keep = 0.5 ** (1 / rules.success_half_life)
        self._rtt_keep = 0.5 ** (rules.heartbeat_ms / rules.half_life_ms)
        self._is_frozen = False
        self._number = 0
        self._weights: dict[int, float] = {}
        self._weighed_ms: float | None = None

    # Events.

    def listed(self, instances: Mapping[int, Instance], now_ms: float) -> None:
        """What the registry lists now: by a watch or by a poll, it is all the same."""
        self._is_frozen = False
        self.stamp += 1
        for replica, instance in instances.items():
            peer = self._peers.get(replica)
            if peer is None:
                self._peers[replica] = Peer(replica, instance, now_ms)
                continue
            peer.instance = instance
            peer.is_listed = True
            if peer.standing is Standing.LINGERING:
                peer.standing = Standing.USABLE
        for replica in [replica for replica in self._peers if replica not in instances]:
            self._unlisted(self._peers[replica], now_ms)

    def registry_lost(self) -> None:
        """The registry cannot be reached: the list stays as it is until it is read again."""
        self._is_frozen = True

    def due(self, now_ms: float) -> list[tuple[int, int]]:
        """Heartbeats to send now, as (replica, number); and time passes."""
        beats: list[tuple[int, int]] = []
        suspect_ms, heartbeat_ms = self._rules.suspect_ms, self._rules.heartbeat_ms
        for peer in list(self._peers.values()):
            if now_ms - peer.heard_ms >= suspect_ms or peer.standing is Standing.LINGERING:
                self._pass_time(peer, now_ms)
                if peer.replica not in self._peers:
                    continue
            if peer.sent_ms < 0 or now_ms - peer.sent_ms >= heartbeat_ms:
                if peer.is_waiting:
                    self._count(peer, is_good=False)
                self._number += 1
                peer.sent_ms = now_ms
                peer.is_waiting = True
                peer.open[self._number] = now_ms
                if len(peer.open) > OPEN_MAX:
                    del peer.open[next(iter(peer.open))]
                beats.append((peer.replica, self._number))
        return beats

    def replied(self, replica: int, number: int, state: PeerState, now_ms: float) -> None:
        """An instance has answered a heartbeat, and said how it is. Old and foreign answers are not taken."""
        peer = self._peers.get(replica)
        if peer is None or number not in peer.open:
            return
        self._timed(peer, now_ms - peer.open.pop(number))
        if peer.is_waiting and number > max(peer.open, default=0):
            self._count(peer, is_good=True)
            peer.is_waiting = False
        peer.heard_ms = now_ms
        if peer.instance.state is not state:
            peer.instance = peer.instance._replace(state=state)
            self.stamp += 1
        if peer.standing is Standing.USABLE:
            return
        self.stamp += 1
        if peer.standing is Standing.DEAD:
            peer.good += 1
            if peer.good >= self._rules.returns:
                peer.standing = Standing.USABLE
        elif peer.standing is Standing.SUSPECT or (peer.standing is Standing.PROBING and state is PeerState.RUNNING):
            peer.standing = Standing.USABLE

    # Questions.

    @property
    def is_frozen(self) -> bool:
        """Is the registry out of reach?"""
        return self._is_frozen

    def usable(self) -> list[int]:
        """Who may get work, by replica id (X05)."""
        return sorted(replica for replica, peer in self._peers.items() if peer.is_usable)

    def known(self) -> list[int]:
        """Who gets news of state: also those who are still starting (M5, E39)."""
        return sorted(self._peers)

    def peer(self, replica: int) -> Peer | None:
        """One of them."""
        return self._peers.get(replica)

    def cheaper(self, one: int, other: int, in_flight: Mapping[int, int]) -> int:
        """Of two, the one to give work to."""
        costs = [(self._peers[each].cost(in_flight.get(each, 0)), each) for each in (one, other)]
        return min(costs)[1]

    def weights(self, now_ms: float) -> dict[int, float]:
        """Shares of the usable ones, in eighths. They change slowly, as keys move with them."""
        usable = self.usable()
        is_due = self._weighed_ms is None or now_ms - self._weighed_ms >= self._rules.weigh_ms
        if is_due or set(usable) - set(self._weights):
            self._weighed_ms = now_ms if is_due else self._weighed_ms
            fresh = self._weigh(usable)
            self._weights = fresh if is_due else {**fresh, **self._weights}
        return {replica: self._weights[replica] for replica in usable}

    # Steps.

    def _weigh(self, usable: list[int]) -> dict[int, float]:
        if not usable:
            return {}
        costs = {replica: self._peers[replica].cost() for replica in usable}
        best = min(costs.values())
        eighths = {replica: max(1, round(8 * best / cost)) for replica, cost in costs.items()}
        bad = [each for each in usable if self._peers[each].success < 0.5 or costs[each] > EJECTED_COST * best]
        for replica in sorted(bad, key=lambda each: -costs[each])[: len(usable) // EJECTED_SHARE]:
            eighths[replica] = 0
        return {replica: count / 8 for replica, count in eighths.items()}

    def _unlisted(self, peer: Peer, now_ms: float) -> None:
        if peer.standing is Standing.USABLE and not self._rules.has_leader:
            peer.standing = Standing.LINGERING
            peer.unlisted_ms = now_ms
            peer.is_listed = False
        elif peer.standing is not Standing.LINGERING:
            del self._peers[peer.replica]

    def _pass_time(self, peer: Peer, now_ms: float) -> None:
        """What silence, or the end of a grace, makes of one."""
        rules, silent_ms = self._rules, now_ms - peer.heard_ms
        before = peer.standing
        if peer.standing is Standing.LINGERING:
            is_over = now_ms - peer.unlisted_ms >= rules.grace_ms and not self._is_frozen
            if silent_ms >= rules.suspect_ms or is_over:
                del self._peers[peer.replica]
                self.stamp += 1
        elif peer.standing is Standing.USABLE and silent_ms >= rules.suspect_ms:
            peer.standing = Standing.SUSPECT
        if peer.standing is Standing.SUSPECT and silent_ms >= rules.dead_ms:
            peer.standing = Standing.DEAD
            peer.good = 0
        if peer.standing is Standing.DEAD and silent_ms >= rules.suspect_ms:
            peer.good = 0
        self.stamp += peer.standing is not before

    def _count(self, peer: Peer, *, is_good: bool) -> None:
        """One more heartbeat that came back before the next, or did not."""
        keep = self._success_keep
        peer.success = keep * peer.success + (1 - keep) * is_good

    def _timed(self, peer: Peer, rtt_ms: float) -> None:
        keep = self._rtt_keep
        peer.rtt_ms = rtt_ms if not peer.rtt_ms else keep * peer.rtt_ms + (1 - keep) * rtt_ms
