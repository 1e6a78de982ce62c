"""How long clients cannot send messages when the leader of a shard is killed or frozen.

The cluster has one shard of three replicas and two gateways. Writers send durable messages over HTTP all the time. Each
repetition kills or freezes the leader and finds the longest time in which no message was accepted. Then it waits until
every replica could take over again.
"""

from __future__ import annotations

import http.client
import json
import signal
import threading
import time
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Self

from benchmarks.cluster.roles import used
from benchmarks.cluster.whole import SHARD, cluster_file, cpu_by_role, pixiu_only, signal_all
from benchmarks.queue.bench import load_average
from benchmarks.queue.section import Section, at_most
from benchmarks.queue.servers import HOST, ServerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.cluster.bench import Bench
    from benchmarks.cluster.whole import Node, PixiuCluster

__all__ = ["longest_gap", "measure"]

MEDIAN_SECONDS_MAX = 1.8
WORST_SECONDS_MAX = 2.5
WRITERS = 8
BEFORE_SECONDS = 1.5
AFTER_SECONDS = 5.0
FIRST_SECONDS = 60.0
REST_SECONDS = 1.0
"""After every replica is ready, before the next repetition."""
ANSWER_SECONDS = 5.0
SIGNALS = {"killed": signal.SIGKILL, "frozen": signal.SIGSTOP}


def longest_gap(times: list[float], began: float) -> float:
    """The longest time without a write, of those that end after ``began``."""
    ordered = sorted(times)
    return max((after - before for before, after in pairwise(ordered) if after >= began), default=float("inf"))


@dataclass(frozen=True, slots=True)
class Outage:
    """Seconds without an accepted write, of all writers together and of the one that waited longest."""

    seconds: float
    one_writer: float


class Writers:
    """Threads that write; ``times`` is when the writes of each were accepted."""

    def __init__(self, write: Callable[[int, int], bool]) -> None:
        """``write`` gets the writer and the number of the message, and returns whether it was accepted."""
        self.times: list[list[float]] = [[] for _ in range(WRITERS)]
        self._write = write
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(WRITERS)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    @property
    def accepted(self) -> int:
        """How many writes so far."""
        return sum(map(len, self.times))

    def _run(self, writer: int) -> None:
        number = 0
        while not self._is_over.is_set():
            if self._write(writer, number):
                self.times[writer].append(time.monotonic())
                number += 1
            else:
                time.sleep(0.02)

    def outage(self, strike: Callable[[], object]) -> Outage:
        """The longest time without a write around a strike."""
        time.sleep(BEFORE_SECONDS)
        began = time.monotonic()
        strike()
        time.sleep(AFTER_SECONDS)
        each = [list(times) for times in self.times]
        together = [moment for times in each for moment in times]
        return Outage(longest_gap(together, began), max(longest_gap(times, began) for times in each))

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()


def measure(bench: Bench) -> Section:
    """Kill the leader of the shard, then freeze it, each as often as ``bench.repetitions`` says."""
    section = Section(
        "failover",
        "The leader of a shard fails: how long no message is accepted",
        ["", "times", "median s", "worst s", "worst of one client s"],
    )
    before = load_average()
    for what, outages in _outages(bench).items():
        seconds = [outage.seconds for outage in outages]
        alone = [outage.one_writer for outage in outages]
        section.rows.append([
            what, str(len(seconds)), f"{median(seconds):.2f}", f"{max(seconds):.2f}", f"{max(alone):.2f}",
        ])  # fmt: skip
        section.checks.append(at_most(f"{what}: median", median(seconds), MEDIAN_SECONDS_MAX, " s"))
        section.checks.append(at_most(f"{what}: worst", max(seconds), WORST_SECONDS_MAX, " s"))
        section.runs.append({"what": what, "seconds": seconds, "one_writer": alone})
    section.notes = [
        f"Load average: {before:.2f} before, {load_average():.2f} after.",
        (
            f"{WRITERS} clients that send durable messages over HTTP, one request under way each. A killed process is "
            "started again by the supervisor; a frozen one goes on after the measurement."
        ),
    ]
    return section


def _outages(bench: Bench) -> dict[str, list[Outage]]:
    found: dict[str, list[Outage]] = {}
    file = cluster_file((SHARD, "gateway"))
    with bench.cluster("failover", file) as cluster:
        send = _sender(cluster)
        _wait_for_first(send)
        with Writers(send) as writers:
            _keep_figures(bench, cluster, writers)
            for how, number in SIGNALS.items():
                outages = found[f"leader {how}"] = []
                for _ in range(bench.repetitions):
                    outages.append(_strike(cluster, writers, cluster.leader(), number))
                    bench.say(f"  leader {how}: {outages[-1].seconds:.2f} s, one client {outages[-1].one_writer:.2f} s")
    return found


def _strike(cluster: PixiuCluster, writers: Writers, leader: Node, number: int) -> Outage:
    """Send a signal to the leader, measure, and wait until every replica could take over again."""
    assert leader.pid is not None
    pids = [leader.pid]
    try:
        outage = writers.outage(lambda: signal_all(pids, number))
    finally:
        if number == signal.SIGSTOP:
            signal_all(pids, signal.SIGCONT)
    cluster.wait_ready()
    time.sleep(REST_SECONDS)
    return outage


def _sender(cluster: PixiuCluster) -> Callable[[int, int], bool]:
    """A function that sends message ``number`` of a writer, and returns whether it was accepted."""
    ports = [node.port for node in cluster.nodes("gateway")]
    tokens = [line.split()[1] for line in cluster.tokens(range(WRITERS)).read_text().splitlines()]
    connections: list[http.client.HTTPConnection | None] = [None] * WRITERS

    def send(writer: int, number: int) -> bool:
        connection = connections[writer] = connections[writer] or http.client.HTTPConnection(
            HOST, ports[writer % len(ports)], timeout=ANSWER_SECONDS
        )
        body = json.dumps({"to": f"user-{(writer + 1) % WRITERS}", "text": "hi", "send_id": f"{writer}-{number}"})
        try:
            connection.request("POST", "/v1/actions/send", body, {"Authorization": f"Bearer {tokens[writer]}"})
            answer = connection.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException):
            connection.close()
            connections[writer] = None
            return False
        return answer.status == 200

    return send


def _wait_for_first(send: Callable[[int, int], bool]) -> None:
    until = time.monotonic() + FIRST_SECONDS
    while not all([send(writer, -1) for writer in range(WRITERS)]):  # noqa: C419 - all of them, each time
        if time.monotonic() > until:
            raise ServerError(f"not every client could send a message within {FIRST_SECONDS:.0f} s")
        time.sleep(0.1)


def _keep_figures(bench: Bench, cluster: PixiuCluster, writers: Writers) -> None:
    """What a request to store a message costs a gateway, while nothing is wrong: for ``scaling``."""
    processes = pixiu_only(cluster.processes())
    time.sleep(1.0)
    before, count = cpu_by_role(processes), writers.accepted
    time.sleep(max(bench.seconds, 2.0))
    spent, written = used(before, cpu_by_role(processes)), max(writers.accepted - count, 1)
    bench.figures["gateway_sends"] = written / max(spent["gateway"], 1e-9)
