"""A few hundred simulated people talk in private, in groups and in rooms: `make demo`.

People come to the server that `make serve` runs here; where there is none, it starts a node of its own. It prints where
the console is, lets people talk for a while (some go offline and come back), waits until everyone has everything, and
audits the node. The exit code is 0 if nothing was lost and nothing doubled, in the server's books and in those of the
clients.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pixiu
from examples.demo.books import Books
from examples.demo.lines import GROUPS, ROOMS, make_cast
from examples.demo.people import Person, World
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
START_SECONDS_MAX = 30.0
LINE_SECONDS = 5.0
"""How often progress is told where there is no terminal."""
RESTLESS = 0.3
"""The share of people who go offline now and then."""


def main() -> int:
    """Run the demo; 1 if anything was lost or doubled."""
    options = _options()
    here = None if options.data is not None or options.alone else _server_here()
    own = Path(tempfile.mkdtemp(prefix="pixiu-demo-"))
    try:
        return _run(options, options.data or own, own / "devices", here)
    except KeyboardInterrupt:
        print("\nstopped")
        return 1
    finally:
        shutil.rmtree(own, ignore_errors=True)


def _server_here() -> str | None:
    """The address of a server for development that runs in this folder."""
    holder = find_server(HERE)
    if holder is None or holder.http is None:
        return None
    try:
        with urlopen(f"http://{holder.http}/console.json", timeout=5) as answer:
            return holder.http if json.load(answer)["dev"] else None
    except (OSError, ValueError, LookupError):
        return None


def _run(options: argparse.Namespace, folder: Path, devices: Path, here: str | None) -> int:
    if here is None:
        node, address = _start_node(folder, options.port)
    else:
        node, address, folder = None, here, HERE
        print("people come to the server that runs here; its charts follow within a minute or two")
        print(f"charts    http://{address}/#/pipeline")
    try:
        print(f"console   http://{address}/")
        print(f"look in   {sys.executable} -m pixiu token you --data {folder}", flush=True)
        books = asyncio.run(_talk(options, folder, devices, f"ws://{address}"))
    finally:
        if node is not None:
            node.send_signal(signal.SIGTERM)
            node.wait(30)
    print("\nwhat people did")
    for what, count in sorted(books.counts.items()):
        print(f"  {what:<18} {count:>9,}")
    for reason in sorted(books.refusals)[:5]:
        print(f"    refused: {reason}")
    audit = _audit(folder)
    print("\nthe audit's balance")
    for what in ("accepted", "intended", "acked", "waiting", "expired", "dead", "resent"):
        print(f"  {what:<18} {audit[what]:>9,}")
    faults = [*books.missing(), *books.doubled[:5]]
    faults += [f"the audit says lost: {row}" for row in audit["lost"][:5]]
    faults += [f"the audit says twice: {row}" for row in audit["duplicates"][:5]]
    for fault in faults:
        print(f"  {fault}")
    is_balanced = bool(audit["balanced"]) and not faults
    print("\nbalanced: nothing lost, nothing doubled" if is_balanced else "\nNOT balanced")
    if options.data is not None:
        command = f"{sys.executable} -m pixiu pipeline"
        print(f"tables    {command} run --once --data {folder}; {command} report --data {folder}")
    return 0 if is_balanced else 1


def _start_node(folder: Path, port: int) -> tuple[subprocess.Popen[str], str]:
    words = [sys.executable, "-m", "pixiu", "serve", "--dev", "--no-pipeline", "--data", str(folder)]
    words += ["--port", str(port), "--queue-port", "0", "--set", "log.level=warning"]
    node = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert node.stdout is not None
    for text in node.stdout:
        if text.startswith("http listening on "):
            return node, text.split()[-1]
    raise SystemExit(f"the node ended with {node.wait(START_SECONDS_MAX)} before it listened")


async def _talk(options: argparse.Namespace, folder: Path, devices: Path, url: str) -> Books:
    clock = SystemClock()
    random = Random(options.seed or clock.now_ms())
    books = Books(clock.now_ms() * 1000)  # numbers that no other demo on this server has used
    tokens = Tokens(Keyring(folder, clock), clock, SecuritySettings())
    cast = make_cast(options.people, random)
    world = World(
        url=url,
        token_of=lambda user: tokens.issue(Identity(user, "web", "demo")),
        random=random,
        books=books,
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
    telling = asyncio.create_task(_tell(world))
    try:
        await _until(lambda: world.now() >= world.ends_at, options.seconds + 1, lives)
        world.is_over.set()
        everyone = len(people)
        await _until(lambda: not books.waiting and world.online == everyone, DRAIN_SECONDS_MAX, lives)
        world.is_drained.set()
        await asyncio.gather(*lives)
    finally:
        for task in (telling, *lives):
            task.cancel()
        await asyncio.gather(telling, *lives, return_exceptions=True)
    return books


async def _until(is_so: Callable[[], bool], seconds: float, lives: list[asyncio.Task[None]]) -> None:
    """Wait for something; a life that ends before its time is an error, and says so."""
    now = asyncio.get_running_loop().time
    limit = now() + seconds
    while not is_so() and now() < limit:
        await asyncio.sleep(0.05)
        for life in lives:
            if life.done():
                life.result()


async def _make_groups(world: World, cast: list[Cast]) -> None:
    """Groups of a few each. Their members exist from then on: the node is one for development."""
    founder = cast[0].user
    async with pixiu.connect(world.url, world.token_of(founder), patience_seconds=30) as me:
        names = GROUPS[: max(1, min(len(GROUPS), len(cast) // 8))]
        for name in names:
            size = min(len(cast) - 1, world.random.randint(4, 30))
            members = {each.user for each in world.random.sample(cast[1:], size)}
            made = await me.create_group(name=name, members=sorted(members))
            world.groups[made.group] = {founder, *members}
    world.rooms = ROOMS[: 1 if len(cast) < 50 else len(ROOMS)]


async def _tell(world: World) -> None:
    """How it goes, on one line; where there is no terminal, on a line now and then."""
    is_terminal = sys.stdout.isatty()
    while True:
        await asyncio.sleep(0.5 if is_terminal else LINE_SECONDS)
        counts, left = world.books.counts, max(world.ends_at - world.now(), 0)
        said = counts["private messages"] + counts["group messages"] + counts["said in rooms"]
        text = (
            f"{left:4.0f} s left   {world.online} online   {said:,} said   "
            f"{counts['deliveries'] + counts['heard in rooms']:,} delivered   {world.books.waiting:,} on their way"
        )
        print(f"\r\x1b[K{text}" if is_terminal else text, end="" if is_terminal else "\n", flush=True)


def _audit(folder: Path) -> dict[str, Any]:
    words = [sys.executable, "-m", "pixiu", "audit", "--data", str(folder), "--json"]
    outcome = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    if not outcome.stdout:
        raise SystemExit(f"the audit failed: {outcome.stderr.strip()}")
    return dict(json.loads(outcome.stdout))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.demo", description=__doc__)
    parser.add_argument("--people", type=int, default=300, help="how many talk (300)")
    parser.add_argument("--seconds", type=float, default=60, help="how long they talk (60)")
    parser.add_argument("--pace", type=float, default=3.0, help="seconds between two things that one person does (3)")
    parser.add_argument("--port", type=int, default=0, help="the node's port; 0 picks a free one")
    parser.add_argument("--data", type=Path, help="a node of its own, which keeps its data in this directory")
    parser.add_argument("--alone", action="store_true", help="a node of its own, whose data is removed at the end")
    parser.add_argument("--seed", type=int, default=0, help="who says what to whom; 0 is different each time (0)")
    options = parser.parse_args()
    if options.people < 6:
        parser.error("--people must be 6 or more")
    return options


if __name__ == "__main__":
    sys.exit(main())
