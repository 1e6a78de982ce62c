"""The pipeline beside a server: a process of its own, started when the log has grown, watched, and ended with the node.

The node never imports the pipeline. It starts ``pixiu pipeline run --supervised`` at low priority, reads what that says
of each run (one JSON value per line), and starts it again with longer and longer pauses where it fails. A process that
finds nothing new for a while ends by itself; the next event brings it back. Its standard input is the tie to the node:
it ends with the node, however that ends.

::

    the start ─ first_after_s ─ [installing] ─┬─ resting ──── the log grows ──── starting ─ running ─ waiting ─┐
                                              └──── nothing new for idle_s, or it failed (and a pause) ────────┘
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import logging
import os
import shlex
import signal
from typing import TYPE_CHECKING, Any

from pixiu.runtime.process import own_command

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import Callable
    from pathlib import Path

    from pixiu.config.pipeline import PipelineSettings
    from pixiu.im.draft import Answer
    from pixiu.ports.clock import Clock

__all__ = ["PipelineChild"]

log = logging.getLogger(__name__)

BACKOFF_SECONDS = 5.0
BACKOFF_SECONDS_MAX = 600.0
"""One that fails is started again after the first of these, and twice as long each time, up to the second."""
SETTLED_US = 300_000_000
"""One that lived this long waits only the first of them."""
LOOK_SECONDS = 1.0
STOP_SECONDS = 3.0
"""What a process may take to end. It is killed then: a run can be cut anywhere, and is taken up again."""
LINE_BYTES_MAX = 2**20
REASON_MAX = 500
SAID_MAX = 50
"""Lines of one life that the node's log repeats."""
PACKAGES = ("pyspark", "pyarrow", "numpy", "pandas", "deltalake", "duckdb", "tantivy", "zlib_ng")
"""What the command of pipeline.install installs, as Python knows it."""


