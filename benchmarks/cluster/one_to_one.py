"""Durable one-to-one messages over WebSocket through a whole cluster: CPU per message of all its processes, latency.

A message is in flight until its sender has the answer and its receiver has the message; receivers ack. The two clients
of a pair connect to the same gateway or to different ones, by a hash. Every run has new users, so that nothing of an
earlier run is delivered in it. CPU time of the leader of the shard and of its followers is counted apart.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.cluster.whole import SHARD, cluster_file, pixiu_only
from benchmarks.gateway import crowd
from benchmarks.gateway.crowd import SOURCE, Talk
from benchmarks.queue.bench import load_average, notes_of
from benchmarks.queue.generator import compiled
from benchmarks.queue.section import Section, at_most, faults_check, milliseconds, spread, whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from benchmarks.cluster.bench import Bench
    from benchmarks.cluster.whole import PixiuCluster

__all__ = ["FOLLOWER", "LEADER", "by_replica", "crowd_words", "measure", "shard_figures", "wrongly_delivered"]

BYTES = 100
PAUSE_SECONDS = 1.0
"""From the last connection to the first message."""
CONCURRENCY = 32
"""Connections that are being opened at a time; the cluster creates the user of each."""
TEN_MS_MAX, ONE_MS_MAX = 0.21, 0.40
P50_MS_MAX, P99_MS_MAX = 10.0, 80.0
CORES_MAX = 1.0
LEADER, FOLLOWER = "shard leader", "shard followers"
"""Instead of the role, when the CPU time of the replicas of a shard is counted apart."""


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """One kind of load."""

    label: str
    options: Mapping[str, float]


def measure(bench: Bench) -> Section:
    """Closed loop with one and with ten in flight per pair, then open loop, in each round."""
    amounts = bench.amounts
    one, ten = Case("one in flight per pair", {"window": 1}), Case("ten in flight per pair", {"window": 10})
    steady = Case(f"{amounts.rate:,}/s, open loop", {"rate": amounts.rate})
    section = Section(
        "durable",
        f"Durable one-to-one messages, three replicas: {amounts.pairs} pairs, {BYTES} bytes, WebSocket",
        ["", "delivered/s", "rounds", "CPU ms per message", "p50 ms", "p99 ms", "cores used", "generator CPU"],
    )
    talks: dict[Case, list[Talk]] = {case: [] for case in (one, ten, steady)}
    roles: dict[Case, list[dict[str, float]]] = {case: [] for case in (one, ten, steady)}
    averages: list[float] = []
    figures: list[tuple[float, float]] = []
    changes = 0
    with bench.cluster("durable", cluster_file()) as cluster:
        processes = pixiu_only(cluster.processes())
        first = 0
        for round_number in range(1, bench.rounds + 1):
            for case in talks:
                averages.append(load_average())
                leader = cluster.leader().pid
                talk = _talk(bench, cluster, processes, first, case)
                first += 2 * amounts.pairs
                talks[case].append(talk)
                is_same = cluster.leader().pid == leader
                changes += not is_same
                labels = by_replica(processes, leader if is_same else None)
                roles[case].append(_by_role(labels, talk))
                if case is ten and is_same:
                    figures.append(shard_figures(labels, talk))
                section.runs.append({
                    "case": case.label, "round": round_number, "load_average": averages[-1],
                    "cpu_ms_per_message": cpu_ms(talk), "by_role": roles[case][-1], **talk.as_json(),
                })  # fmt: skip
                bench.say(
                    f"  round {round_number}/{bench.rounds}  {case.label:<24} {talk.per_second:>8,.0f}/s  "
                    f"{cpu_ms(talk):.3f} ms of CPU per message  p50 {talk.p50_us / 1000:.1f}"
                    f"  p99 {talk.p99_us / 1000:.1f} ms  load average {averages[-1]:.2f}"
                )
    every = [talk for runs in talks.values() for talk in runs]
    first_error = next((talk.first_error for talk in every if talk.first_error), "")
    section.rows = [_row(case.label, runs) for case, runs in talks.items()]
    section.checks = [
        at_most("CPU ms per message, ten in flight", median(map(cpu_ms, talks[ten])), TEN_MS_MAX, " ms"),
        at_most("CPU ms per message, one in flight", median(map(cpu_ms, talks[one])), ONE_MS_MAX, " ms"),
        at_most(f"p50 at {amounts.rate:,}/s", median(talk.p50_us for talk in talks[steady]) / 1000, P50_MS_MAX, " ms"),
        at_most(f"p99 at {amounts.rate:,}/s", median(talk.p99_us for talk in talks[steady]) / 1000, P99_MS_MAX, " ms"),
        at_most(f"cores used at {amounts.rate:,}/s", median(map(cores, talks[steady])), CORES_MAX, ""),
        faults_check("failed sends, other errors, closed clients", sum(map(_failed, every)), first_error),
        faults_check("accepted messages lost, repeated or out of order", sum(map(wrongly_delivered, every)), ""),
    ]
    section.notes = notes_of(averages, every)
    if resyncs := sum(talk.resyncs for talk in every):
        section.notes.append(f"A server lost its lease under this load: clients received `resync` {resyncs:,} times.")
    section.notes.append(
        f"{len(processes)} Pixiu processes are counted, ZooKeeper's are not. Clients, cluster and ZooKeeper share the "
        "cores."
    )
    section.notes += [f"CPU ms per message by role, {case.label}: {_words(found)}." for case, found in roles.items()]
    if figures:
        leader_rate, follower_rate = (median(rates) for rates in zip(*figures, strict=True))
        bench.figures |= {"shard_leader": leader_rate, "shard_follower": follower_rate}
        section.notes.append(
            f"Stored messages per core and second, {ten.label}, from the CPU time of each process: the leader of the "
            f"shard {leader_rate:,.0f}, each follower {follower_rate:,.0f}. Receivers' acks are included."
        )
    if changes:
        section.notes.append(
            f"The leader of the shard changed in {changes} runs. These do not count leader and followers apart."
        )
    return section


def by_replica(processes: Mapping[int, str], leader: int | None) -> dict[int, str]:
    """The role of each process, with ``LEADER`` and ``FOLLOWER`` for those of a shard. Without a leader: unchanged."""
    if leader is None:
        return dict(processes)
    shard = {pid: LEADER if pid == leader else FOLLOWER for pid, role in processes.items() if role == SHARD}
    return dict(processes) | shard


def shard_figures(labels: Mapping[int, str], talk: Talk) -> tuple[float, float]:
    """Messages for each CPU second of the leader of a shard, and for each of one follower."""
    spent = _by_label(labels.values(), talk.watched)
    followers = sum(label == FOLLOWER for label in labels.values())
    return talk.deliveries / max(spent[LEADER], 1e-9), talk.deliveries * followers / max(spent[FOLLOWER], 1e-9)


def crowd_words(cluster: PixiuCluster, users: range, **options: float) -> list[str]:
    """The command of a crowd whose pairs send durable messages through a cluster's gateways."""
    words = [str(compiled(SOURCE)), "--protocol", "pixiu", "--mode", "pair", "--class", "durable"]
    words += ["--tokens", str(cluster.tokens(users)), "--pairs", str(len(users) // 2), "--bytes", str(BYTES)]
    words += ["--concurrency", str(CONCURRENCY), "--pause", str(PAUSE_SECONDS)]
    for node in cluster.nodes("gateway"):
        words += ["--port", str(node.port)]
    for name, value in options.items():
        words += [f"--{name}", str(value)]
    return words


def cpu_ms(talk: Talk) -> float:
    """CPU time of all processes of the cluster for one delivered message, in milliseconds."""
    return talk.server_cpu_seconds / max(talk.deliveries, 1) * 1000


def wrongly_delivered(talk: Talk) -> int:
    """Accepted messages that did not arrive once and in order."""
    return talk.lost + talk.repeats + talk.disorder


def _failed(talk: Talk) -> int:
    return talk.failed + talk.errors - talk.refused + talk.closed


def cores(talk: Talk) -> float:
    """How many cores the processes of the cluster used."""
    return talk.server_cpu_seconds / talk.seconds if talk.seconds > 0 else 0.0


def _talk(bench: Bench, cluster: PixiuCluster, processes: Mapping[int, str], first: int, case: Case) -> Talk:
    amounts = bench.amounts
    users = range(first, first + 2 * amounts.pairs)
    words = crowd_words(cluster, users, seconds=amounts.seconds, warmup=2 * bench.warmup, **case.options)
    for pid in processes:
        words += ["--watch-pid", str(pid)]
    return crowd.run(words, case.label)


def _by_role(labels: Mapping[int, str], talk: Talk) -> dict[str, float]:
    """CPU ms per message of each role."""
    spent = _by_label(labels.values(), talk.watched)
    return {role: round(seconds / max(talk.deliveries, 1) * 1000, 4) for role, seconds in spent.items()}


def _by_label(labels: Iterable[str], watched: list[float]) -> dict[str, float]:
    """CPU seconds of all processes with the same label."""
    found: dict[str, float] = defaultdict(float)
    for label, seconds in zip(labels, watched, strict=True):
        found[label] += seconds
    return found


def _words(runs: list[dict[str, float]]) -> str:
    names = {role for run in runs for role in run}  # leader and followers are apart only in some of the runs
    medians = {role: median(run[role] for run in runs if role in run) for role in names}
    return ", ".join(f"{role} {ms:.3f}" for role, ms in sorted(medians.items(), key=lambda item: -item[1]))


def _row(label: str, talks: list[Talk]) -> list[str]:
    speeds = [talk.per_second for talk in talks]
    return [
        label, whole(median(speeds)), spread(speeds), f"{median(map(cpu_ms, talks)):.3f}",
        milliseconds(median(talk.p50_us for talk in talks)), milliseconds(median(talk.p99_us for talk in talks)),
        f"{median(map(cores, talks)):.2f}", f"{median(talk.cpu_share for talk in talks):.0%}",
    ]  # fmt: skip
