"""The promise, tried in one minute: `make demo`.

It starts a server, lets people chat over it, kills the server with SIGKILL twice while they do, and waits until every
device has everything. Then three independent programs audit the log, and a copy of it with one flipped bit must be
detected and repaired. The exit code is 0 only if nothing was lost, nothing arrived twice and all audits agree.

With `--here` the people chat over the server that `make serve` runs in this folder instead, and nothing is killed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING
from urllib.request import urlopen

import pixiu
from examples.demo.lines import GROUPS, ROOMS, make_cast
from examples.demo.people import Person, World
from examples.demo.proof import COUNTS, SparkAudit, audit_by_duckdb, audit_by_pixiu, corrupt_and_repair
from examples.demo.server import DemoServer
from examples.demo.tally import Tally
from pixiu.config.security import SecuritySettings
from pixiu.ports.authentication import Identity
from pixiu.runtime.clock import SystemClock
from pixiu.runtime.datadir import find_server
from pixiu.runtime.keys import Keyring
from pixiu.runtime.tokens import Tokens

if TYPE_CHECKING:
    from collections.abc import Callable

    from examples.demo.lines import Cast

HERE = Path("pixiu-data")
"""Where `make serve` keeps its data."""
DRAIN_SECONDS_MAX = 60.0
PROGRESS_SECONDS = 5.0
"""Between two lines of progress where the output is not a terminal."""
RESTLESS = 0.3
"""The share of people who go offline now and then."""


def main() -> int:
    """Run the demo. Exit code 1: a message was lost or arrived twice, or two audits differ."""
    options = _options()
    own = Path(tempfile.mkdtemp(prefix="pixiu-demo-"))
    try:
        return _visit(options, own) if options.here else _prove(options, own)
    except KeyboardInterrupt:
        print("\nstopped")
        return 1
    finally:
        shutil.rmtree(own, ignore_errors=True)


def _prove(options: argparse.Namespace, own: Path) -> int:
    began = time.monotonic()
    data = (options.data or own / "data").resolve()
    server = DemoServer(data, options.port)
    server.start()
    print(f"server     http://{server.address}/ (a user to look around with: --data {data})")
    print(
        f"people     {options.people}, for {options.seconds:.0f} s; the server is killed {options.kills} times",
        flush=True,
    )
    try:
        tally = asyncio.run(_chat(options, data, own / "devices", f"ws://{server.address}", server))
    finally:
        server.stop()
    spark = SparkAudit(_copy(data, own / "spark"))
    try:
        print("audit      Pixiu, DuckDB and Spark count the log, each by its own code", flush=True)
        report = audit_by_pixiu(data)
        audits: dict[str, dict[str, int] | str] = {"Pixiu": {name: int(report[name]) for name in COUNTS}}
        audits["DuckDB"] = audit_by_duckdb(_copy(data, own / "duckdb"), int(report["cut"]))
        print("corruption one bit is flipped in an old record of a copy of the log", flush=True)
        corruption = corrupt_and_repair(data, own / "corrupt")
        audits["Spark"] = spark.counts()
    finally:
        spark.stop()
    counted = {name: counts for name, counts in audits.items() if not isinstance(counts, str)}
    do_agree = all(counts == counted["Pixiu"] for counts in counted.values())
    lost, doubled = [*tally.missing(), *report["lost"]], [*tally.doubled, *report["duplicates"]]
    print()
    _table(audits)
    print(f"\n  server kills (kill -9)      {server.kills}")
    print(f"  messages sent by people     {_sent(tally):,}, refused {tally.counts['refused']:,}")
    print(f"  deliveries seen by people   {tally.counts['deliveries']:,}")
    print(f"  lost                        {len(lost)}")
    print(f"  doubled                     {len(doubled)}")
    print(f"  audits agree                {'yes' if do_agree else 'NO'}: {', '.join(counted)}")
    print(f"  flipped bit                 {corruption.where}")
    print(f"    detected                  {'yes' if corruption.is_detected else 'NO'}")
    print(f"    repaired                  {'yes, the copy equals the original' if corruption.is_repaired else 'NO'}")
    for row in [*lost, *doubled][:10]:
        print(f"  fault: {row}")
    for reason in sorted(tally.refusals)[:5]:
        print(f"  refused: {reason}")
    is_proved = bool(report["balanced"]) and do_agree and not lost and not doubled
    is_proved = is_proved and corruption.is_detected and corruption.is_repaired
    verdict = "proved: nothing lost, nothing doubled" if is_proved else "NOT proved"
    print(f"\n{verdict} ({time.monotonic() - began:.0f} s)")
    return 0 if is_proved else 1


def _table(audits: dict[str, dict[str, int] | str]) -> None:
    print("  " + "".join(f"{title:>12}" for title in ("audit by", *COUNTS)))
    for name, counts in audits.items():
        cells = f"   {counts}" if isinstance(counts, str) else "".join(f"{counts[count]:>12,}" for count in COUNTS)
        print(f"  {name:>12}{cells}")


def _visit(options: argparse.Namespace, own: Path) -> int:
    """People chat over the server that runs in this folder; its audit and the clients' tally must both be clean."""
    address = _server_here()
    if address is None:
        print(f"--here: no server for development runs on {HERE}; start one with: make serve", file=sys.stderr)
        return 2
    print(f"console    http://{address}/")
    print(f"charts     http://{address}/#/pipeline, within a minute or two", flush=True)
    tally = asyncio.run(_chat(options, HERE, own / "devices", f"ws://{address}", None))
    report = audit_by_pixiu(HERE)
    faults = [*tally.missing(), *tally.doubled, *report["lost"], *report["duplicates"]]
    _table({"Pixiu": {name: int(report[name]) for name in COUNTS}})
    for row in faults[:10]:
        print(f"  fault: {row}")
    is_clean = bool(report["balanced"]) and not faults
    print("balanced: nothing lost, nothing doubled" if is_clean else "NOT balanced")
    return 0 if is_clean else 1


