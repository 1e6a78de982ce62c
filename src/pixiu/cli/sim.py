"""``pixiu sim``: the whole platform in simulated worlds, seed after seed."""

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pixiu.cli.examples import examples
from pixiu.cli.queue.asking import Json
from pixiu.cli.queue.output import print_json, print_rows, progress

if TYPE_CHECKING:
    from pixiu.testing.seeds import Explanation, Outcome, Summary

__all__ = ["app"]

STOPPED = 130
"""The exit code of what Ctrl-C has ended."""

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command(epilog=examples("pixiu sim --seeds 20", "pixiu sim --world log --seeds 1 --first 7 --trace"))
def sim(
    seeds: Annotated[int, typer.Option("--seeds", metavar="N", min=1, help="How many worlds to run.")] = 100,
    first: Annotated[int, typer.Option("--first", metavar="S", min=0, help="The first seed.")] = 0,
    jobs: Annotated[
        int | None, typer.Option("--jobs", metavar="J", min=1, help="Processes.  [default: one per core]")
    ] = None,
    mutant: Annotated[
        str, typer.Option("--mutant", metavar="NAME", help="Put this error back, and see it caught.")
    ] = "",
    list_mutants: Annotated[bool, typer.Option("--list-mutants", help="List the errors that can be put back.")] = False,
    keep: Annotated[
        str | None, typer.Option("--keep", metavar="LINES", help="With one seed: keep only these lines of its script.")
    ] = None,
    world: Annotated[
        str,
        typer.Option(
            "--world",
            metavar="messages|log|shards|cluster",
            help="The whole platform, the replicated log, a shard with its gateways, or all roles of a cluster.",
        ),
    ] = "",
    trace: Annotated[bool, typer.Option("--trace", help="With one seed: print everything that happens.")] = False,
    json: Json = False,
) -> None:
    """Run the real queue, stores and roles on simulated disks, networks and clocks, and check every promise.

    A seed is a world: who there is, what they do, what breaks. The same seed is the same run, step for step.
    Exit code 1: a seed failed; it is named, with the shortest script that still fails. 130: Ctrl-C; what held
    so far is told.
    """
    runs_of = _runs_of()
    worlds: dict[str, dict[str, str]] = {name: each.list_mutants() for name, each in runs_of.items()}
    if world and world not in worlds:
        raise typer.BadParameter(f"there is no world {world!r}; there are {', '.join(worlds)}", param_hint="--world")
    known = worlds[world] if world else {name: words for each in worlds.values() for name, words in each.items()}
    if list_mutants:
        if json:
            print_json(known)
        else:
            print_rows(("mutant", "what it does"), known.items())
        return
    if mutant and mutant not in known:
        raise typer.BadParameter(f"there is no mutant {mutant!r}; --list-mutants names them", param_hint="--mutant")
    kept = _kept(keep)
    if seeds != 1 and (kept is not None or trace):
        raise typer.BadParameter("give one seed: --seeds 1 --first S", param_hint="--keep" if keep else "--trace")
    # A mutant is an error of one world, and names it.
    world = world or next((name for name, mutants in worlds.items() if mutant in mutants), "messages")
    runs = runs_of[world]
    if trace:
        for line in runs.trace_of(first, mutant, keep=kept):
            print(line)
    with progress("simulating", seeds) as bar:
        summary = runs.run_seeds(
            range(first, first + seeds), mutant=mutant, jobs=jobs or os.cpu_count() or 1, keep=kept,
            on_done=lambda count: bar.advance_to(count, seeds),
        )  # fmt: skip
    failed = None if summary.failed is None else _explained(runs, summary.failed, mutant, kept, world)
    if json:
        print_json({"first": first, "mutant": mutant, "world": world, **_numbers(summary, failed)})
    else:
        print(summary if failed is None else failed)
    if failed is not None:
        raise typer.Exit(1)
    if summary.stopped_of:
        raise typer.Exit(STOPPED)


def _numbers(summary: "Summary", failed: "Explanation | None") -> dict[str, object]:
    """For programs."""
    row = None if failed is None else {
        "seed": failed.seed, "failure": failed.failure, "script": failed.script, "replay": failed.replay,
    }  # fmt: skip
    return {**summary.numbers(), "stopped": bool(summary.stopped_of), "failed": row}


def _explained(runs: Any, failed: "Outcome", mutant: str, kept: list[int] | None, world: str) -> "Explanation":
    """With a script as short as it gets; whoever cannot wait for that gets the seed."""
    from pixiu.testing.seeds import Explanation

    try:
        explained: Explanation = runs.explain(failed.seed, mutant, keep=kept)
    except KeyboardInterrupt:
        replay = f"pixiu sim --world {world} --seeds 1 --first {failed.seed}" + (
            f" --mutant {mutant}" if mutant else ""
        )
        return Explanation(failed.seed, failed.failure, ("stopped before its script was shortened",), replay)
    return explained


def _runs_of() -> dict[str, Any]:
    """The worlds that there are."""
    from pixiu.testing.cluster import runs as cluster_runs
    from pixiu.testing.messaging import runs as messaging_runs
    from pixiu.testing.replication import runs as replication_runs

    return {
        "messages": messaging_runs, "log": replication_runs, "shards": cluster_runs.SHARDS,
        "cluster": cluster_runs.CLUSTERS,
    }  # fmt: skip


def _kept(text: str | None) -> list[int] | None:
    """The numbers of lines, or none."""
    if text is None:
        return None
    parts = [] if text == "none" else text.split(",")
    if not all(part.strip().isdecimal() for part in parts):
        raise typer.BadParameter(f"write numbers like 3,17,31, or none, not {text!r}", param_hint="--keep")
    return [int(part) for part in parts]
