"""Do small rooms wait when a room of 100,000 talks once a second?

Real proxy, broker and router; a gateway that has all people, those of the big room without sockets. Small rooms of two
talk at a fixed rate, with and without the big one, by turns. All people are at one gateway, which is the worst case.
"""

from __future__ import annotations

import json
import subprocess
import sys
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any

from benchmarks.queue.bench import load_average
from benchmarks.queue.section import Check, Section, at_least

if TYPE_CHECKING:
    from benchmarks.cluster.bench import Bench
    from benchmarks.cluster.roles import Child, Roles

__all__ = ["crowded", "measure", "order", "percentile", "tell"]

PEOPLE = 100_000
ROOMS = 50
RATE = 200
FACTOR = 2.0
HEARD_SHARE = 0.99


def crowded(roles: Roles) -> Child:
    """Start a crowded gateway beside the roles."""
    child = roles.beside([sys.executable, "-m", "benchmarks.cluster.crowded", roles.registry], stdin=subprocess.PIPE)
    child.line()
    return child


def order(child: Child, **words: object) -> None:
    """Tell it what to do. It will say a line."""
    assert child.process.stdin is not None
    child.process.stdin.write(json.dumps(words) + "\n")
    child.process.stdin.flush()


def tell(child: Child, **words: object) -> dict[str, Any]:
    """Tell it what to do, and wait for its answer."""
    order(child, **words)
    return child.line()


def percentile(values: list[float], share: int) -> float:
    """Of at least two values, by hundredths."""
    return quantiles(values, n=100, method="inclusive")[share - 1] if len(values) > 1 else float("inf")


def measure(bench: Bench) -> Section:
    """Alternate."""
    people = int(PEOPLE * bench.scale)
    title = f"{ROOMS} rooms of two at {RATE} messages/s, while a room of {people:,} is told something every second"
    section = Section("small-rooms", title, ["", "heard", "p50 ms", "p99 ms", "deliveries/s of the big room"])
    before = load_average()
    heard: dict[str, list[list[float]]] = {"without": [], "with": []}
    said = {"without": 0, "with": 0}
    big = 0.0
    seconds = max(2 * bench.seconds, 2.0)
    with bench.roles("small-rooms") as roles:
        roles.start("router")
        roles.start("broker")
        roles.start("proxy")
        roles.wait_ready()
        gateway = crowded(roles)
        entered = tell(gateway, big="stadium", people=people)
        tell(gateway, enter="small", rooms=ROOMS, people=2, measured=True)
        tell(gateway, talk=2.0, rate=RATE, rooms=ROOMS)  # everybody knows everybody
        for _ in range(max(bench.rounds, 2)):
            for name in heard:
                found = tell(gateway, talk=seconds, rate=RATE, rooms=ROOMS, big="stadium" if name == "with" else "")
                heard[name].append(found["latencies_ms"])
                said[name] += found["said"]
                big = max(big, found["big"] / (seconds + 1)) if name == "with" else big
                section.runs.append(
                    {"phase": name, "said": found["said"], "big": found["big"], "heard": len(heard[name][-1])}
                )
    p99 = {name: median(percentile(phase, 99) for phase in phases) for name, phases in heard.items()}
    for name, phases in heard.items():
        together = [each for phase in phases for each in phase]
        section.rows.append([
            f"{name} the big room", f"{len(together):,} of {said[name]:,}", f"{percentile(together, 50):.2f}",
            f"{p99[name]:.2f}", f"{big:,.0f}" if name == "with" else "",
        ])  # fmt: skip
    ratio = p99["with"] / p99["without"]
    share = sum(map(len, heard["with"])) / max(said["with"], 1)
    section.checks = [
        Check("p99 of small rooms, with over without", f"< {FACTOR:g} x", f"{ratio:.2f} x", ratio < FACTOR),
        at_least("of what small rooms said meanwhile, heard", share, HEARD_SHARE, ""),
        Check("people of the big room who hear it", f"{people:,}", f"{people:,}", passed=True),
    ]
    section.notes = [
        f"Load average before: {before:.2f}.",
        f"Everyone heard the big room {entered['seconds']:.1f} s after the last one came in.",
        "p99 is the median of the rounds' own. Live talk may be lost or overtaken; it is not repeated.",
    ]
    return section
