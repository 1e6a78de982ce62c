"""``pixiu audit``: is every accepted message where it should be?"""

import asyncio
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from pixiu.cli.calling import Caller, Token, Url
from pixiu.cli.examples import examples
from pixiu.cli.queue.asking import DEFAULT_DATA, Json
from pixiu.cli.queue.output import print_json, print_rows, progress
from pixiu.model.errors import ConfigError, NotFound, Unavailable
from pixiu.runtime.datadir import DataDirectory, find_server

__all__ = ["app"]

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

AUDIT_SECONDS = 610.0
"""A server gives up a little earlier, and says so."""

_COUNTS = ("accepted", "intended", "acked", "waiting", "expired", "dead", "resent", "histories")


@app.command(epilog=examples("pixiu audit", "pixiu audit --from 2026-11-15T08:00 --json"))
def audit(
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            metavar="DIR",
            help="Audit this data directory, served or not, or the cluster of this folder.  [default: pixiu-data]",
        ),
    ] = None,
    url: Url = None,
    registry: Annotated[
        str | None,
        typer.Option("--registry", metavar="zk://HOST:PORT[,…]/PATH", help="Audit the shards of a cluster, added up."),
    ] = None,
    token: Token = None,
    since: Annotated[
        str | None, typer.Option("--from", metavar="T", help="Only messages accepted at or after this time.")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--to", metavar="T", help="Only messages accepted before this time.")
    ] = None,
    json: Json = False,
) -> None:
    """Recompute from the log who should have got what, compare with inboxes and histories, and name what differs.

    A server that runs on --data, or at --url, is asked for it. T is a time like 2026-11-15T08:00 (of this machine's
    zone, or with its own), or milliseconds since the epoch. Exit code 1: the books do not balance.
    """
    if sum(place is not None for place in (url, data, registry)) > 1:
        raise ConfigError("say where once: --url, --data or --registry")
    at_least, before = _milliseconds("--from", since) or 0, _milliseconds("--to", until)
    if before is not None and at_least >= before:
        raise ConfigError(f"--from must be before --to: there is nothing between {since} and {until}")
    report = _report(data, url, registry, token, at_least, before)
    if json:
        print_json(report)
    else:
        _print(report)
    if not report["balanced"]:
        raise typer.Exit(1)


def _report(
    data: Path | None, url: str | None, registry: str | None, token: str | None, at_least: int, before: int | None
) -> dict[str, Any]:
    if registry is not None:
        return _summed(registry, at_least, before)
    directory = data or DEFAULT_DATA
    if url is None and (found := _registry_of(directory)) is not None:
        return _summed(found, at_least, before)
    holder = None if url is not None else find_server(directory)
    if holder is not None and holder.http is None:
        raise Unavailable(
            f"a node without HTTP runs on {directory} (pid {holder.pid}): a program asks it with node.audit(); "
            "or stop it first"
        )
    if url is not None or holder is not None:
        return _asked(Caller(url, token, data), at_least, before)
    return _stopped(directory, at_least, before)


def _registry_of(folder: Path) -> str | None:
    """Where the cluster that runs in a folder is registered; None for a folder that is none of a cluster."""
    from pixiu.node.cluster.layout import STATE

    if not (folder / STATE).is_file():
        return None
    from pixiu.node.cluster.door import ask_supervisor

    return str(ask_supervisor(folder, {"action": "status"})["registry"])


def _summed(registry: str, at_least: int, before: int | None) -> dict[str, Any]:
    """The reports of a cluster's shards, added up."""
    from pixiu.config.registry import RegistryAddress
    from pixiu.node.processes.gateway.audit import audit_cluster

    with progress("auditing", None):
        return asyncio.run(audit_cluster(RegistryAddress.parse(registry), at_least=at_least, before=before))


def _asked(caller: Caller, at_least: int, before: int | None) -> dict[str, Any]:
    """The report of a server that runs."""
    query = f"?from={at_least}" + ("" if before is None else f"&to={before}")
    with progress("auditing", None):
        return dict(caller.get(f"/v1/admin/audit{query}", timeout_seconds=AUDIT_SECONDS))


def _stopped(data: Path, at_least: int, before: int | None) -> dict[str, Any]:
    """The report of a data directory that nobody serves."""
    if not (data / "queue").is_dir():
        raise NotFound(f"there is no log in {data}; name its data directory with --data, or a server with --url")
    from pixiu.node import audit_stopped

    with DataDirectory.open(data), progress("auditing", None) as bar:
        return audit_stopped(data, bar.advance_to, at_least=at_least, before=before).as_json()


def _print(report: dict[str, Any]) -> None:
    rows = [(name, report[name]) for name in _COUNTS]
    if report["stored"]:
        rows.append(("stored only (large groups)", report["stored"]))
    print_rows(("what", "count"), rows)
    for title, found in (("lost", report["lost"]), ("twice", report["duplicates"])):
        if found:
            named = [(str(row["message_id"]), _place(row), str(row["reason"])) for row in found]
            print_rows((title, "where", "why"), named)
    for row in report.get("shards", ()):
        print(f"shard {row['shard']} by {row['name']}: {'balanced' if row['balanced'] else 'NOT balanced'}")
    for shard in report.get("missing", ()):
        print(f"shard {shard}: no replica leads it")
    print("balanced" if report["balanced"] else "NOT balanced", f"(log through event {report['cut']})")


def _place(row: dict[str, object]) -> str:
    if "platform" in row:
        return f"user {row['user']} on {row['platform']}, {row['useq']}"
    return next((f"{kind} {row[kind]}" for kind in ("user", "group") if kind in row), "")


def _milliseconds(option: str, text: str | None) -> int | None:
    if text is None:
        return None
    if text.isdecimal():
        return int(text)
    try:
        return int(datetime.fromisoformat(text).astimezone().timestamp() * 1000)
    except ValueError:
        raise ConfigError(f"{option} takes a time like 2026-11-15T08:00, or milliseconds, not {text!r}") from None
