"""The room path as processes, beside one process: deliveries per CPU second of all roles, and what the way adds.

One gateway, one proxy, one broker, one router; a thousand clients in one room and one who talks. The same crowd then
talks at one `pixiu serve`.

What the way adds is the difference of two medians of several milliseconds each, most of which are the thousand writes
that both ways have. So both stand at the same time and take turns of a few seconds: what else the machine does is in
both. Of the differences of two turns next to each other the median counts. Where the process that writes is put counts
as much, beside the clients or on a core of its own: the system decides that, or ``--server-cores``.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from contextlib import contextmanager
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.gateway.crowd import FAULTS, SOURCE, Talk, run
from benchmarks.gateway.servers import PixiuServe, pinning
from benchmarks.queue.bench import faults_of, load_average
from benchmarks.queue.generator import compiled
from benchmarks.queue.section import Section, at_least, below, milliseconds, whole
from benchmarks.queue.servers import memory_mb
from pixiu.config.security import SecuritySettings
from pixiu.ports.authentication import Identity
from pixiu.runtime.clock import SystemClock
from pixiu.runtime.keys import Keyring
from pixiu.runtime.tokens import Tokens

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.cluster.bench import Bench
    from benchmarks.cluster.roles import Roles

__all__ = ["measure", "tokens_file"]

SUBSCRIBERS = 1000
BYTES = 100
WINDOW = 128
CALM_RATE = 40
"""Messages a second at which the two ways are compared: nobody waits for anybody."""
CALM_TURNS = 4
"""Turns of each way for a round of other sections."""
PAUSE_SECONDS = 2.0
"""Until the broker knows everyone who is in the room."""
WANTED = 100_000
ADDED_MS = 2.0
ROLES = ("proxy", "broker", "router", "gateway")


def measure(bench: Bench) -> Section:
    """Saturated, then calm, each beside one process."""
    columns = [
        "",
        "deliveries/s",
        "per CPU second of all roles",
        *(f"{role} CPU s" for role in ROLES),
        "p50 ms",
        "p99 ms",
    ]
    section = Section(
        "path", f"A room of {SUBSCRIBERS:,} over publisher, proxy, broker, gateway; {BYTES} bytes", columns
    )
    full: list[tuple[Talk, dict[str, float]]] = []
    alone: list[Talk] = []
    averages = []
    for _ in range(bench.rounds):
        averages.append(load_average())
        with bench.roles("path") as roles:
            _start(roles)
            full.append(_crowd(bench, roles, window=WINDOW))
        with _alone(bench) as words:
            alone.append(_talk(bench, words, window=WINDOW))
        bench.say(f"  cluster {full[-1][0].per_second:,.0f}/s, one process {alone[-1].per_second:,.0f}/s")
    averages.append(load_average())
    calm = _calm(bench)
    rates = [talk.deliveries / max(sum(cpu.values()), 1e-9) for talk, cpu in full]
    cpu_of = {role: median(cpu[role] for _, cpu in full) for role in ROLES}
    blank = [""] * len(ROLES)
    section.rows = [
        ["cluster, saturated", whole(median(talk.per_second for talk, _ in full)), whole(median(rates)),
         *(f"{cpu_of[role]:.2f}" for role in ROLES), *_latency([talk for talk, _ in full])],
        ["one process, saturated", whole(median(talk.per_second for talk in alone)),
         whole(median(1e6 / max(talk.cpu_per_million, 1e-9) for talk in alone)), *blank, *_latency(alone)],
        *([f"{name}, {CALM_RATE} messages/s", "", "", *blank, *_latency(talks)] for name, talks in calm.items()),
    ]  # fmt: skip
    differences = [
        (one.p50_us - two.p50_us) / 1000 for one, two in zip(calm["cluster"], calm["one process"], strict=True)
    ]
    added = median(differences)
    section.checks = [
        at_least("deliveries per CPU second of all roles", median(rates), WANTED, ""),
        below("p50 that the cluster's way adds", added, ADDED_MS, " ms"),
        faults_of([talk for talk, _ in full] + calm["cluster"], FAULTS),
    ]
    section.notes = [
        f"Load average before the rounds: {min(averages):.2f} – {max(averages):.2f}.",
        (
            f"At {CALM_RATE} messages/s both stand at the same time and take {len(differences)} turns each, servers on "
            f"core {bench.server_cores or 'any'}, clients on core {bench.crowd_cores or 'any'}. What the cluster's way "
            f"adds is the median of {min(differences):.2f} – {max(differences):.2f} ms."
        ),
    ]
    section.runs = [{"way": "cluster", "cpu": cpu, **talk.as_json()} for talk, cpu in full]
    section.runs += [
        {"way": name, "rate": CALM_RATE, **talk.as_json()} for name, talks in calm.items() for talk in talks
    ]
    section.runs += [{"way": "one process", **talk.as_json()} for talk in alone]
    _keep_figures(bench, full)
    return section


def _keep_figures(bench: Bench, full: list[tuple[Talk, dict[str, float]]]) -> None:
    """What one core of each role does on this path, for ``scaling``."""
    deliveries = sum(talk.deliveries for talk, _ in full)
    bench.figures["gateway_deliveries"] = deliveries / max(sum(cpu["gateway"] for _, cpu in full), 1e-9)
    bench.figures["path_deliveries"] = deliveries / max(sum(sum(cpu.values()) for _, cpu in full), 1e-9)


def _latency(talks: list[Talk]) -> list[str]:
    return [milliseconds(median(talk.p50_us for talk in talks)), milliseconds(median(talk.p99_us for talk in talks))]


def _start(roles: Roles, cores: str = "") -> None:
    """On given cores, or on any."""
    wrapper = [*pinning(cores), sys.executable, "-m", "pixiu"]
    for role in ("router", "broker", "proxy"):
        roles.start(role, wrapper=wrapper)
    roles.start("gateway", data="gateway", wrapper=wrapper)
    roles.wait_ready()


def _calm(bench: Bench) -> dict[str, list[Talk]]:
    """Few messages, by turns."""
    calm: dict[str, list[Talk]] = {"cluster": [], "one process": []}
    with bench.roles("path") as roles, _alone(bench, bench.server_cores) as words:
        _start(roles, bench.server_cores)
        for _ in range(bench.rounds * CALM_TURNS):
            calm["cluster"].append(_crowd(bench, roles, rate=CALM_RATE)[0])
            calm["one process"].append(_talk(bench, words, pause=PAUSE_SECONDS, rate=CALM_RATE))
            bench.say(f"  one process: p50 {calm['one process'][-1].p50_us / 1000:.2f} ms")
    return calm


@contextmanager
def _alone(bench: Bench, cores: str = "") -> Iterator[list[str]]:
    """One process, and the words for a crowd at it."""
    server = PixiuServe(bench.directory("alone"), "")
    server.cores = cores
    try:
        with server:
            words = ["--port", str(server.port), "--tokens", str(server.tokens(range(SUBSCRIBERS + 1)))]
            for pid in server.pids():
                words += ["--watch-pid", str(pid)]
            yield words
    finally:
        bench.remove(server)


def _crowd(bench: Bench, roles: Roles, **options: float) -> tuple[Talk, dict[str, float]]:
    """Let them talk: what they saw, and the CPU seconds of each role while it was counted."""
    (gateway,) = roles.of("gateway")
    words = ["--port", str(gateway.about["port"])]
    words += ["--tokens", str(tokens_file(roles.folder / "gateway", range(SUBSCRIBERS + 1)))]
    for pid in roles.pids:
        words += ["--watch-pid", str(pid)]
    before_mb = memory_mb(gateway.process.pid)
    began = time.monotonic()
    talk = _talk(bench, words, pause=PAUSE_SECONDS, **options)
    spent: dict[str, float] = defaultdict(float)
    for role, seconds in zip(roles.all, talk.watched, strict=True):
        spent[role.role] += seconds
    grown_kib = max(memory_mb(gateway.process.pid) - before_mb, 0.1) * 1e6 / 1024 / SUBSCRIBERS
    bench.figures["connection_kib"] = max(grown_kib, bench.figures.get("connection_kib", 0.0))  # of a fresh gateway
    bench.say(
        f"  {time.monotonic() - began:.1f} s, {talk.per_second:,.0f} deliveries/s, p50 {talk.p50_us / 1000:.2f} ms"
    )
    return talk, dict(spent)


def _talk(bench: Bench, words: list[str], **options: float) -> Talk:
    command = [*pinning(bench.crowd_cores), str(compiled(SOURCE)), "--protocol", "pixiu", "--mode", "room", *words]
    command += ["--connections", str(SUBSCRIBERS), "--bytes", str(BYTES)]
    command += ["--seconds", str(bench.seconds), "--warmup", str(bench.warmup)]
    for name, value in options.items():
        command += [f"--{name}", str(value)]
    return run(command, "the room")


def tokens_file(data: Path, users: range) -> Path:
    """Users and their tokens for a gateway that has its keys in ``data``, one per line."""
    clock = SystemClock()
    tokens = Tokens(Keyring(data, clock), clock, SecuritySettings())
    path = data.parent / f"{data.name}.tokens"
    names = [f"user-{number}" for number in users]
    path.write_text("".join(f"{name} {tokens.issue(Identity(name, 'web', 'bench'))}\n" for name in names))
    return path
