"""``pixiu cluster``: a described cluster as supervised processes of this machine."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pixiu.cli.examples import examples
from pixiu.cli.queue.asking import DEFAULT_DATA as NODE_DATA
from pixiu.cli.queue.asking import Json, Where, ask
from pixiu.cli.queue.output import print_json, print_rows
from pixiu.cli.streams import announce
from pixiu.config.cluster import NODE_ROLE, ClusterFile, read_cluster_file
from pixiu.config.registry import RegistryAddress
from pixiu.model.counted import counted
from pixiu.model.errors import ConfigError, PixiuError, Unavailable
from pixiu.node.cluster.door import ask_supervisor
from pixiu.node.cluster.layout import read_state
from pixiu.node.cluster.plans import read_plan
from pixiu.node.cluster.splitting import flip_by_hand
from pixiu.node.cluster.supervisor import Supervisor, end_leftovers, take_lock
from pixiu.queue.client import Client

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["app"]

app = typer.Typer(
    add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None, no_args_is_help=True,
    help="Run a whole cluster on this machine, and inject faults into it.",
)  # fmt: skip

DEFAULT_DATA = Path("pixiu-cluster")
WRONG_USAGE = 2
DETACH_SECONDS = 180.0
JOIN_SECONDS = 45.0
"""A node looks for the registry for 15 s, then waits as long for its answer; then it says so itself."""
LOOK_SECONDS = 0.2
SPLIT_SECONDS = 180.0

Data = Annotated[
    Path | None,
    typer.Option("--data", metavar="DIR", help="Folder of the cluster.  [default: as FILE says, or pixiu-cluster]"),
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="As pixiu cluster status names it.")]


@app.command(epilog=examples("pixiu cluster join --registry zk://127.0.0.1:2181/pubsub --data pixiu-data"))
def join(
    registry: Annotated[str, typer.Option("--registry", metavar="zk://HOST:PORT[,…]/PATH", help="The registry.")],
    data: Annotated[
        Path, typer.Option("--data", metavar="DIR", help="The data directory of a running node.")
    ] = NODE_DATA,
    secret_file: Annotated[
        Path | None, typer.Option("--secret-file", metavar="FILE", help="The cluster's secret, in a file.")
    ] = None,
    json: Json = False,
) -> None:
    """Bring the log of a running node to a registry, as the cluster's first replica. Nobody is interrupted."""
    place = str(RegistryAddress.parse(registry))
    secret = "" if secret_file is None else str(secret_file.absolute())
    where = Where(None, None, data)

    async def work(client: Client) -> int:
        return await client.join(place, secret_file=secret)

    epoch = ask(where, work, answer_seconds=JOIN_SECONDS)
    if json:
        print_json({"registry": place, "epoch": epoch})
        return
    print(f"{where.address} leads the log of {place} now, in epoch {epoch}. Start the others:")
    print(f"  pixiu role queue --registry {place} --data DIR")


@app.command(
    epilog=examples("pixiu cluster up examples/cluster-3.toml", "pixiu cluster up examples/cluster-3.toml --detach")
)
def up(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Description of the cluster, such as cluster-3.toml.")],
    data: Data = None,
    detach: Annotated[bool, typer.Option("--detach", help="Return when it is up; it runs on.")] = False,
    json: Json = False,
) -> None:
    """Start everything that FILE describes, and keep it alive until Ctrl-C or pixiu cluster down."""
    cluster = read_cluster_file(file)
    folder = data or (Path(cluster.data) if cluster.data else DEFAULT_DATA)
    if detach:
        _detach(file, folder, cluster, json)
        return
    say: Callable[[str], object] = (lambda line: print(line, file=sys.stderr, flush=True)) if json else announce
    raise typer.Exit(asyncio.run(_run(folder, cluster, say, json)))


async def _run(folder: Path, cluster: ClusterFile, say: "Callable[[str], object]", json: bool) -> int:
    supervisor = Supervisor(folder, cluster, say=say)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, supervisor.wants_down.set)
    began = loop.time()
    try:
        await supervisor.up()
        if not supervisor.wants_down.is_set():
            if json:
                announce(dumps(await supervisor.status(), ensure_ascii=False))
            else:
                _say_up(cluster, supervisor, loop.time() - began)
        await supervisor.wants_down.wait()
        say("going down")
    finally:
        await supervisor.down()
    return 0


