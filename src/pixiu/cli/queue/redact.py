"""``pixiu queue redact``: what erased users wrote becomes zeros, in place."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer

from pixiu.cli.examples import examples
from pixiu.cli.options import Token, Url
from pixiu.cli.queue.asking import DEFAULT_DATA, Json
from pixiu.cli.queue.output import bytes_text, print_json, print_rows, progress
from pixiu.cli.served import ServedData, find_node
from pixiu.model.counted import counted
from pixiu.runtime.datadir import DataDirectory

__all__ = ["redact", "redaction_of", "register"]

REDACTION_SECONDS = 3600.0


def redact(
    data: ServedData = None,
    url: Url = None,
    token: Token = None,
    json: Json = False,
) -> None:
    """Blank what erased users wrote in the journal, the topic logs and the stores' files of one node.

    Event ids, lengths and message ids stay; the log can be read, audited and rebuilt from as before. Whom to blank is
    in the log: run it on the leader and on every follower. Doing it again does nothing; a run that was killed is
    finished by the next one, or by the next start.
    """
    report = redaction_of(data, url, token)
    where = url or str(data or DEFAULT_DATA)
    if json:
        print_json({"where": where, **report})
        return
    if report.get("log"):
        _print_kafka(report)
        return
    print_rows(
        ("where", "searched", "blanked"),
        [
            ("journal", counted(report["segments"], "segment"), report["messages"]),
            ("topic logs", counted(report["topic_files"], "file"), report["topic_messages"]),
            ("waiting for their time", "delays", report["delays"]),
        ],
    )
    before = "; a redaction that had been interrupted was finished first" if report["finished_before"] else ""
    users = counted(len(report["users"]), "erased user")
    print(f"{users}, {bytes_text(report['bytes'])} written again in {where}{before}")


def _print_kafka(report: dict[str, Any]) -> None:
    """A log that cannot be blanked: what of erased users is there, and for how long."""
    print_rows(("topic", "keeps it"), list(report["kept_for"].items()) if report["kept"] else [])
    print(
        f"{counted(len(report['users']), 'erased user')}; the log is {report['log']}, and Kafka changes no record: "
        f"{report['kept']} of {report['records']} hold what they wrote. The stores' files were written again without it"
    )


def redaction_of(data: Path | None, url: str | None, token: str | None) -> dict[str, Any]:
    """Redact by the server that runs, or by ourselves where none does."""
    directory, is_running = find_node(data, url)
    if is_running:
        from pixiu.cli.calling import Caller

        with progress("redacting", None):
            answer = Caller(url, token, data).post("/v1/admin/redact", {}, timeout_seconds=REDACTION_SECONDS)
            return dict(answer)
    from pixiu.node import redact_stopped

    with DataDirectory.open(directory), progress("redacting", None):
        return asdict(redact_stopped(directory))


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("redact", epilog=examples("pixiu queue redact --data pixiu-data"))(redact)
