"""A registry as ZooKeeper is one: a versioned record, sessions that expire, watches that come late or never.

It is never wrong, only slow: a compare-and-set is decided here, once, at the moment the request arrives. The
request or its answer may be lost on the way, watches may be lost or merged, and a session ends when nothing has
been heard from it for ``session_timeout_ms`` of the registry's own clock, whatever the node believes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pixiu.machines.replication import ChangeControl, Control, ControlRefused, ControlSeen, ReadControl

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.testing.network import SimulatedNetwork
    from pixiu.testing.simulation import Simulation

__all__ = ["REGISTRY", "RegistryAnswer", "RegistryRequest", "SimulatedRegistry"]

REGISTRY = "registry"


@dataclass(frozen=True, slots=True)
class RegistryRequest:
    """A node asks; ``registry_session`` 0 opens a session. ``incarnation`` tells a process from the one before it."""

    name: str
    incarnation: int
    registry_session: int
    command: ReadControl | ChangeControl


@dataclass(frozen=True, slots=True)
class RegistryAnswer:
    """The registry answers, or tells of a change (a watch). ``event`` None: the session has expired."""

    incarnation: int
    registry_session: int
    event: ControlSeen | ControlRefused | None


class SimulatedRegistry:
    """The control record and who is live."""

    def __init__(
        self,
        simulation: Simulation,
        network: SimulatedNetwork,
        *,
        session_timeout_ms: float,
        changed: Callable[[Control], None],
    ) -> None:
        self.control: Control | None = None
        self.version = 0
        self.watch_loss = 0.0
        self.stale_ms = 0.0  # reads may be so old, as from a ZooKeeper server that lags
        self.watch_delay_ms = 5.0
        self.damaged: frozenset[str] = frozenset()
        self._simulation = simulation
        self._network = network
        self._session_timeout_ms = session_timeout_ms
        self._last_session = 0
        self._sessions: dict[int, tuple[str, int, float]] = {}
        self._changed = changed
        self._watch_planned = False
        self.when_claimed: Callable[[], object] | None = None  # called before the next claim is decided
        self._held: list[RegistryRequest] | None = None  # what came while the registry is paused
        self._past: list[tuple[float, ControlSeen]] = [(0.0, ControlSeen(0, None))]
        self._read_version: dict[int, int] = {}  # a session's reads never go back

    @property
    def live(self) -> frozenset[str]:
        """Names with a session."""
        return frozenset(name for name, _, _ in self._sessions.values())

    def pause(self) -> None:
        """Stop answering. What comes is kept, as in the sockets of a process that is stopped."""
        if self._held is None:
            self._held = []

    def resume(self, *, expire: bool = False) -> None:
        """Go on, with everything that has come. ``expire``: all sessions are over by then."""
        held, self._held = self._held, None
        if held is None:
            return
        for session, (name, incarnation, _) in list(self._sessions.items()):
            if expire:
                del self._sessions[session]
            else:
                self._touch(session, name, incarnation)
        for request in held:
            self.receive(request)

    def receive(self, request: RegistryRequest) -> None:
        """Take one request, in the order of arrival."""
        if self.when_claimed is not None and self._is_claim(request):
            self.when_claimed()
        if self._held is not None:
            self._held.append(request)
            return
        session, name, incarnation = request.registry_session, request.name, request.incarnation
        if session == 0:
            self._last_session += 1
            session = self._last_session
            self._touch(session, name, incarnation)
            self._plan_watch()
        elif session not in self._sessions:
            self._answer(name, RegistryAnswer(incarnation, session, None))
            return
        else:
            self._touch(session, name, incarnation)
        command = request.command
        if isinstance(command, ChangeControl):
            if command.expected_version != self.version:
                self._answer(name, RegistryAnswer(incarnation, session, ControlRefused(command.expected_version)))
                return
            self.control = command.control
            self.version += 1
            self._changed(command.control)
            self._simulation.note("registry", self.version, self.control.epoch, self.control.leader)
            self._plan_watch()
            seen = replace(self._seen(), is_granted=True)
        else:
            seen = self._read(session)
        self._answer(name, RegistryAnswer(incarnation, session, replace(seen, asked_ms=command.asked_ms)))

    def _is_claim(self, request: RegistryRequest) -> bool:
        command, control = request.command, self.control
        return isinstance(command, ChangeControl) and control is not None and command.control.epoch > control.epoch

    def _seen(self) -> ControlSeen:
        seen = ControlSeen(self.version, self.control, self.live, damaged=self.damaged)
        if self._past[-1][1] != seen:
            self._past.append((self._simulation.now_ms, seen))
        return seen

    def _read(self, session: int) -> ControlSeen:
        """The record as it was a little while ago, but not older than this session has seen it."""
        seen = self._seen()
        if self.stale_ms:
            horizon_ms = self._simulation.now_ms - self.stale_ms * self._simulation.rng.random()
            past = [old for since_ms, old in self._past if since_ms <= horizon_ms]
            if past and past[-1].version >= self._read_version.get(session, 0):
                seen = past[-1]
        self._read_version[session] = max(self._read_version.get(session, 0), seen.version)
        return seen

    def _touch(self, session: int, name: str, incarnation: int) -> None:
        self._sessions[session] = (name, incarnation, self._simulation.now_ms + self._session_timeout_ms)
        self._simulation.after(self._session_timeout_ms + 0.01, self._expire, session)

    def _expire(self, session: int) -> None:
        found = self._sessions.get(session)
        if self._held is None and found is not None and found[2] <= self._simulation.now_ms:
            del self._sessions[session]
            self._simulation.note("registry", "expired", found[0])
            self._plan_watch()

    def _answer(self, name: str, answer: RegistryAnswer) -> None:
        network = self._network
        if not network.is_lost(REGISTRY, name):
            self._simulation.after(network.delay_ms(), network.hand_over, REGISTRY, name, 0, answer)

    def _plan_watch(self) -> None:
        """Tell everyone, later: what changes in between is told once."""
        if not self._watch_planned:
            self._watch_planned = True
            self._simulation.after(self._simulation.rng.random() * self.watch_delay_ms, self._watch)

    def _watch(self) -> None:
        self._watch_planned = False
        if self._held is not None:
            return
        for session, (name, incarnation, _) in list(self._sessions.items()):
            if self._simulation.rng.random() >= self.watch_loss:
                self._answer(name, RegistryAnswer(incarnation, session, self._seen()))