class PipelineChild:
    """Keeps the pipeline of one data directory going."""

    def __init__(self, root: Path, settings: PipelineSettings, clock: Clock, *, log_end: Callable[[], int]) -> None:
        """``log_end`` is the newest event that is committed."""
        self._root = root
        self._settings = settings
        self._clock = clock
        self._log_end = log_end
        self._keeper: asyncio.Task[None] | None = None
        self._process: Process | None = None
        self._is_stopping = False
        self._said = 0
        self._is_ready = not settings.install
        self.state = "resting"
        self.reason = ""
        """Why it is not going, in one line; nothing if it is."""
        self._logged = ""
        self.restarts = 0
        self._next_at = 0
        self._progress: Answer | None = None
        self._last: Answer | None = None
        self._through: int | None = None
        """The event through which the tables hold the log, as of the last run."""
        self._audit: Answer | None = None

    def view(self) -> Answer:
        """What it does now, for people who look after the node."""
        settings = self._settings
        through = self._through
        return {
            "state": self.state,
            "reason": self.reason,
            "pid": None if self._process is None else self._process.pid,
            "restarts": self.restarts,
            "every_ms": settings.every_s * 1000,
            "next_at": self._next_at or None,
            "log": str(self._log_end()),
            "through": None if through is None else str(through),
            "lag": None if through is None else max(self._log_end() - through, 0),
            "progress": self._progress,
            "last_run": self._last,
        }

    def start(self) -> None:
        """Begin; the server does not wait for it."""
        self._keeper = asyncio.create_task(self._keep())

    async def stop(self) -> None:
        """End the process and everything that it started."""
        self._is_stopping = True
        if self._keeper is None:
            return
        self._signal(signal.SIGTERM)
        if self._process is None:
            self._keeper.cancel()
        await asyncio.wait({self._keeper}, timeout=STOP_SECONDS)
        if not self._keeper.done():
            self._signal(signal.SIGKILL, whole=True)
            self._keeper.cancel()
            await asyncio.wait({self._keeper}, timeout=STOP_SECONDS)

    def _signal(self, number: signal.Signals, *, whole: bool = False) -> None:
        """To the process, or to it and all of its own: it leads a session, so that a terminal's Ctrl-C passes it by."""
        process = self._process
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if whole:
                    os.killpg(process.pid, number)
                else:
                    process.send_signal(number)

    # One after the other.

    async def _keep(self) -> None:
        pause = self._settings.first_after_s * 1.0
        backoff = BACKOFF_SECONDS
        while not self._is_stopping:
            self._next_at = self._clock.now_ms() + int(pause * 1000) if pause > LOOK_SECONDS else 0
            await asyncio.sleep(pause)
            self._next_at = 0
            if self._through is not None and self._through >= self._log_end():
                pause = LOOK_SECONDS
                continue
            began_us = self._clock.monotonic_us()
            is_done = await self._install() and await self._one_life()
            if self._must_end():
                return
            if is_done:
                backoff, pause = BACKOFF_SECONDS, LOOK_SECONDS
                self.state, self.reason, self._logged = "resting", "", ""
                continue
            if self._clock.monotonic_us() - began_us > SETTLED_US:
                backoff = BACKOFF_SECONDS
            self.restarts += 1
            pause, backoff = backoff, min(backoff * 2, BACKOFF_SECONDS_MAX)

    def _must_end(self) -> bool:
        return self._is_stopping

    async def _install(self) -> bool:
        if self._is_ready:
            return True
        self.state = "installing"
        # It is run in any case, as packages may be there and too old; that is quick, and no news.
        missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
        if missing:
            extra = {"command": self._settings.install, "missing": ", ".join(missing)}
            log.info("installing what the pipeline needs", extra=extra)
        try:
            code = await self._run(shlex.split(self._settings.install))
        except ValueError as error:
            self.reason, code = f"pipeline.install cannot be understood: {error}", 2
        if code == 0:
            if missing:
                log.info("the pipeline's packages are installed")
            self._is_ready = True
        else:
            self._failed("the pipeline's packages could not be installed", code)
        return self._is_ready

    async def _one_life(self) -> bool:
        """One process, until it finds nothing new for a while. False: it failed."""
        self.state = "starting"
        settings = self._settings
        words = [
            "pipeline", "run", "--supervised", "--json", "--data", str(self._root.absolute()),
            "--every", f"{settings.every_s}s", "--audit-every", f"{settings.audit_every_s}s",
            "--until-idle", f"{settings.idle_s}s", "--memory", f"{settings.memory_mb}m",
        ]  # fmt: skip
        code = await self._run(own_command(*words))
        self._progress = None
        if code == 0:
            return True
        self._failed("the pipeline ended", code)
        return False

    def _failed(self, what: str, code: int) -> None:
        self.state = "failed"
        if not self.reason:
            self.reason = f"{what} with code {code}" if code > 0 else f"{what} by signal {-code}"
        if not self._must_end() and self.reason != self._logged:  # the same again says nothing new
            self._logged = self.reason
            log.warning("pipeline does not run", extra={"reason": self.reason})

    # One process.

    async def _run(self, words: list[str]) -> int:
        """One process from start to end. Returns its exit code."""
        pipe = asyncio.subprocess.PIPE
        self._said = 0
        try:
            self._process = process = await asyncio.create_subprocess_exec(
                *words, stdin=pipe, stdout=pipe, stderr=pipe, limit=LINE_BYTES_MAX, start_new_session=True
            )
        except OSError as error:
            self.reason = f"cannot start {words[0]}: {error.strerror or error}"
            return 127
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        log.debug("pipeline process started", extra={"pid": process.pid})
        problems: list[str] = []
        hearing = [
            asyncio.create_task(self._hear(process.stdout, self._told)),
            asyncio.create_task(self._hear(process.stderr, lambda line: self._complained(line, problems))),
        ]
        try:
            if self._is_stopping:
                process.terminate()
            code = await process.wait()
            await asyncio.wait(hearing, timeout=LOOK_SECONDS)
            if code:
                self.reason = problems[-1] if problems else ""
            return code
        finally:
            for task in hearing:
                task.cancel()
            self._signal(signal.SIGKILL, whole=True)
            process.stdin.close()
            self._process = None

    async def _hear(self, stream: asyncio.StreamReader, take: Callable[[str], object]) -> None:
        """Every line of a stream; one that is too long is left out."""
        while True:
            try:
                line = await stream.readline()
            except ValueError:
                continue
            if not line:
                return
            take(line.decode(errors="replace").rstrip("\n"))

    def _complained(self, line: str, problems: list[str]) -> None:
        """What it says in our words goes to the log; what Spark says beside it, only for those who look closely."""
        is_ours = line.startswith("pixiu: ")
        if is_ours:
            problems[:] = [line.removeprefix("pixiu: ")[:REASON_MAX]]
        self._said += 1
        if self._said <= SAID_MAX and is_ours and self.state not in ("starting", "installing"):
            log.warning("pipeline says", extra={"line": line.removeprefix("pixiu: ")[:REASON_MAX]})
        else:
            log.debug("pipeline says", extra={"line": line[:REASON_MAX]})

    def _told(self, line: str) -> None:
        """A line of JSON: a run that begins, a batch, a run that is done, a run that was left out."""
        try:
            told: dict[str, Any] = json.loads(line)
            self._take(told)
        except (ValueError, LookupError, TypeError, AttributeError):
            log.debug("pipeline says", extra={"line": line[:REASON_MAX]})

    def _take(self, told: dict[str, Any]) -> None:
        now = self._clock.now_ms()
        if "table" in told:
            self._progress = {name: told[name] for name in ("table", "rows", "through", "lag", "seconds")}
        elif "busy" in told:
            self.state, self.reason = "waiting", str(told["busy"])[:REASON_MAX]
            self._next_at = now + self._settings.every_s * 1000
        elif "begins" in told:
            self.state, self.reason, self._next_at = "running", "", 0
        elif "added" in told:
            self._audit = told.get("audit", self._audit)
            self._last = {
                "at": now,
                "seconds": float(told["seconds"]),
                "rows": sum(int(rows) for rows in told["added"].values()),
                "audit": self._audit,
            }
            self._through = int(told["through"])
            self._progress = None
            self.state, self.reason = "waiting", ""
            self._next_at = now + max(0, self._settings.every_s * 1000 - int(float(told["seconds"]) * 1000))
