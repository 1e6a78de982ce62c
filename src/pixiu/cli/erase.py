"""``pixiu pipeline erase``: a user goes from stores, archive and the journal's bytes, and a report says so."""

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from pixiu.cli.calling import Caller, Token, Url
from pixiu.cli.queue.asking import Json, hours_of
from pixiu.cli.queue.output import print_json, print_rows, progress
from pixiu.cli.queue.redact import REDACTION_SECONDS
from pixiu.cli.served import ServedData, find_node
from pixiu.model.counted import counted
from pixiu.model.errors import Conflict, Unavailable

__all__ = ["erase"]

Row = dict[str, Any]


def erase(
    user: Annotated[str, typer.Argument(metavar="USER", help="The public id of the user.")],
    data: ServedData = None,
    url: Url = None,
    token: Token = None,
    keep: Annotated[
        str, typer.Option("--keep", metavar="T", help="Keep replaced files of the lake this long, for their readers.")
    ] = "7d",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    json: Json = False,
) -> None:
    """Erase a user for good: what was written, the profile, contacts, groups, the timeline, what waits.

    The others see that there was a message, and no more. The id is never given again. A server that runs is asked to
    do it; a data directory that nobody serves is opened for it. The report says where was looked, what was found, and
    what remains until when.
    """
    hours = hours_of(keep)
    directory, is_running = find_node(data, url)
    if not yes and not typer.confirm(f"Erase {user!r} for good? This cannot be undone"):
        raise typer.Exit(1)
    from pixiu.node.erasure import places_of_journal, places_of_stores

    with progress("erasing", None):
        if is_running:
            caller = Caller(url, token, data)
            erased: Row = caller.post("/v1/actions/erase_user", {"user": user}, timeout_seconds=REDACTION_SECONDS)
            redaction: Row = caller.post("/v1/admin/redact", {}, timeout_seconds=REDACTION_SECONDS)
        else:
            from dataclasses import asdict

            from pixiu.node import erase_stopped

            erased, report = erase_stopped(directory, user)
            redaction = asdict(report)
    places = [place.as_json() for place in (*places_of_stores(erased), *places_of_journal(redaction))]
    places += _lake(None if url is not None else directory, hours, is_running=is_running)
    places += _elsewhere(None if url is not None else directory)
    if json:
        print_json({"user": user, "number": erased["number"], "event_id": erased["event_id"], "places": places})
        return
    print_rows(
        ("place", "searched", "found", "removed", "remains"),
        [tuple(place[name] for name in ("place", "searched", "found", "removed", "remains")) for place in places],
    )
    print(f"erased {user} (number {erased['number']}) by event {erased['event_id']}")


def _row(place: str, searched: str, found: int | None = None, removed: int | None = None, remains: str = "") -> Row:
    return {"place": place, "searched": searched, "found": found, "removed": removed, "remains": remains}


def _lake(data: Path | None, hours: int, *, is_running: bool) -> list[Row]:
    """The archive and everything made of it, if there is any and nobody else writes to it."""
    if data is None:
        return [_row("archive", "not reached from here", remains="until the next run of the pipeline there")]
    if not (data / "pipeline" / "lake").is_dir():
        return [_row("archive", "there is none", 0, 0)]
    from pixiu.pipeline.session import require_packages

    try:
        require_packages()
        from pixiu.pipeline.lake.lock import LakeLock
        from pixiu.pipeline.lake.place import Place

        place = Place(data.resolve())
        with LakeLock(place.folder):
            rows = _blanked(data, hours)
            if not is_running:
                shutil.rmtree(place.work, ignore_errors=True)
    except (Conflict, Unavailable) as error:
        return [_row("archive", f"not now: {error}", remains="until the next run of the pipeline")]
    return rows


def _blanked(data: Path, hours: int) -> list[Row]:
    from pixiu.pipeline.lake.erasure import blank_lake, note_erasures
    from pixiu.pipeline.lake.place import Place
    from pixiu.pipeline.query import tables_of

    lake = Place(data.resolve()).lake
    note_erasures(data, lake)
    until = (datetime.now(UTC) + timedelta(hours=hours)).strftime("%Y-%m-%d %H:%M UTC")
    remains = "" if not hours else f"old files until {until}, then pixiu pipeline compact removes them"
    done = blank_lake(lake)
    for table in tables_of(data).values():
        table.vacuum(hours)
    return [
        _row(
            f"archive {each.table}", f"{counted(each.files, 'file')}, {each.rewritten} written again",
            each.rows, each.rows, remains if each.rewritten else "",
        )
        for each in done
    ]  # fmt: skip


def _elsewhere(data: Path | None) -> list[Row]:
    """What this command cannot reach, and how long it stays there."""
    index = "there is none"
    remains = ""
    if data is None or (data / "pipeline" / "search").is_dir():
        index, remains = "reads the table erasures", "until the next run of the search job"
    return [
        _row("search index", index, remains=remains),
        _row("followers", "the erasure reaches them by the log", remains="until pixiu queue redact is run on each"),
        _row("backups", "not known to Pixiu", remains="until you remove those made before this event"),
        _row("clients", "devices keep what they were shown", remains="until they sync and drop it"),
    ]
