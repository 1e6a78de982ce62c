"""What the pipeline's tables say, for the console: asked of a process of its own, and kept until the tables change.

Reading tables takes DuckDB and Arrow, a hundred megabytes and some hundred milliseconds of one core: none of that
belongs into the process that carries messages. ``pixiu pipeline report --json`` does it and ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING

from pixiu.runtime.process import own_command

if TYPE_CHECKING:
    from pathlib import Path

    from pixiu.im.draft import Answer
    from pixiu.ports.clock import Clock

__all__ = ["LakeReport"]

REPORT_SECONDS = 25.0
"""A request waits 30."""
KEPT_US = 5_000_000
"""An answer is good for this long, whatever happens to the tables."""
STALE_US = 300_000_000
"""And no longer than this, even if nothing happens to them: a report speaks of the last day and hours."""
ANSWER_BYTES_MAX = 8 * 2**20


class LakeReport:
    """Reports on one data directory; one at a time."""

    def __init__(self, root: Path, clock: Clock) -> None:
        self._root = root
        self._clock = clock
        self._kept: Answer | None = None
        self._kept_of: tuple[int, ...] = ()
        self._kept_us = 0
        self._asking: asyncio.Task[Answer] | None = None

    async def read(self) -> Answer:
        """The newest: ``empty`` where there are no tables yet, ``problem`` where they cannot be read.

        ``is_outdated``: the tables have changed since, and a newer one is being made.
        """
        asking = self.warm()
        if asking is None:
            return {"empty": True} if self._kept is None else self._kept
        age_us = self._clock.monotonic_us() - self._kept_us
        if self._kept is not None and "problem" not in self._kept and age_us < STALE_US:
            return {**self._kept, "is_outdated": True}
        return await asyncio.shield(asking)  # whoever else waits for it still gets it

    def warm(self) -> asyncio.Task[Answer] | None:
        """Make one where there is none, or the tables have changed since: in the background, one at a time.

        Returns what makes it; None: there is nothing to make.
        """
        if not (self._root / "pipeline" / "lake").is_dir():
            self._kept = None
            return None
        age_us = self._clock.monotonic_us() - self._kept_us
        if self._kept is not None and age_us < STALE_US and (age_us < KEPT_US or self._versions() == self._kept_of):
            return None
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask())
        return self._asking

    def _versions(self) -> tuple[int, ...]:
        """Changes with every commit to a table."""
        found = []
        for folder in sorted((self._root / "pipeline" / "lake").glob("*/_delta_log")):
            with contextlib.suppress(OSError):
                found.append(folder.stat().st_mtime_ns)
        return tuple(found)

    async def _ask(self) -> Answer:
        versions = self._versions()
        words = own_command("pipeline", "report", "--json", "--data", str(self._root.absolute()))
        pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        try:
            process = await asyncio.create_subprocess_exec(*words, stdin=nothing, stdout=pipe, stderr=pipe)
        except OSError as error:
            return {"problem": f"the report could not be made: {error.strerror or error}"}
        try:
            async with asyncio.timeout(REPORT_SECONDS):
                said, complaint = await process.communicate()
        except TimeoutError:
            return {"problem": f"the report took more than {REPORT_SECONDS:g} s"}
        finally:
            if process.returncode is None:
                process.kill()
        found: Answer
        if process.returncode or len(said) > ANSWER_BYTES_MAX:
            lines = complaint.decode(errors="replace").splitlines()
            ours = [line.removeprefix("pixiu: ") for line in lines if line.startswith("pixiu: ")]
            found = {"problem": ours[-1] if ours else f"the report ended with code {process.returncode}"}
        else:
            found = json.loads(said)
        self._kept, self._kept_of, self._kept_us = found, versions, self._clock.monotonic_us()
        return found