def _server_here() -> str | None:
    """The address of the server for development that runs on this folder's data."""
    holder = find_server(HERE)
    if holder is None or holder.http is None:
        return None
    try:
        with urlopen(f"http://{holder.http}/console.json", timeout=5) as answer:
            return holder.http if json.load(answer)["dev"] else None
    except (OSError, ValueError, LookupError):
        return None


async def _chat(options: argparse.Namespace, data: Path, devices: Path, url: str, server: DemoServer | None) -> Tally:
    clock = SystemClock()
    random = Random(options.seed or clock.now_ms())
    tally = Tally(clock.now_ms() * 1000)  # numbers that no earlier demo on this server has used
    tokens = Tokens(Keyring(data, clock), clock, SecuritySettings())
    cast = make_cast(options.people, random)
    world = World(
        url=url,
        token_of=lambda user: tokens.issue(Identity(user, "web", "demo")),
        random=random,
        tally=tally,
        pace_seconds=options.pace,
        ends_at=0.0,
        people=[each.user for each in cast],
        stores=devices,
    )
    world.stores.mkdir(exist_ok=True)
    await _make_groups(world, cast)
    people = [Person(world, each, is_restless=random.random() < RESTLESS) for each in cast]
    world.ends_at = world.now() + options.seconds
    lives = [asyncio.create_task(person.live()) for person in people]
    others = [asyncio.create_task(_progress(world))]
    if server is not None:
        others.append(asyncio.create_task(_kills(world, server, options.kills, options.seconds)))
    try:
        await _until(lambda: world.now() >= world.ends_at, options.seconds + 1, [*lives, *others])
        await asyncio.gather(*others[1:])
        world.is_over.set()
        await _until(lambda: not tally.pending and world.online == len(people), DRAIN_SECONDS_MAX, lives)
        world.is_drained.set()
        await asyncio.gather(*lives)
    finally:
        for task in (*others, *lives):
            task.cancel()
        await asyncio.gather(*others, *lives, return_exceptions=True)
        _end_line()
    return tally


