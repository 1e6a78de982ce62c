"""A network that loses, repeats, reorders and delays, and that can be cut in one direction only.

Two kinds of weather for a session between two nodes. As a **stream** it is TCP: what arrives is in order and
without holes, and one lost message silences the session for ever, often without either end being told. As
**datagrams** every message fares on its own. The machines must be safe in both; the real driver uses TCP.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.testing.simulation import Simulation

__all__ = ["Links", "SimulatedNetwork"]


@dataclass(slots=True)
class Links:
    """How the links behave: chances from 0 to 1, times in ms."""

    loss: float = 0.0
    repeat: float = 0.0
    delay_ms_min: float = 1.0
    delay_ms_max: float = 3.0
    straggle: float = 0.0  # the chance of a message that takes twenty times as long
    reorder: float = 0.0  # datagrams: the chance of a message that others overtake
    is_stream: bool = True


class SimulatedNetwork:
    """Carries messages between named nodes."""

    def __init__(self, simulation: Simulation, links: Links, deliver: Callable[[str, str, int, object], None]) -> None:
        self.links = links
        self.cuts: dict[tuple[str, str], int] = {}  # directed, counted, since splits overlap
        self._simulation = simulation
        self.hand_over = deliver
        self._arrival: dict[tuple[str, str, int], float] = {}
        self._silenced: set[int] = set()

    def cut(self, source: str, target: str) -> None:
        """Nothing passes from source to target until it is mended as often as cut."""
        self.cuts[source, target] = self.cuts.get((source, target), 0) + 1

    def mend(self, source: str, target: str) -> None:
        """Undo one cut."""
        left = self.cuts.get((source, target), 0) - 1
        if left > 0:
            self.cuts[source, target] = left
        else:
            self.cuts.pop((source, target), None)

    def delay_ms(self) -> float:
        """How long one message takes."""
        rng, links = self._simulation.rng, self.links
        delay = links.delay_ms_min + (links.delay_ms_max - links.delay_ms_min) * rng.random()
        return delay * 20 if links.straggle and rng.random() < links.straggle else delay

    def is_lost(self, source: str, target: str) -> bool:
        """Whether a message sent now is lost."""
        if (source, target) in self.cuts:
            return True
        return self.links.loss > 0 and self._simulation.rng.random() < self.links.loss

    def send(self, source: str, target: str, session: int, message: object) -> None:
        """Send one message within a session."""
        if session in self._silenced:
            return
        if self.links.is_stream:
            if self.is_lost(source, target):
                self._silenced.add(session)
            else:
                self._send_in_order(source, target, session, message)
            return
        simulation, links, rng = self._simulation, self.links, self._simulation.rng
        copies = 2 if links.repeat and rng.random() < links.repeat else 1
        for _ in range(copies):
            if self.is_lost(source, target):
                continue
            if rng.random() < links.reorder:
                delay_ms = self.delay_ms() + links.delay_ms_max * rng.random() * 3
                simulation.after(delay_ms, self.hand_over, source, target, session, message)
            else:
                self._send_in_order(source, target, session, message)

    def _send_in_order(self, source: str, target: str, session: int, message: object) -> None:
        """Never before the one sent before it."""
        key, now_ms = (source, target, session), self._simulation.now_ms
        arrival_ms = max(now_ms + self.delay_ms(), self._arrival.get(key, 0.0))
        self._arrival[key] = arrival_ms
        self._simulation.after(arrival_ms - now_ms, self.hand_over, source, target, session, message)