def _say_up(cluster: ClusterFile, supervisor: Supervisor, seconds: float) -> None:
    processes = counted(len(supervisor.children), "process", "processes")
    announce(f"\nCluster {cluster.name} is up: {processes} in {seconds:.1f} s")
    for line in _hints(cluster, supervisor):
        announce(line)


def _hints(cluster: ClusterFile, supervisor: Supervisor) -> list[str]:
    """Where to look, and what to try next."""
    folder, names = supervisor.folder, list(supervisor.children)
    at = "" if folder == DEFAULT_DATA else f" --data {folder}"
    addresses = {child.plan.role: child.plan.address for child in reversed(supervisor.children.values())}
    lines = [f"console:  http://{addresses[NODE_ROLE]}"] if NODE_ROLE in addresses else []
    if "gateway" in addresses:
        token = f"pixiu token alice --data {folder / 'nodes' / 'gateway'}"
        lines.append(f"chat:     http://{addresses['gateway']}  (with what this prints: {token})")
    metas = [plan for plan in cluster.roles if plan.role == "meta" and "links.admin_port" in plan.settings]
    lines += [f"map:      http://{plan.bind}:{plan.settings['links.admin_port']}" for plan in metas]
    lines.append(f"registry: {supervisor.layout.registry}")
    has_books = any(plan.role == "shard" for plan in cluster.roles)
    audit = [f"  pixiu audit --data {folder}"] if has_books else []
    victim = next((name for name in names if name.startswith("shard")), names[-1])
    return [
        *lines, "", "Try, in another terminal:", f"  pixiu cluster status{at}", f"  pixiu cluster kill {victim}{at}",
        f"  pixiu cluster freeze {victim}{at}", *audit, f"  pixiu cluster down{at}",
    ]  # fmt: skip


def _detach(file: Path, folder: Path, cluster: ClusterFile, json: bool) -> None:
    """Start a supervisor in the background, and show its lines until everything is up."""
    take_and_release(folder)
    log_path = folder / "supervisor.log"
    shown = log_path.stat().st_size if log_path.exists() else 0
    with log_path.open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "pixiu", "cluster", "up", str(file), "--data", str(folder)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    until = time.monotonic() + DETACH_SECONDS
    while True:
        shown = _show_more(log_path, shown, quiet=json)
        if process.poll() is not None:
            words = log_path.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
            reason = "".join(words).removeprefix("pixiu: ") or f"exit code {process.returncode}"
            kind = ConfigError if process.returncode == WRONG_USAGE else Unavailable
            raise kind(f"the cluster did not start: {reason}; more is in {log_path}")
        if time.monotonic() > until:
            raise Unavailable(f"the cluster is not up after {DETACH_SECONDS:g} s; see {log_path}")
        status = _try_status(folder)
        if status is not None and status["up"] and status["pid"] == process.pid:
            break
        time.sleep(LOOK_SECONDS)
    _show_more(log_path, shown, quiet=json)
    if json:
        print_json(status)


def take_and_release(folder: Path) -> None:
    """Say at once, and not from the background, that a cluster runs there already."""
    os.close(take_lock(folder))


def _show_more(path: Path, shown: int, *, quiet: bool) -> int:
    with path.open("rb") as log:
        log.seek(shown)
        more = log.read()
    if more and not quiet:
        sys.stdout.write(more.decode(errors="replace"))
        sys.stdout.flush()
    return shown + len(more)


def _try_status(folder: Path) -> dict[str, Any] | None:
    try:
        return ask_supervisor(folder, {"action": "status"})
    except PixiuError:
        return None


@app.command(epilog=examples("pixiu cluster status", "pixiu cluster status --json"))
def status(data: Data = None, json: Json = False) -> None:
    """Every process: role, partition, replica, state, pid, address."""
    folder = data or DEFAULT_DATA
    try:
        found = ask_supervisor(folder, {"action": "status"})
    except Unavailable:
        if json and read_state(folder):
            print_json({"name": read_state(folder).get("name"), "running": False, "up": False, "nodes": []})
            raise typer.Exit(1) from None
        raise
    if json:
        print_json(found)
        return
    columns = ("name", "role", "partition", "replica", "state", "detail", "pid", "address", "restarts")
    rows = [[row[column] for column in columns] for row in found["nodes"]]
    print_rows(columns, rows, spare=("role", "partition", "replica", "restarts"))  # the name has most of that
    if not found["registry_answers"]:
        print("the registry does not answer", file=sys.stderr)


