"""`make bench-engines`: the core's workloads on the engines of others, beside the embedded default, in one run.

Rounds are interleaved: a slow minute of the machine hits all. An engine that cannot be had, or takes too long, is left
out by name. Every mix has one round; more of them are made while there is time (``--minutes``), and an interrupt ends
them: what was measured until then is told.
"""

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import uvloop
from rich.console import Console

from benchmarks.engines.mixes import MIXES, Engines, Mix
from benchmarks.engines.profile import profile
from benchmarks.engines.sizes import measure_recent, measure_sizes
from benchmarks.engines.storm import measure_storm
from benchmarks.engines.workloads import ALONE, PAGE, Result, measure
from benchmarks.messaging.backlog import BACKLOG
from benchmarks.queue import frame
from benchmarks.queue.frame import positive
from benchmarks.queue.machine import facts
from benchmarks.queue.section import Check, Section, whole
from benchmarks.queue.servers import ServerError
from pixiu.model.errors import PixiuError
from pixiu.runtime.collector import spare_the_collector

MARKERS = "bench-engines"
SIZES = "sizes"
STORM = "storm"
OTHERS_SECONDS = 150
"""What is left for the questions behind the rounds."""
MIX_SECONDS = 300
"""What one mix may take in one round."""
RATIO = 0.5
REDIS_MAX = 2.0
BATCHES_MAX = 1.01
SLOW_SHARE = 4
"""With Cassandra a round has a quarter of the messages: it stores them several times slower than others do."""
RATES = ("accepted", "delivered", "stored")
OTHERS = ("cpu_us", "catch_up_s", "pages")
STORED = """Stored: until every store had them for good, history included. CPU: of Pixiu's process alone. The servers \
share this machine with it."""

Results = dict[str, list[Result]]


def main() -> int:
    """Run what was asked for. Exit 0 when every target was met."""
    return frame.run(_options(), _measure, source=None, markers=MARKERS)


def _measure(options: argparse.Namespace, console: Console, root: Path) -> int:
    machine = facts(root)
    for name in ("TCP", "NATS"):
        del machine[name]
    machine["load average before"] = f"{os.getloadavg()[0]:.2f}"
    for name, value in machine.items():
        console.print(f"  {name:<20} {value}", highlight=False)
    ends_at = time.monotonic() + 60 * options.minutes - OTHERS_SECONDS
    keys = options.only or [*(mix.key for mix in MIXES), SIZES, STORM]
    mixes = [mix for mix in MIXES if mix.key in keys]
    spare_the_collector()  # as pixiu serve does
    wanted = {name for mix in mixes for name in mix.needs} | ({"redis"} if {SIZES, STORM} & set(keys) else set())
    with Engines(root / "servers", wanted) as engines:
        for name, reason in engines.left_out.items():
            console.print(f"[yellow]{name} is left out: {reason}[/yellow]", highlight=False)
        mixes = [mix for mix in mixes if engines.has(mix)]
        results = _rounds(options, console, root, engines, mixes, ends_at)
        asked: dict[str, Callable[[], Section]] = {
            **({"rates": lambda: _rates(options, root, engines, mixes, results)} if mixes else {}),
            **({"trips": lambda: _trips(mixes, results)} if any(mix.needs for mix in mixes) else {}),
            **({STORM: lambda: measure_storm(engines)} if STORM in keys and engines.valkey is not None else {}),
            **({SIZES: lambda: measure_sizes(root, engines), "recent": measure_recent} if SIZES in keys else {}),
        }
        sections = frame.sections_of(console, asked, lambda key: _asked(asked[key]))
    words: dict[str, object] = {
        "rounds": ", ".join(f"{key} {len(found)}" for key, found in results.items()) or "none",
        "messages": f"{options.messages:,} ({options.messages // SLOW_SHARE:,} with Cassandra)",
        "left out": ", ".join(engines.left_out) or "nothing",
        "load average after": f"{os.getloadavg()[0]:.2f}",
    }
    return frame.tell(options, machine, words, sections, markers=MARKERS)


