"""A relay of rooms: a frame for the users of one partition becomes one frame for each gateway that they are at.

::

    broker ──Frame: fans with sessions──▶ RoomRelay ──fans with the sessions of one gateway──▶ gateway
    broker ◀──Ack──  when all gateways have all reliable fans through there  ◀──acked──  gateway

A relay says to a broker that it has something only when the gateways have it, so that a relay which dies takes nothing
with it: what was not confirmed goes again, to another replica, and gateways know what they have shown (E6: by session).

A session that is not known here gets nothing of live talk, which is counted. For one that reliable talk names there is
a while to come: it may be that news of it is late.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from pixiu.machines.room_link import Ack, Incoming, state_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pixiu.machines.room_link import Frame
    from pixiu.machines.rooms import Fan

__all__ = ["RoomRelay"]

LATE_MS = 3_000
"""How long reliable talk waits for news of a session that it names."""


class _Step:
    """Everything from a source through one number, and the parts of it that are still on their way."""

    __slots__ = ("left", "through")

    def __init__(self, through: int) -> None:
        self.through = through
        self.left = 0


class _Source:
    """One broker."""

    __slots__ = ("done", "incoming", "life", "steps")

    def __init__(self) -> None:
        self.incoming = Incoming()
        self.steps: deque[_Step] = deque()
        self.life = 0
        self.done = 0


class _Late:
    """Reliable talk for sessions that are not known yet."""

    __slots__ = ("fan", "sessions", "since_ms", "source", "step")

    def __init__(self, source: str, step: _Step, fan: Fan, sessions: tuple[int, ...], since_ms: int) -> None:
        self.source = source
        self.step = step
        self.fan = fan
        self.sessions = sessions
        self.since_ms = since_ms


class RoomRelay:
    """One replica of one partition of users. ``gateway_of`` says where a session is, or nothing."""

    def __init__(self, gateway_of: Callable[[int], str | None]) -> None:
        self.unknown = 0
        """Sessions that something was for and that nobody knows here."""
        self.fans = 0
        self._gateway_of = gateway_of
        self._sources: dict[str, _Source] = {}
        self._out: dict[str, list[Fan]] = {}
        self._parts: dict[tuple[str, int, int, tuple[int, ...]], list[tuple[str, _Step]]] = {}
        self._late: list[_Late] = []

    def receive(self, name: str, frame: Frame, now_ms: int) -> Ack | None:
        """What the broker called ``name`` sends. Returns what to answer now: how far gateways have everything."""
        source = state_of(self._sources, name, _Source)
        if frame.life > source.life:
            source.life, source.done = frame.life, max(frame.base - 1, 0)
            source.steps.clear()
        fans = source.incoming.receive(frame)
        step = _Step(source.incoming.ack.through)
        for fan in fans:
            self._divide(name, step, fan, now_ms)
        if frame.number:
            source.steps.append(step)
        return self._progress(source) if frame.number else None

    def take(self) -> dict[str, list[Fan]]:
        """What goes to each gateway now."""
        out, self._out = self._out, {}
        return out

    def arrived(self, gateway: str, fans: Iterable[Fan]) -> list[tuple[str, Ack]]:
        """A gateway has these, or is gone, or was given up. Returns what to tell brokers by that."""
        told: dict[str, None] = {}
        for fan in fans:
            for name, step in self._parts.pop((gateway, fan.room, fan.message_id, fan.sessions or ()), ()):
                step.left -= 1
                told[name] = None
        return self._acks(told)

    def look(self, now_ms: int) -> list[tuple[str, Ack]]:
        """News of sessions has come, or time has passed: what waited for them goes on."""
        late, self._late = self._late, []
        told: dict[str, None] = {}
        for each in late:
            known = tuple(session_id for session_id in each.sessions if self._gateway_of(session_id) is not None)
            rest = tuple(session_id for session_id in each.sessions if session_id not in known)
            if known:
                self._send(each.source, each.step, each.fan, known)
            if rest and now_ms - each.since_ms < LATE_MS:
                each.sessions = rest
                self._late.append(each)
            else:
                self.unknown += len(rest)
                each.step.left -= 1
                told[each.source] = None
        return self._acks(told)

    def source_gone(self, name: str) -> None:
        """A broker will not come back under this name."""
        self._sources.pop(name, None)

    @property
    def waiting(self) -> int:
        """Reliable talk that not every gateway has yet."""
        return len(self._parts) + len(self._late)

    # Steps.

    def _divide(self, name: str, step: _Step, fan: Fan, now_ms: int) -> None:
        """One fan for each gateway, with its own sessions."""
        self.fans += 1
        missing = self._send(name, step, fan, fan.sessions or ())
        if missing and fan.is_reliable:
            step.left += 1
            self._late.append(_Late(name, step, fan, missing, now_ms))
        else:
            self.unknown += len(missing)

    def _send(self, name: str, step: _Step, fan: Fan, sessions: tuple[int, ...]) -> tuple[int, ...]:
        """Queue it for those who are known. Returns the others."""
        by_gateway: dict[str, list[int]] = {}
        missing: list[int] = []
        for session_id in sessions:
            gateway = self._gateway_of(session_id)
            if gateway is None:
                missing.append(session_id)
            else:
                by_gateway.setdefault(gateway, []).append(session_id)
        for gateway, mine in by_gateway.items():
            part = fan._replace(sessions=tuple(mine))
            if part.is_reliable:
                key = (gateway, part.room, part.message_id, tuple(mine))
                waiting = self._parts.setdefault(key, [])
                waiting.append((name, step))
                step.left += 1
                if len(waiting) > 1:  # the same is on its way already
                    continue
            self._out.setdefault(gateway, []).append(part)
        return tuple(missing)

    def _acks(self, names: Iterable[str]) -> list[tuple[str, Ack]]:
        found = []
        for name in names:
            source = self._sources.get(name)
            if source is not None:
                before = source.done
                ack = self._progress(source)
                if source.done > before:
                    found.append((name, ack))
        return found

    @staticmethod
    def _progress(source: _Source) -> Ack:
        while source.steps and not source.steps[0].left:
            source.done = max(source.done, source.steps.popleft().through)
        return Ack(source.life, source.done)
