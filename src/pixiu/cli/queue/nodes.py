"""``pixiu queue positions | status | promote``."""

import asyncio
import contextlib
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from pixiu.cli.examples import examples
from pixiu.cli.queue.asking import Data, Json, Port, TopicName, Url, Where, ask
from pixiu.cli.queue.output import print_facts, print_json, print_rows
from pixiu.model.errors import PixiuError
from pixiu.queue.client import Client, Position

__all__ = ["register"]

STATUS_TRIES = 50
STATUS_PAUSE_S = 0.2


def positions(
    topic: TopicName,
    forget: Annotated[str | None, typer.Option("--forget", metavar="NAME", help="Forget this subscriber.")] = None,
    url: Url = None,
    port: Port = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """List the named subscribers of a topic, and how far they are."""

    async def work(client: Client) -> list[Position]:
        if forget is not None:
            await client.set_position(topic, forget, -1)
        return await client.positions(topic)

    found = ask(Where(url, port, data), work, topic=topic)
    if json:
        for position in found:
            print_json(asdict(position))
        return
    rows = [(position.subscriber, position.event_id, position.live) for position in found]
    print_rows(("subscriber", "event", "connected"), rows, empty=f"no subscriber of {topic} has a position")


def status(url: Url = None, port: Port = None, data: Data = None, json: Json = False) -> None:
    """Tell the role of a queue, its followers, and how much it holds."""
    found = ask(Where(url, port, data), Client.status)
    if json:
        print_json(found)
        return
    tables = {key: value for key, value in found.items() if _is_table(value)}
    print_facts([(key, _flat(value)) for key, value in found.items() if key not in tables and value != ""])
    for key, rows in tables.items():
        columns = list(rows[0])
        print(f"{key}:")
        print_rows(columns, [[_flat(row.get(column)) for column in columns] for row in rows])


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, dict) for row in value)


def _flat(value: Any) -> str | int | float | bool | None:
    if isinstance(value, list):
        return ", ".join(str(_flat(item)) for item in value) or "-"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_flat(item)}" for key, item in value.items()) or "-"
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return str(value)


async def _unfenced_leader(client: Client) -> str:
    """The old leader's address if it is not fenced. A node with messaging restarts once promoted, so this retries."""
    for _ in range(STATUS_TRIES):
        with contextlib.suppress(PixiuError):
            found = await client.status()
            if found.get("role") == "leader":
                return str(found.get("unfenced_leader", ""))
        await asyncio.sleep(STATUS_PAUSE_S)
    return ""


def promote(
    force: Annotated[
        bool, typer.Option("--force", help="Also if it may lack messages, or the old leader cannot be fenced.")
    ] = False,
    secret_file: Annotated[
        Path | None,
        typer.Option(
            "--secret-file", metavar="FILE", help="With --url or --port: the cluster's secret, or its node.key."
        ),
    ] = None,
    url: Url = None,
    port: Port = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Make a follower the leader. The old leader is fenced first: it rejects every further write.

    Without --force the command fails if the old leader cannot be reached and may still accept messages.
    """

    async def work(client: Client) -> tuple[int, str]:
        epoch = await client.promote(force=force)
        return epoch, await _unfenced_leader(client)

    where = Where(url, port, data, needs_key=True)
    if secret_file is not None:
        from pixiu.node.processes.cluster_secrets import queue_key, read_secrets

        where.key = queue_key(read_secrets(secret_file), "")
    epoch, unfenced = ask(where, work)
    if json:
        print_json({"epoch": epoch, "unfenced_leader": unfenced})
    else:
        print(f"{where.address} leads now, in epoch {epoch}")
    if unfenced:
        typer.echo(
            f"warning: the old leader {unfenced} is not fenced yet: if it runs, it may accept messages that "
            "will be lost. Stop it, or restart it with --follow; this node keeps trying to fence it",
            err=True,
        )


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(
        "positions", epilog=examples("pixiu queue positions letters", "pixiu queue positions letters --forget reader")
    )(positions)
    app.command("status", epilog=examples("pixiu queue status", "pixiu queue status --url 127.0.0.1:12302 --json"))(
        status
    )
    app.command("promote", epilog=examples("pixiu queue promote --data copy"))(promote)
