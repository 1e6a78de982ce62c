"""``pixiu verify``: do two copies of a log hold the same messages?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pixiu.cli.examples import examples
from pixiu.cli.queue.asking import Json
from pixiu.cli.queue.output import print_json, print_rows, progress
from pixiu.model.counted import counted

if TYPE_CHECKING:
    from pixiu.node.verifying import Verified

__all__ = ["app"]

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

SHOWN_MAX = 20


@app.command(epilog=examples("pixiu verify pixiu-data restored", "pixiu verify pixiu-data 127.0.0.1:12302"))
def verify(
    here: Annotated[str, typer.Argument(metavar="DIR|HOST:PORT", help="One copy: a data directory, or a leader.")],
    there: Annotated[str, typer.Argument(metavar="DIR|HOST:PORT", help="The other.")],
    secret_file: Annotated[
        Path | None,
        typer.Option("--secret-file", metavar="FILE", help="For HOST:PORT: the cluster's secret, or its node.key."),
    ] = None,
    json: Json = False,
) -> None:
    """Compare two copies of a log by a checksum per conversation and topic: a replica, a restored backup, a moved node.

    A directory is only read, whether a server runs on it or not. Both are read to the last event that both have
    committed. Exit code 1: they differ, or they have no event in common and nothing was compared.
    """
    from pixiu.node.processes.cluster_secrets import queue_key, read_secrets
    from pixiu.node.verifying import verify as compare

    with progress("comparing", None) as bar:
        found = compare(here, there, bar.advance_to, key=queue_key(read_secrets(secret_file), ""))
    if json:
        print_json(
            {
                "through": found.through,
                "records": found.records,
                "conversations": found.conversations,
                "topics": found.topics,
                "differences": [
                    {"conversation": each.conversation, "here": _as_json(each.here), "there": _as_json(each.there)}
                    for each in found.differences
                ],
                "equal": bool(found.through) and not found.differences,
            }
        )
    else:
        rows = [(each.conversation, _text(each.here), _text(each.there)) for each in found.differences[:SHOWN_MAX]]
        if rows:
            print_rows(("conversation or topic", here, there), rows)
        if len(found.differences) > SHOWN_MAX:
            print(f"and {len(found.differences) - SHOWN_MAX} more (--json lists all)")
        print(_summary(found))
    if found.differences or not found.through:
        raise typer.Exit(1)


def _summary(found: Verified) -> str:
    if not found.through:
        return "nothing was compared: one of the logs has no event"
    count = len(found.differences)
    said = f"NOT equal: {count} {'differs' if count == 1 else 'differ'}" if count else "equal"
    what = f"{counted(found.conversations, 'conversation')}, {counted(found.topics, 'topic')}"
    return f"{said} ({what}, through event {found.through})"


def _text(checksum: Any) -> str:
    return "none" if checksum is None else f"{counted(checksum.records, 'record')}, newest event {checksum.newest}"


def _as_json(checksum: Any) -> dict[str, object] | None:
    if checksum is None:
        return None
    return {"records": checksum.records, "newest": checksum.newest, "digest": checksum.digest.hex()}