def _act(action: str, name: str, data: Path | None, json: bool, **more: object) -> None:
    done = ask_supervisor(data or DEFAULT_DATA, {"action": action, "name": name, **more})
    if json:
        print_json(done)
    else:
        print(done["done"])


@app.command(epilog=examples("pixiu cluster kill shard-0-0"))
def kill(name: Name, data: Data = None, json: Json = False) -> None:
    """End a process at once (SIGKILL). It is started again, and heals."""
    _act("kill", name, data, json)


@app.command(epilog=examples("pixiu cluster freeze shard-0-0"))
def freeze(name: Name, data: Data = None, json: Json = False) -> None:
    """Pause a process (SIGSTOP): it stays registered, but does nothing."""
    _act("freeze", name, data, json)


@app.command(epilog=examples("pixiu cluster thaw shard-0-0"))
def thaw(name: Name, data: Data = None, json: Json = False) -> None:
    """Resume a frozen process (SIGCONT)."""
    _act("thaw", name, data, json)


@app.command(epilog=examples("pixiu cluster drain shard-0-0"))
def drain(
    name: Name,
    force: Annotated[bool, typer.Option("--force", help="Also the last one of its role and partition.")] = False,
    data: Data = None,
    json: Json = False,
) -> None:
    """Stop a process after it has handed over its work. Its folder stays; pixiu cluster start NAME starts it again."""
    _act("drain", name, data, json, force=force)


@app.command(epilog=examples("pixiu cluster start shard-0-0"))
def start(name: Name, data: Data = None, json: Json = False) -> None:
    """Start a process that was drained."""
    _act("start", name, data, json)


@app.command(epilog=examples("pixiu cluster split broker", "pixiu cluster split --plan plan.json --wait"))
def split(
    role: Annotated[str, typer.Argument(metavar="[ROLE]", help="One of: broker, router, relay.")] = "",
    plan: Annotated[
        Path | None, typer.Option("--plan", metavar="FILE", help="Do what pixiu pipeline plan has written there.")
    ] = None,
    to: Annotated[int | None, typer.Option("--to", metavar="N", help="Refuse unless it doubles to this.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Return when the grace is over, too.")] = False,
    registry: Annotated[
        str,
        typer.Option("--registry", metavar="zk://HOST:PORT[,…]/PATH", help="Flip where you started the new half."),
    ] = "",
    replicas: Annotated[
        int, typer.Option("--replicas", metavar="N", min=1, help="With --registry: so many each partition must have.")
    ] = 1,
    data: Data = None,
    json: Json = False,
) -> None:
    """Double a role's partitions while everything runs: start the new half, wait for it, flip the count."""
    if bool(role) == (plan is not None):
        raise ConfigError("name a role, or a plan with --plan FILE")
    if plan is not None:
        if registry or to is not None:
            raise ConfigError("--plan goes with neither --registry nor --to")
        read_plan(plan)  # what is wrong with it is said here
        request: dict[str, object] = {"action": "split", "plan": str(plan.absolute())}
        done = ask_supervisor(data or DEFAULT_DATA, request, seconds=SPLIT_SECONDS)
    elif registry:
        done = asyncio.run(flip_by_hand(RegistryAddress.parse(registry), role, replicas=replicas, to=to))
    else:
        request = {"action": "split", "role": role, "to": to}
        done = ask_supervisor(data or DEFAULT_DATA, request, seconds=SPLIT_SECONDS)
    if wait:
        time.sleep(max(0.0, done["clean_at"] / 1000 - time.time()))
    if json:
        print_json(done)
    else:
        print(done["done"])


@app.command(epilog=examples("pixiu cluster down"))
def down(data: Data = None, json: Json = False) -> None:
    """Stop everything, in order."""
    folder = data or DEFAULT_DATA
    try:
        ask_supervisor(folder, {"action": "down"})
    except Unavailable:
        lines = end_leftovers(folder)
        if not lines:
            raise
        for line in lines:
            print(line, file=sys.stderr if json else sys.stdout)
    else:
        _wait_for_end(folder)
    if json:
        print_json({"done": "down"})
    else:
        print("down")


def _wait_for_end(folder: Path) -> None:
    until = time.monotonic() + DETACH_SECONDS
    while time.monotonic() < until:
        try:
            take_and_release(folder)
        except PixiuError:
            time.sleep(LOOK_SECONDS)
        else:
            return
    raise Unavailable(f"the cluster in {folder} does not go down")
