"""The lives of one replica of a partition: it follows, takes its turn to serve, stands by again, begins anew.

Which replica serves is decided by the lease (``machines.serving``). What a life needs of the world (a log, stores, the
registry, a way to other replicas) is given, so the simulated world runs exactly this.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from pixiu.machines.serving import ServingState
from pixiu.model.counted import counted
from pixiu.model.errors import PixiuError
from pixiu.node.processes.lease import HeldLease

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pixiu.machines.serving import ServingRules
    from pixiu.node.gateways.hub import GatewayHub
    from pixiu.node.processes.carrier.host import CarrierHost
    from pixiu.ports.clock import Clock
    from pixiu.ports.scheduler import Scheduler
    from pixiu.queue.replication.control import ControlSource

__all__ = ["CarrierLife"]

log = logging.getLogger(__name__)

RETRY_SECONDS = 0.5
SAID_AGAIN = 60
"""A life that ends for the same reason as the one before is told this rarely: every half minute."""


class CarrierLife:
    """One replica, from its start to its end."""

    def __init__(
        self,
        name: str,
        rules: ServingRules,
        control: ControlSource,
        clock: Clock,
        scheduler: Scheduler,
        *,
        begin: Callable[[Callable[[], bool]], Awaitable[CarrierHost]],
        take_snapshot: Callable[[int], Awaitable[int]],
    ) -> None:
        """``begin`` makes the host of one life, and is told whom to ask whether it may serve.

        ``take_snapshot`` puts another replica's stores in the place of this one's, which are applied through the event
        that it is told; it raises ``PixiuError`` when there is none, and the stores are what they were.
        """
        self.name = name
        self.host: CarrierHost | None = None
        """Of this life; None between two."""
        self._lease = HeldLease(name, rules, control, clock, granted=self._chosen, lost=self._serves_no_more)
        self.serving = self._lease.serving
        self.problem = "starting"
        self.snapshots = 0
        """How many were taken."""
        self.when_begun: Callable[[CarrierHost], object] = lambda _host: None
        self._control = control
        self._scheduler = scheduler
        self._begin = begin
        self._take_snapshot = take_snapshot
        self._is_stopping = False
        self._lost = asyncio.Event()
        self._won = asyncio.Event()
        self._living: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin the first life."""
        self._lease.start()
        self._living = asyncio.get_running_loop().create_task(self._live())
        self._tick()

    async def stop(self) -> None:
        """End this life, and let another one serve."""
        self._is_stopping = True
        self._control.stands("Draining")
        if self._living is not None:
            self._living.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._living
        self._lease.leave()

    # Lives.

    async def _live(self) -> None:
        """One life after the other, until it is stopped."""
        said, times = "", 0
        while True:
            try:
                await self._one_life()
            except PixiuError as error:
                self.problem = str(error)
                times = times + 1 if self.problem == said else 0
                said = self.problem
                if times % SAID_AGAIN == 0:
                    log.warning("a life has ended", extra={"reason": said, "times": times + 1})
            except Exception as error:  # a role's boundary: a bug must not leave a process that does nothing
                self.problem = f"{type(error).__name__}: {error}"
                log.exception("a life has ended by a bug, will try again")
            await asyncio.sleep(RETRY_SECONDS if self.problem else 0)

    async def _one_life(self) -> None:
        self._lost.clear()
        self.host = host = await self._begin(lambda: self._lease.is_held)
        self.problem = ""
        self.when_begun(host)
        turn = asyncio.ensure_future(self._turn(host))
        left_behind = asyncio.ensure_future(host.left_behind.wait())
        try:
            await asyncio.wait({turn, left_behind}, return_when=asyncio.FIRST_COMPLETED)
            if turn.done():
                turn.result()
        finally:
            for task in (turn, left_behind):
                task.cancel()
            await asyncio.wait({turn, left_behind})
            self.host = None
            await host.close()
        if host.left_behind.is_set():
            self.problem = "the log begins behind what this replica has; looking for a snapshot"
            applied = await self._take_snapshot(host.messaging.carrier.applied_all)
            self.snapshots += 1
            self.problem = ""
            log.info("took a snapshot", extra={"replica": self.name, "applied": applied})

    async def _turn(self, host: CarrierHost) -> None:
        """Follow; serve when it is chosen, until it is so no more."""
        host.follow()
        await self._won.wait()
        serve = asyncio.ensure_future(host.serve())
        lost = asyncio.ensure_future(self._lost.wait())
        try:
            await asyncio.wait({serve, lost}, return_when=asyncio.FIRST_COMPLETED)
            if serve.done():
                serve.result()
                log.info("serving", extra={"replica": self.name, "epoch": self.serving.epoch})
                if not self._lost.is_set():
                    self._control.leads(self.serving.epoch)
                await lost
        finally:
            for task in (serve, lost):
                task.cancel()

    # The lease.

    def _tick(self) -> None:
        if self._is_stopping:
            return
        host = self.host
        is_near = host is not None and host.is_near
        is_useless = host is None or host.left_behind.is_set()
        if not is_useless or self.serving.state is ServingState.SERVING:  # who cannot serve claims nothing
            self._lease.tick(is_ready=is_near)
        self._control.stands("Running" if is_near else "Init")
        self._scheduler.after(self._lease.tick_ms, self._tick)

    def _chosen(self, epoch: int) -> None:
        log.info("chosen", extra={"replica": self.name, "epoch": epoch})
        self._lost.clear()
        self._won.set()

    def _serves_no_more(self, reason: str) -> None:
        log.warning("serving no more", extra={"replica": self.name, "reason": reason})
        self._won.clear()
        self._lost.set()

    def hand_over(self, reason: str) -> None:
        """Let another replica serve, which can; this life ends."""
        self._lease.hand_over(reason)

    # What others ask.

    def hub(self) -> GatewayHub | None:
        """Who takes gateways now."""
        host = self.host
        return host.hub if host is not None and host.is_serving and self._lease.is_held else None

    @property
    def is_serving(self) -> bool:
        """Does it take gateways?"""
        return self.hub() is not None

    def problems(self) -> list[str]:
        """Why it is not ready. One that stands by is ready when it has applied what there is."""
        host = self.host
        if host is None:
            return [self.problem or "starting"]
        problems = host.problems()
        if self.serving.state is ServingState.SERVING and not host.is_serving:
            problems.append("about to serve")
        elif not host.is_near:
            problems.append(f"{counted(host.behind, 'event')} behind the log")
        return problems
