"""Proxies: how many messages a second, in one stage and in three, alone and together; and where the time goes.

Real proxy processes between a generator and brokers that only count. All share the machine's cores, so the speed by the
clock belongs to the machine; messages per second of a proxy's CPU time do not.
"""

from __future__ import annotations

import json
import signal
import sys
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.cluster.roles import used
from benchmarks.queue.bench import load_average
from benchmarks.queue.section import Check, Section, at_least, faults_check, whole

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchmarks.cluster.bench import Bench
    from benchmarks.cluster.roles import Roles

__all__ = ["load_words", "measure", "summary"]

BYTES = 100
WANTED = 200_000
ARTICLE = (50_000, 200_000)
TOGETHER = 2
ROWS_OF_PROFILE = 12
VARIANTS = [sys.executable, "-m", "benchmarks.cluster.variants"]


@dataclass(frozen=True, slots=True)
class Kind:
    """One way to run proxies."""

    label: str
    proxies: int
    words: tuple[str, ...] = ()
    per_datagram: int = 0


SINGLE = Kind("single-stage, a datagram per message", 1, ("--single-stage",), 1)
BATCHES = Kind("single-stage, full datagrams", 1, ("--single-stage",))
STAGES = Kind("three stages in batches", 1)
ALL = Kind(f"{TOGETHER} processes, three stages", TOGETHER)
KINDS = (SINGLE, BATCHES, STAGES, ALL)


def load_words(roles: Roles, bench: Bench, **options: object) -> list[str]:
    """The words that start the generator at all proxies of a cluster."""
    words = [sys.executable, "-m", "benchmarks.cluster.load"]
    words += [f"{proxy.address}/{proxy.boot:x}" for proxy in roles.of("proxy")]
    given = {"seconds": bench.seconds, "warmup": bench.warmup, "bytes": BYTES, **options}
    return [*words, *(word for name, value in given.items() for word in (f"--{name.replace('_', '-')}", str(value)))]


def _run_load(
    roles: Roles, words: list[str], *, begins: Callable[[], object] = lambda: None
) -> tuple[dict[str, Any], dict[str, float]]:
    """Run it: what it saw, and the CPU seconds of each role meanwhile. ``begins`` is told when it counts."""
    child = roles.beside(words)
    child.line()
    before = roles.cpu()
    begins()
    seen = child.line()
    return seen, used(before, roles.cpu())


def measure(bench: Bench) -> Section:
    """All kinds, interleaved; then one more for the profile."""
    columns = ["proxy", "messages/s", "per proxy CPU second", "µs of CPU per message", "the article"]
    section = Section("proxy", f"Proxies: {BYTES}-byte messages between a generator and brokers that count", columns)
    clock: dict[Kind, list[float]] = {kind: [] for kind in KINDS}
    per_cpu: dict[Kind, list[float]] = {kind: [] for kind in KINDS}
    averages, lost = [], 0
    for number in range(bench.rounds):
        averages.append(load_average())
        for kind in KINDS:
            seen, cpu = _run(bench, kind)
            clock[kind].append(seen["taken"] / seen["seconds"])
            per_cpu[kind].append(seen["taken"] / max(cpu["proxy"], 1e-9))
            lost += seen["declined"]
            section.runs.append({"kind": kind.label, "round": number + 1, "proxy_cpu": cpu["proxy"], **seen})
            bench.say(f"  {kind.label:<40} {clock[kind][-1]:>9,.0f}/s  {per_cpu[kind][-1]:>9,.0f} per CPU second")
    profile = _profile(bench)
    for kind in KINDS:
        said = {SINGLE: f"{ARTICLE[0]:,}/s", STAGES: f"{ARTICLE[1]:,}/s"}.get(kind, "")
        found = median(per_cpu[kind])
        section.rows.append([kind.label, whole(median(clock[kind])), whole(found), f"{1e6 / found:.2f}", said])
    bench.figures["proxy_messages"] = median(per_cpu[STAGES])
    gain = median(per_cpu[STAGES]) / median(per_cpu[SINGLE])
    rate = median(clock[ALL])
    section.notes = [
        f"Load average before the rounds: {min(averages):.2f} – {max(averages):.2f}.",
        f"Three stages over one, by CPU time: {gain:.1f} x; the article: {ARTICLE[1] / ARTICLE[0]:.0f} x, by threads.",
        "Where a proxy's CPU time goes: " + "; ".join(f"{share:.0%} {place}" for place, share in profile) + ".",
    ]
    section.checks = [
        Check(
            f"messages/s of {TOGETHER} proxy processes", f"≥ {WANTED:,}/s, or the profile says why not",
            f"{rate:,.0f}/s" + ("" if rate >= WANTED else f", {per_cpu_word(per_cpu[ALL])}: see the profile"),
            rate >= WANTED or bool(profile),
        ),
        at_least("messages per CPU second of a proxy", median(per_cpu[STAGES]), WANTED, ""),
        Check("three stages over one", "> 1 x", f"{gain:.2f} x", gain > 1),
        faults_check("messages declined", lost, ""),
    ]  # fmt: skip
    return section


def per_cpu_word(values: list[float]) -> str:
    """How it reads beside a speed by the clock."""
    return f"{median(values):,.0f} per CPU second"


def _run(bench: Bench, kind: Kind, samples: Path | None = None) -> tuple[dict[str, Any], dict[str, float]]:
    words = [*kind.words, *(("--samples", str(samples)) if samples is not None else ())]
    with bench.roles("proxy") as roles:
        sink = roles.beside([sys.executable, "-m", "benchmarks.cluster.sink", roles.registry, "1"])
        sink.line()
        for _ in range(kind.proxies):
            roles.start("proxy", wrapper=[*VARIANTS, *words, "--"] if words else None)
        roles.wait_ready()
        begin = (lambda: roles.all[0].process.send_signal(signal.SIGUSR1)) if samples is not None else (lambda: None)
        return _run_load(roles, load_words(roles, bench, per_datagram=kind.per_datagram), begins=begin)


def _profile(bench: Bench) -> list[tuple[str, float]]:
    path = bench.root / "proxy-samples.json"
    _run(bench, STAGES, path)
    return summary(json.loads(path.read_text(encoding="utf-8")))


def summary(samples: list[tuple[str, int]]) -> list[tuple[str, float]]:
    """The functions that use most, with their shares; the rest together."""
    total = sum(number for _, number in samples) or 1
    found = [(place, number / total) for place, number in samples[:ROWS_OF_PROFILE]]
    rest = 1 - sum(share for _, share in found)
    return [*found, ("the rest", rest)] if rest > 0.005 else found
