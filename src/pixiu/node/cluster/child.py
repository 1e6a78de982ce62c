"""One supervised process: started, watched, started again when it ends, until it is told to stay away."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
from enum import Enum
from typing import TYPE_CHECKING

from pixiu.model.errors import Conflict
from pixiu.runtime.environment import environment_with
from pixiu.runtime.zookeeper import is_serving, server_environment

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import Callable
    from pathlib import Path

    from pixiu.node.cluster.layout import ChildPlan

__all__ = ["Child", "ChildState"]

BACKOFF_SECONDS = 0.2
BACKOFF_SECONDS_MAX = 10.0
SETTLED_SECONDS = 10.0
"""One that lived this long is started again soon; others wait, twice as long each time, up to the bound."""
PROBE_SECONDS = 0.1
STOP_SECONDS = 15.0
LINE_BYTES_MAX = 64 * 1024
LOG_BYTES_MAX = 16 * 2**20
"""A log that is larger becomes NAME.log.1, and the one before that goes."""
LAST_BYTES = 2000
WRONG_USAGE = 2
"""The exit code of a command that was given something it cannot use."""
READY_LINES = ("http listening on ",)


class ChildState(Enum):
    """What a person sees."""

    STARTING = "starting"
    RUNNING = "running"
    FROZEN = "frozen"
    WAITING = "waiting"
    """It ended, and is started again in a moment."""
    DRAINING = "draining"
    DRAINED = "drained"
    REFUSED = "refused"
    """It says that it was started wrongly: another try would end alike."""
    STOPPED = "stopped"


class Child:
    """Keeps one process alive."""

    def __init__(self, plan: ChildPlan, log_path: Path, *, changed: Callable[[Child, str], object]) -> None:
        """``changed`` is told every change of the state, with a few words for people."""
        self.plan = plan
        self.state = ChildState.STOPPED
        self.restarts = 0
        self.is_ready = asyncio.Event()
        self.has_settled = asyncio.Event()
        """It was ready once, or never will be."""
        self._log_path = log_path
        self._changed = changed
        self._process: Process | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._is_wanted = False

    @property
    def pid(self) -> int | None:
        """The process that runs now."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Begin to keep it alive."""
        self._is_wanted = True
        self._keeper = asyncio.create_task(self._keep())

    def start_again(self) -> None:
        """After it has left, or was refused. Raises ``Conflict`` while it is kept alive."""
        if self.state not in (ChildState.DRAINED, ChildState.REFUSED, ChildState.STOPPED):
            raise Conflict(f"{self.plan.name} is {self.state.value}: it was not drained")
        self.has_settled.clear()
        self.start()

    # What people do to it.

    def kill(self) -> None:
        """End it at once; it is started again."""
        self._running().kill()

    def freeze(self) -> None:
        """Let it stand still, as a process does that the system has forgotten."""
        self._running().send_signal(signal.SIGSTOP)
        self._set(ChildState.FROZEN, "stands still")

    def thaw(self) -> None:
        """Let it go on."""
        if self.state is not ChildState.FROZEN:
            raise Conflict(f"{self.plan.name} is {self.state.value}, not frozen")
        self._running().send_signal(signal.SIGCONT)
        self._set(ChildState.RUNNING if self.is_ready.is_set() else ChildState.STARTING, "goes on")

    async def drain(self) -> None:
        """Stop the process for good, after it has handed over its work."""
        self._set(ChildState.DRAINING, "hands over")
        await self.stop()
        self._set(ChildState.DRAINED, "has left")

    async def stop(self) -> None:
        """End it in order, or else by force."""
        self._is_wanted = False
        process = self._process
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
                process.terminate()
        if self._keeper is None:
            return
        if process is None:
            self._keeper.cancel()
        _, late = await asyncio.wait({self._keeper}, timeout=STOP_SECONDS)
        if late and self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await asyncio.wait({self._keeper}, timeout=STOP_SECONDS)
        if self.state is not ChildState.DRAINING:
            self._set(ChildState.STOPPED, "stopped")

    def _running(self) -> Process:
        if self._process is None:
            raise Conflict(f"{self.plan.name} is {self.state.value}: there is no process")
        return self._process

    # Its lives.

    async def _keep(self) -> None:
        loop = asyncio.get_running_loop()
        backoff = BACKOFF_SECONDS
        while self._is_wanted:
            began = loop.time()
            self.state = ChildState.STARTING
            try:
                code = await self._run()
            except OSError as error:
                code = -1
                self._set(ChildState.WAITING, f"cannot be started: {error}")
            if self._must_end():
                return
            if code == WRONG_USAGE and not self.has_settled.is_set():
                self._set(ChildState.REFUSED, f"was started wrongly: {self.last_words()}")
                self.has_settled.set()
                return
            if loop.time() - began > SETTLED_SECONDS:
                backoff = BACKOFF_SECONDS
            self.restarts += 1
            words = f" ({self.last_words()})" if code > 0 else ""
            self._set(ChildState.WAITING, f"{_ending(code)}{words}; starts again in {backoff:g} s")
            await asyncio.sleep(backoff)
            backoff = min(backoff * 2, BACKOFF_SECONDS_MAX)

    def last_words(self) -> str:
        """The last line that it said."""
        try:
            with self._log_path.open("rb") as log:
                log.seek(max(0, log.seek(0, 2) - LAST_BYTES))
                lines = log.read().decode(errors="replace").strip().splitlines()
        except OSError:
            return ""
        return lines[-1].removeprefix("pixiu: ") if lines else ""

    def turn_log(self) -> None:
        """A log that has grown too large begins anew under its process, which appends wherever the end is."""
        with contextlib.suppress(OSError):
            if self._log_path.stat().st_size > LOG_BYTES_MAX:
                shutil.copyfile(self._log_path, self._log_path.with_suffix(".log.1"))
                os.truncate(self._log_path, 0)

    def _must_end(self) -> bool:
        """Asked anew after every wait."""
        return not self._is_wanted

    async def _run(self) -> int:
        """One life. Returns its exit code."""
        self.is_ready.clear()
        if self._log_path.exists() and self._log_path.stat().st_size > LOG_BYTES_MAX:
            self._log_path.replace(self._log_path.with_suffix(".log.1"))
        is_zookeeper = self.plan.role == "zookeeper"
        with self._log_path.open("ab") as log:
            self._process = process = await asyncio.create_subprocess_exec(
                *self.plan.command, stdin=asyncio.subprocess.DEVNULL, stderr=log,
                stdout=log if is_zookeeper else asyncio.subprocess.PIPE,
                env=server_environment() if is_zookeeper else environment_with(self.plan.environment),
                start_new_session=True, limit=LINE_BYTES_MAX,
            )  # fmt: skip
        if self._is_wanted:  # told with its pid: should nobody end it, the next supervisor can
            self._set(ChildState.STARTING, "starts")
        watch = asyncio.create_task(self._probe() if is_zookeeper else self._listen(process))
        try:
            if not self._is_wanted:
                process.terminate()
            return await process.wait()
        finally:
            self._process = None
            self.is_ready.clear()
            watch.cancel()
            await asyncio.wait({watch})

    async def _listen(self, process: Process) -> None:
        """A process of ours says in one line that it is ready; what else it prints goes to its log."""
        assert process.stdout is not None
        while True:
            try:
                line = await process.stdout.readline()
            except ValueError:
                continue  # longer than a line of ours ever is
            if not line:
                return
            with contextlib.suppress(OSError), self._log_path.open("ab") as log:  # a full disk stops nobody's reading
                log.write(line)
            if _is_ready_line(line):
                self._is_up()

    async def _probe(self) -> None:
        """ZooKeeper is asked until it serves."""
        port = int(self.plan.address.rpartition(":")[2])
        loop = asyncio.get_running_loop()
        while True:
            if await loop.run_in_executor(None, is_serving, port):
                self._is_up()
                return
            await asyncio.sleep(PROBE_SECONDS)

    def _is_up(self) -> None:
        if not self.is_ready.is_set():
            self.is_ready.set()
            self.has_settled.set()
            if self.state is ChildState.STARTING:
                self._set(ChildState.RUNNING, f"runs at {self.plan.address}")

    def _set(self, state: ChildState, words: str) -> None:
        self.state = state
        self._changed(self, words)


def _is_ready_line(line: bytes) -> bool:
    text = line.decode(errors="replace").strip()
    if text.startswith("{"):
        with contextlib.suppress(ValueError):
            return "address" in json.loads(text)
    return text.startswith(READY_LINES)


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    with contextlib.suppress(ValueError):
        return f"was ended by {signal.Signals(-code).name}"
    return f"was ended by signal {-code}"