async def _kills(world: World, server: DemoServer, kills: int, seconds: float) -> None:
    """Kill the server at even distances within the given time."""
    for _ in range(kills):
        await asyncio.sleep(seconds / (kills + 1))
        pending = world.tally.pending
        took = await asyncio.to_thread(server.kill_and_restart)
        _end_line()
        print(
            f"kill -9    with {pending:,} deliveries under way; the server listens again after {took:.1f} s", flush=True
        )


async def _until(is_so: Callable[[], bool], seconds: float, tasks: list[asyncio.Task[None]]) -> None:
    """Wait for a condition or the time limit; raise the error of a task that fails meanwhile."""
    now = asyncio.get_running_loop().time
    limit = now() + seconds
    while not is_so() and now() < limit:
        await asyncio.sleep(0.05)
        for task in tasks:
            if task.done():
                task.result()


async def _make_groups(world: World, cast: list[Cast]) -> None:
    """Create a few groups. Their members are created with them: the server is one for development."""
    founder = cast[0].user
    async with pixiu.connect(world.url, world.token_of(founder), patience_seconds=30) as me:
        names = GROUPS[: max(1, min(len(GROUPS), len(cast) // 8))]
        for name in names:
            size = min(len(cast) - 1, world.random.randint(4, 30))
            members = {each.user for each in world.random.sample(cast[1:], size)}
            made = await me.create_group(name=name, members=sorted(members))
            world.groups[made.group] = {founder, *members}
    world.rooms = ROOMS[: 1 if len(cast) < 50 else len(ROOMS)]


def _sent(tally: Tally) -> int:
    return tally.counts["private messages"] + tally.counts["group messages"] + tally.counts["scheduled"]


async def _progress(world: World) -> None:
    """One line that renews itself on a terminal, or a line now and then."""
    is_terminal = sys.stdout.isatty()
    while True:
        await asyncio.sleep(0.5 if is_terminal else PROGRESS_SECONDS)
        left = max(world.ends_at - world.now(), 0)
        text = (
            f"chat       {left:3.0f} s left, {world.online} online, {_sent(world.tally):,} sent, "
            f"{world.tally.counts['deliveries']:,} delivered, {world.tally.pending:,} under way"
        )
        print(f"\r\x1b[K{text}" if is_terminal else text, end="" if is_terminal else "\n", flush=True)


def _end_line() -> None:
    if sys.stdout.isatty():
        print("\r\x1b[K", end="", flush=True)


def _copy(data: Path, folder: Path) -> Path:
    shutil.copytree(data, folder)
    return folder


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m examples.demo", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--people", type=int, default=200, help="how many people chat, at least 6 (200)")
    parser.add_argument("--seconds", type=float, default=25, help="how long they chat (25)")
    parser.add_argument("--pace", type=float, default=2.0, help="mean seconds between two actions of one person (2)")
    parser.add_argument("--kills", type=int, default=2, help="how often the server is killed meanwhile (2)")
    parser.add_argument("--port", type=int, default=0, help="the server's port; 0 picks a free one")
    parser.add_argument("--data", type=Path, help="keep the data in this new directory")
    parser.add_argument("--here", action="store_true", help="chat over the server that make serve runs here; no kills")
    parser.add_argument("--seed", type=int, default=0, help="who sends what to whom; 0 differs each time (0)")
    options = parser.parse_args()
    if options.people < 6:
        parser.error(f"--people {options.people}: at least 6 are needed")
    if options.seconds <= 0 or options.pace <= 0 or options.kills < 0:
        parser.error("--seconds and --pace must be above 0, --kills at least 0")
    if options.data is not None and options.data.exists() and any(options.data.iterdir()):
        parser.error(f"--data {options.data}: not empty; give a new directory")
    return options


if __name__ == "__main__":
    sys.exit(main())
