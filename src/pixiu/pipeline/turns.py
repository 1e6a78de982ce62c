"""Runs, one after the other, with one Spark session: what ``pixiu pipeline run`` does, by hand or beside a server.

The lake is held while a run writes, and let go between runs, so that a compaction or a run by hand finds its turn. The
session stays: to start Java anew would cost more than most runs.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pixiu.pipeline.cut import take_cut_of
from pixiu.pipeline.lake.place import Place
from pixiu.pipeline.runner import EVERY_JOBS, JOBS, Pipeline
from pixiu.pipeline.session import open_session
from pixiu.pipeline.status import audit_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from pixiu.pipeline.lake.feed import Progress
    from pixiu.pipeline.search.steps import Sink
    from pixiu.roles.carrier.cut import Cut

__all__ = ["Turn", "Turns"]

AUDIT_SHARE = 20
"""The next audit waits at least this many times as long as the last one took."""

LIGHT_EVENTS = 100_000
"""With fewer to read at its start, a session that lives beside a server spares itself most of the compiling."""

FILES_MAX = 200
"""A table with more files is compacted after a run: one run a minute makes this many in a few hours."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One run that is done."""

    added: dict[str, int]
    """Rows, by table."""
    through: int
    seconds: float
    audit: dict[str, Any] | None
    """The newest audit in one line, if this run made one."""


class Turns:
    """Runs over one data directory."""

    def __init__(
        self,
        data: Path,
        jobs: Sequence[str],
        *,
        spark_url: str,
        memory: str,
        tell: Callable[[Progress], object],
        warn: Callable[[str], object],
        take_cut: Callable[[Path], Cut] = take_cut_of,
        open_sink: Callable[[], Sink] | None = None,
        audit_every_s: float | None = None,
    ) -> None:
        """No ``jobs`` are all. With ``audit_every_s`` the audit comes with a run that often only, 0 being never.

        And where there are many files, they are then compacted.
        """
        self._data = data
        self._jobs = tuple(jobs)
        self._spark_url = spark_url
        self._memory = memory
        self._tell = tell
        self._warn = warn
        self._take_cut = take_cut
        self._open_sink = open_sink
        self._audit_every_s = audit_every_s
        self._audit_due = time.monotonic() + self._audit_rests()
        self._has_news = False
        self._is_light = False
        self._spark: SparkSession | None = None

    def run(self, *, begins: Callable[[], object] = lambda: None) -> Turn:
        """One run over what is in the log now. Raises ``Conflict`` if another pipeline holds the lake.

        ``begins`` is called once it is held.
        """
        began = time.monotonic()
        with Pipeline(
            self._data, self._session, tell=self._tell, warn=self._warn, take_cut=self._take_cut,
            open_sink=self._open_sink,
        ) as pipeline:  # fmt: skip
            begins()
            if self._spark is None:
                # Of a run that was killed; nobody else is here now.
                shutil.rmtree(Place(self._data).work / "local", ignore_errors=True)
                behind = pipeline.log.end().event_id - pipeline.held_through()
                self._is_light = self._audit_every_s is not None and behind < LIGHT_EVENTS
            added = pipeline.run(self._jobs or (JOBS if self._audit_every_s is None else EVERY_JOBS))
            if self._audit_every_s is not None:
                self._has_news |= any(added.values())
                added |= self._now_and_then(pipeline)
            through = pipeline.held_through()
        audit = audit_of(self._data) if "audit" in added else None
        return Turn(added, through, time.monotonic() - began, audit)

    def _now_and_then(self, pipeline: Pipeline) -> dict[str, int]:
        """The audit, if it is due and there is something new; and fewer files, if there are many."""
        added: dict[str, int] = {}
        now = time.monotonic()
        if self._audit_every_s and self._has_news and now >= self._audit_due:
            added = pipeline.run(["audit"])
            took = time.monotonic() - now
            self._has_news = False
            self._audit_due = time.monotonic() + max(self._audit_every_s, AUDIT_SHARE * took)
        if pipeline.files_max() > FILES_MAX:
            pipeline.compact()
        return added

    def _audit_rests(self) -> float:
        """Seconds until the next audit is due, by the time of the newest."""
        try:
            made = (Place(self._data).lake / "audit" / "_delta_log").stat().st_mtime
        except OSError:
            return 0.0
        return max(0.0, made + (self._audit_every_s or 0) - time.time())

    def _session(self) -> SparkSession:
        if self._spark is None:
            work, is_light = Place(self._data).work, self._is_light
            self._spark = open_session(
                work, spark_url=self._spark_url, memory=self._memory, partitions=2 if is_light else 4,
                for_short_runs=is_light,
            )  # fmt: skip
        return self._spark

    def close(self) -> None:
        """End the session."""
        if self._spark is not None:
            self._spark.stop()
            self._spark = None
