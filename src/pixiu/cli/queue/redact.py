"""``pixiu queue redact``: what erased users wrote becomes zeros, in place."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from pixiu.cli.options import Token, Url
from pixiu.cli.queue.asking import DEFAULT_DATA, Json
from pixiu.cli.queue.output import bytes_text, print_json, print_rows, progress
from pixiu.model.errors import ConfigError, NotFound, Unavailable
from pixiu.runtime.datadir import DataDirectory, find_server

__all__ = ["redact", "redaction_of", "register"]

REDACTION_SECONDS = 3600.0


def redact(
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="DIR", help="Of this data directory, served or not.  [default: pixiu-data]"),
    ] = None,
    url: Url = None,
    token: Token = None,
    json: Json = False,
) -> None:
    """Blank what erased users wrote in the journal, the topic logs and the stores' files of one node.

    Event ids, lengths and message ids stay; the log can be read, audited and rebuilt from as before. Whom to blank is
    in the log: run it on the leader and on every follower. Doing it again does nothing; a run that was killed is
    finished by the next one, or by the next start.
    """
    if url is not None and data is not None:
        raise ConfigError("say where once: --url or --data")
    where = url or str(data or DEFAULT_DATA)
    report = redaction_of(data, url, token)
    if json:
        print_json({"where": where, **report})
        return
    print_rows(
        ("where", "searched", "blanked"),
        [
            ("journal", f"{report['segments']} segments", report["messages"]),
            ("topic logs", f"{report['topic_files']} files", report["topic_messages"]),
            ("waiting for their time", "delays", report["delays"]),
        ],
    )
    before = "; a redaction that had been interrupted was finished first" if report["finished_before"] else ""
    print(f"{len(report['users'])} erased users, {bytes_text(report['bytes'])} written again in {where}{before}")


def redaction_of(data: Path | None, url: str | None, token: str | None) -> dict[str, Any]:
    """Redact by the server that runs, or by ourselves where none does."""
    directory = data or DEFAULT_DATA
    holder = None if url is not None else find_server(directory)
    if holder is not None and holder.http is None:
        raise Unavailable(f"a node without HTTP runs on {directory} (pid {holder.pid}); stop it first")
    if url is not None or holder is not None:
        from pixiu.cli.calling import Caller

        with progress("redacting", None):
            answer = Caller(url, token, data).post("/v1/admin/redact", {}, timeout_seconds=REDACTION_SECONDS)
            return dict(answer)
    if not (directory / "queue").is_dir():
        raise NotFound(f"there is no queue in {directory}; name its data directory with --data")
    from pixiu.node import redact_stopped

    with DataDirectory.open(directory), progress("redacting", None):
        return asdict(redact_stopped(directory))


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("redact")(redact)
