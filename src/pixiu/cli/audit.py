"""``pixiu audit``: is every accepted message where it should be?"""

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from pixiu.cli.queue.asking import DEFAULT_DATA, Json
from pixiu.cli.queue.output import print_json, print_rows, progress
from pixiu.model.errors import ConfigError, NotFound, Unavailable
from pixiu.runtime.datadir import DataDirectory, find_server

__all__ = ["app"]

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def audit(
    data: Annotated[Path, typer.Option("--data", metavar="DIR", help="Audit this data directory.")] = DEFAULT_DATA,
    since: Annotated[
        str | None, typer.Option("--from", metavar="T", help="Only messages accepted at or after this time.")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--to", metavar="T", help="Only messages accepted before this time.")
    ] = None,
    json: Json = False,
) -> None:
    """Recompute from the log who should have got what, compare with the stores, and name what does not balance.

    T is a time like 2026-11-15T08:00 (of this machine's zone, or with its own), or milliseconds since the epoch.
    Exit code 1: the books do not balance.
    """
    at_least, before = _milliseconds("--from", since) or 0, _milliseconds("--to", until)
    if not (data / "queue").is_dir():
        raise NotFound(f"there is no log in {data}; name its data directory with --data")
    holder = find_server(data)
    if holder is not None:
        raise Unavailable(f"a node runs on {data} (pid {holder.pid}): ask it (node.audit()), or stop it first")
    from pixiu.node import audit_stopped

    with DataDirectory.open(data), progress("auditing", None) as bar:
        report = audit_stopped(data, bar.advance_to, at_least=at_least, before=before)
    if json:
        print_json(report.as_json())
    else:
        rows = [(name, getattr(report, name)) for name in ("accepted", "intended", "acked", "waiting", "expired")]
        rows += [("dead", report.dead), ("resent", report.resent)]
        if report.stored:
            rows.append(("stored only (large groups)", report.stored))
        print_rows(("what", "count"), rows)
        for title, found in (("lost", report.lost), ("twice", report.duplicates)):
            if found:
                named = [(str(row["message_id"]), _place(row), str(row["reason"])) for row in found]
                print_rows((title, "where", "why"), named)
        print("balanced" if report.balanced else "NOT balanced", f"(log through event {report.cut})")
    if not report.balanced:
        raise typer.Exit(1)


def _place(row: dict[str, object]) -> str:
    return f"user {row['user']} on {row['platform']}, {row['useq']}" if "user" in row else ""


def _milliseconds(option: str, text: str | None) -> int | None:
    if text is None:
        return None
    if text.isdecimal():
        return int(text)
    try:
        return int(datetime.fromisoformat(text).astimezone().timestamp() * 1000)
    except ValueError:
        raise ConfigError(f"{option} takes a time like 2026-11-15T08:00, or milliseconds, not {text!r}") from None
