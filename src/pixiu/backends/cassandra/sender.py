"""A thread that writes commits to Cassandra, one after the other, and tries again until each is there.

A commit is sent in an order that a crash may end anywhere: first how high message ids go, so that a row that might be
there is looked for; then rows, then removals, then the event id that the lane has reached. Writing all of it again
writes the same rows.

What Cassandra has acknowledged may be in the memory of one process for a while (``commitlog_sync: periodic``), and with
a single copy a kill loses it. So whatever was written lately is written once more when Cassandra has been away.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from pixiu.backends.cassandra.link import PROBE_SECONDS

if TYPE_CHECKING:
    from pixiu.backends.cassandra.job import Job
    from pixiu.backends.cassandra.link import Link

__all__ = ["Sender"]

KEPT_ROWS_MAX = 100_000
"""Of what was written lately; older commits are let go. Cassandra syncs its commit log every ten seconds, if nobody
says otherwise: who writes more than this in that time, to a single copy, may lose some with it."""
KEPT_LOOKS = 15
"""After so many looks, a second each, without a commit everything is synced, and nothing is kept."""


class Sender:
    """Takes jobs in order. ``done`` and ``position`` are written by its thread and read by any."""

    def __init__(self, link: Link, position: int) -> None:
        self._link = link
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._changed = threading.Condition()
        self.position = position
        """The event id that is durable."""
        self.done = 0
        """The number of the newest job that is written."""
        self.failures = 0
        """How often a job had to be tried again."""
        self._kept: deque[Job] = deque()
        """Those that were written lately."""
        self._kept_rows = 0
        self._thread = threading.Thread(target=self._run, name="pixiu-timelines", daemon=True)
        self._thread.start()

    def send(self, job: Job) -> None:
        """Behind those that wait."""
        self._jobs.put(job)

    def wait(self, number: int, seconds: float) -> bool:
        """Until a job is done. False: not within this time."""
        with self._changed:
            return self._changed.wait_for(lambda: self.done >= number or self._stopping.is_set(), seconds)

    def forget(self) -> None:
        """Everything was removed on purpose, when nothing was under way: nothing of it is to be written again."""
        self._let_go()
        self.position = 0

    def close(self) -> None:
        """Stop; what waits is not written."""
        self._stopping.set()
        self._jobs.put(None)
        with self._changed:
            self._changed.notify_all()
        self._thread.join(10)

    def _run(self) -> None:
        looks = 0
        while not self._stopping.is_set():
            try:
                job = self._jobs.get(timeout=PROBE_SECONDS)
            except queue.Empty:
                looks += 1
                if self._link.problem:
                    self._is_back()
                elif looks >= KEPT_LOOKS:
                    self._let_go()
                continue
            looks = 0
            if job is not None:
                self._until_written(job)

    def _until_written(self, job: Job) -> None:
        while not self._stopping.is_set():
            if self._link.problem and not self._is_back():
                self._stopping.wait(PROBE_SECONDS)
                continue
            try:
                self._write(job)
            except Exception as error:  # noqa: BLE001 - this thread lives: it tries again, and tells
                self.failures += 1
                self._link.trip(error)
                self._stopping.wait(PROBE_SECONDS)
                continue
            self._keep(job)
            with self._changed:
                self.done = job.number
                self.position = max(self.position, job.position)
                self._changed.notify_all()
            return

    def _is_back(self) -> bool:
        """Does it answer again? Whatever else comes of asking, this thread lives: nobody else would ask again."""
        try:
            return self._link.probe(self._write_again)
        except Exception as error:  # noqa: BLE001 - as above
            self._link.trip(error)
            return False

    def _write(self, job: Job) -> None:
        for writes in job.phases(self._link.layout):
            self._link.write(writes)

    def _keep(self, job: Job) -> None:
        self._kept.append(job)
        self._kept_rows += job.rows
        while self._kept_rows > KEPT_ROWS_MAX and len(self._kept) > 1:
            self._kept_rows -= self._kept.popleft().rows

    def _let_go(self) -> None:
        self._kept.clear()
        self._kept_rows = 0

    def _write_again(self) -> None:
        """What was written lately. Ids never seem lower meanwhile, and the event id comes last, as in one commit."""
        jobs = list(self._kept)
        highest = max((job.highest for job in jobs), default=0)
        position = max((job.position for job in jobs), default=0)
        for job in jobs:
            self._write(replace(job, highest=highest, position=position if job is jobs[-1] else 0))
