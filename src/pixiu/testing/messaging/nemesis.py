"""What goes wrong with a node and its network, and how everything heals.

Healing ends what is wrong and starts a node that is down. It leaves alone what is up: a restart, or a login, would read
everything again and so hide a delivery that stands still.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.testing.messaging.node import FLAKY
from pixiu.testing.messaging.wires import HTTP, NODE

if TYPE_CHECKING:
    from pixiu.testing.messaging.script import Line
    from pixiu.testing.messaging.world import World

__all__ = ["Nemesis"]

START_AGAIN_MS = 150.0
SLOW_US = 150_000
WARPS_MS = (3_000, 60_000, 3_600_000)
"""How far the clock is set back while the process is down."""
CLOCK_STEPS_MS = (-3_600_000, -2_000, -500, 500, 3_000, 60_000)


class Nemesis:
    """Strikes as the script says."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._has_healed = False
        self._power_kind = "crash"
        self._down_ms = 0.0
        self._storm = 0.0
        self.ends: dict[str, int] = {}

    def strike(self, line: Line) -> None:
        """One thing goes wrong."""
        world, node = self._world, self._world.node
        world.note("blow", line.kind, line.for_ms)
        match line.kind:
            case "kill" | "crash":
                self._end(line.kind, line.for_ms)
            case "restart":
                self._restart(line.for_ms)
            case "power":
                self._power_kind = "crash" if line.pick % 2 else "kill"
                self._down_ms = line.for_ms
                node.power.cut_after = line.pick % world.weather.cut_operations
            case "freeze":
                if node.state == "up" and not node.is_frozen:
                    node.freeze()
                    world.outside.after(line.for_ms, self._thaw, node.lives)
            case "clock":
                world.clock.stepped_ms += CLOCK_STEPS_MS[line.pick % len(CLOCK_STEPS_MS)]
            case "warp":
                world.clock.stepped_ms -= WARPS_MS[line.pick % len(WARPS_MS)]
                self._end("kill", line.for_ms)
            case "stores":
                node.is_store_full = True
                world.outside.after(line.for_ms, self._stores_back)
            case "queue-store":
                node.is_queue_store_full = True
                world.outside.after(line.for_ms, self._stores_back)
            case "lane":
                name = FLAKY[line.pick % len(FLAKY)]
                node.down.add(name)
                world.outside.after(line.for_ms, node.down.discard, name)
            case "full":
                node.disk.capacity = node.disk.used() + line.pick % 2_000
                world.outside.after(line.for_ms, self._room_again)
            case "slow":
                node.slow_us = SLOW_US
                if node.state != "down":
                    node.scheduler.slow(node.slow_us)
                world.outside.after(line.for_ms, self._fast_again)
            case "netsplit":
                self._cut(line)
            case "storm":
                self._storm = max(self._storm, 0.6)
                links = world.weather.links
                before = links.loss
                links.loss = 0.1 if links.is_stream else self._storm
                world.outside.after(line.for_ms, self._calm_again, before)
            case _:
                raise AssertionError(line)

    # Ends of the process.

    def _end(self, kind: str, for_ms: float) -> None:
        node = self._world.node
        if node.state == "down":
            return
        self.ends[kind] = self.ends.get(kind, 0) + 1
        node.end(kind)
        self._world.outside.after(for_ms, self.start)

    def end_and_start(self, kind: str) -> None:
        """One more end, and a start at once."""
        self._end(kind, 1.0)

    def power_went(self) -> None:
        """A disk operation was the last one."""
        self._world.note("power cut")
        self._end(self._power_kind, self._down_ms)

    def failed_to_start(self) -> None:
        """The process could not start, and ends; whoever watches it starts it again."""
        self._end("kill", START_AGAIN_MS)

    def start(self) -> None:
        """Whoever watches the process starts it."""
        if self._world.node.state == "down":
            self._world.node.boot()

    def _restart(self, for_ms: float) -> None:
        """An orderly end: everything accepted is finished first."""
        node = self._world.node
        if node.state != "up" or node.is_frozen:
            return
        lives = node.lives

        def stopped(_: object) -> None:
            if node.lives == lives and node.state != "down":
                self._world.outside.after(1.0, self._end_of, lives, for_ms)

        node.stop(stopped)

    def _end_of(self, lives: int, for_ms: float) -> None:
        if self._world.node.lives == lives:
            self._end("kill", for_ms)

    # Ends of trouble.

    def _thaw(self, lives: int) -> None:
        node = self._world.node
        if node.lives == lives and node.is_frozen:
            self._world.note("thaw")
            node.thaw()

    def _stores_back(self) -> None:
        self._world.node.is_store_full = self._world.node.is_queue_store_full = False

    def _room_again(self) -> None:
        self._world.node.disk.capacity = None

    def _fast_again(self) -> None:
        world = self._world
        world.node.slow_us = world.weather.slow_us
        if world.node.state != "down":
            world.node.scheduler.slow(world.node.slow_us)

    def _cut(self, line: Line) -> None:
        """Some devices cannot reach the node, or it them, or both."""
        world, network = self._world, self._world.wires.network
        names = [device.name for device in world.devices if line.pick >> device.index % 12 & 1] + [HTTP]
        cuts = []
        for name in names:
            if line.pick % 3 != 0:
                cuts.append((name, NODE))
            if line.pick % 3 != 1:
                cuts.append((NODE, name))
        for source, target in cuts:
            network.cut(source, target)
        world.outside.after(line.for_ms, self._mend, cuts)

    def _mend(self, cuts: list[tuple[str, str]]) -> None:
        for source, target in cuts:
            self._world.wires.network.mend(source, target)

    def _calm_again(self, loss: float) -> None:
        self._storm = 0.0
        if not self._has_healed:
            self._world.weather.links.loss = loss

    def heal(self) -> None:
        """Nothing goes wrong any more. What is up stays as it is."""
        world, node = self._world, self._world.node
        world.note("heal")
        self._has_healed = True
        world.weather.calm()
        world.wires.network.cuts.clear()
        self._stores_back()
        self._room_again()
        self._fast_again()
        node.down.clear()
        node.power.cut_after = None
        if node.is_frozen:
            node.thaw()
        self.start()