def _count(options: argparse.Namespace, mix: Mix) -> int:
    messages: int = options.messages
    return max(messages // (SLOW_SHARE if mix.has_cassandra else 1), 1)


def _asked(ask: Callable[[], Section]) -> Section:
    """What goes wrong costs one question, not the run."""
    try:
        return ask()
    except (PixiuError, TimeoutError, RuntimeError, AssertionError) as error:
        raise ServerError(str(error) or type(error).__name__) from error


def _rounds(
    options: argparse.Namespace, console: Console, root: Path, engines: Engines, mixes: list[Mix], ends_at: float
) -> Results:
    """Measure the mixes in turn. One that fails keeps what it has; one that has nothing is taken out of ``mixes``."""
    results: Results = {mix.key: [] for mix in mixes}
    took: dict[str, float] = {}
    try:
        for number in range(options.rounds):
            for mix in [mix for mix in mixes if mix.key not in engines.left_out]:
                began = time.monotonic()
                if number and began + took[mix.key] > ends_at:
                    continue
                try:
                    found = uvloop.run(_measured(root, engines, mix, _count(options, mix)))
                except (PixiuError, TimeoutError, OSError) as error:
                    reason = f"not within {MIX_SECONDS} s" if isinstance(error, TimeoutError) else str(error)
                    console.print(f"[yellow]{mix.label} is left out: {reason}[/yellow]", highlight=False)
                    engines.left_out[mix.key] = reason
                    continue
                took[mix.key] = time.monotonic() - began
                results[mix.key].append(found)
                _print_round(console, number, mix, found, took[mix.key])
    except KeyboardInterrupt:
        console.print("stopped: what there is so far counts", highlight=False)
    mixes[:] = [mix for mix in mixes if results[mix.key]]
    return {mix.key: results[mix.key] for mix in mixes}


async def _measured(root: Path, engines: Engines, mix: Mix, count: int) -> Result:
    async with asyncio.timeout(MIX_SECONDS):
        return await measure(root, engines, mix, count)


def _print_round(console: Console, number: int, mix: Mix, found: Result, seconds: float) -> None:
    console.print(
        f"  round {number + 1}: {mix.label:<26} accepted {found.accepted:>9,.0f}/s   "
        f"delivered {found.delivered:>9,.0f}/s   caught up in {found.catch_up_s:6.2f} s   "
        f"pages {found.pages:>7,.0f}/s   load {os.getloadavg()[0]:.1f}   took {seconds:.0f} s",
        highlight=False,
    )


def _rates(options: argparse.Namespace, root: Path, engines: Engines, mixes: list[Mix], results: Results) -> Section:
    section = Section(
        "rates",
        f"The core's workloads by engine: medians; {BACKLOG:,} waiting messages; pages of {PAGE}",
        ["engine", "accepted/s", "delivered/s", "stored/s", "CPU per send", "caught up in", "pages/s"],
    )
    for mix in mixes:
        found = results[mix.key]
        rates = [whole(median(getattr(each, what) for each in found)) for what in RATES]
        cpu_us, catch_up_s, pages = (median(getattr(each, what) for each in found) for what in OTHERS)
        section.rows.append([mix.label, *rates, f"{cpu_us:.0f} µs", f"{catch_up_s:.2f} s", whole(pages)])
        section.runs.append({"engine": mix.key, "rounds": [each.as_json() for each in found]})
    section.notes = [STORED]
    balanced = all(each.is_balanced for found in results.values() for each in found)
    section.checks = [Check("audits balanced", "yes", "yes" if balanced else "no", balanced)]
    if "redis" in results and "embedded" in results:
        ratios = {}
        for what in ("delivered", "accepted"):
            ours, theirs = ([getattr(each, what) for each in results[key]] for key in ("redis", "embedded"))
            ratios[what] = median(ours) / median(theirs)
            rounds = [mine / other for mine, other in zip(ours, theirs, strict=False)]
            measured = f"{ratios[what]:.2f} x (rounds {min(rounds):.2f} – {max(rounds):.2f})"
            wanted = f"≥ {RATIO} x, or the profile says why not"
            section.checks.append(Check(f"Redis / embedded, {what}", wanted, measured, ratios[what] >= RATIO))
        if min(ratios.values()) < RATIO:
            mix = next(mix for mix in mixes if mix.key == "redis")
            try:
                section.notes.append(uvloop.run(profile(root, engines, mix, options.messages)))
            except (PixiuError, OSError) as error:  # what was measured counts all the same
                section.notes.append(f"There is no profile: {error}")
    return section


def _trips(mixes: list[Mix], results: Results) -> Section:
    section = Section(
        "trips",
        "Round trips per send, with the share of commits",
        ["engine", "what", "in bulk", f"one at a time ({ALONE})"],
    )
    for mix in mixes:
        found = results[mix.key]
        for what in found[0].bulk:
            bulk, alone = (median(getattr(each, how)[what] for each in found) for how in ("bulk", "alone"))
            section.rows.append([mix.label, what, f"{bulk:.3f}", f"{alone:.2f}"])
            if what == "Redis: round trips":
                for how, value in (("in bulk", bulk), ("one at a time", alone)):
                    name = f"{mix.label}: round trips to Redis per send, {how}"
                    section.checks.append(Check(name, f"≤ {REDIS_MAX:g}", f"{value:.2f}", value <= REDIS_MAX))
            elif what == "Cassandra: logged batches":
                name = f"{mix.label}: logged batches per send"
                section.checks.append(Check(name, "≤ 1", f"{bulk:.3f}", bulk <= BATCHES_MAX))
    section.notes = [
        "What came with acks is in it. A commit adds two requests to Cassandra: how high ids go, how far it is."
    ]
    return section


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engines", description=__doc__)
    keys = [*(mix.key for mix in MIXES), SIZES, STORM]
    parser.add_argument("--only", nargs="+", choices=keys, metavar="KEY", help=f"some of: {', '.join(keys)}")
    parser.add_argument("--rounds", type=positive, default=3, help="as many as there is time for, at most these (3)")
    parser.add_argument("--minutes", type=positive, default=11, help="about how long all of it may take (11)")
    parser.add_argument("--messages", type=positive, default=20_000, help="per workload and round (20,000)")
    parser.add_argument("--quick", action="store_true", help="one round of 1,000 messages")
    frame.add_output_options(parser)
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.messages = 1, 1_000
    return options


if __name__ == "__main__":
    sys.exit(main())
