"""``pixiu queue serve``: a queue and nothing else."""

from pathlib import Path
from typing import Annotated

import typer

from pixiu.cli.examples import examples
from pixiu.cli.serve import Assignments, Config, Event, Flush, Follow, ReadyJson, SecretFile, read_settings, run_server
from pixiu.cli.serve import Data as DataDirectory

__all__ = ["register"]


def serve(
    data: DataDirectory = Path("pixiu-data"),
    port: Annotated[
        int | None,
        typer.Option("--port", help="Port; 0 picks a free one.  [default: 12301]", min=0, max=65535),
    ] = None,
    host: Annotated[str | None, typer.Option("--host", help="Address to listen on.  [default: 127.0.0.1]")] = None,
    flush: Flush = None,
    follow: Follow = None,
    secret_file: SecretFile = None,
    event: Event = 0,
    config: Config = None,
    assignments: Assignments = None,
    json: ReadyJson = False,
) -> None:
    """Start a queue; with --follow, a copy of another one, or of an smss master (smss://HOST:PORT)."""
    options = {
        "queue.port": port, "queue.host": host, "journal.flush": flush,
        "replication.secret_file": secret_file,
    }  # fmt: skip
    settings = read_settings(config, options, assignments or [])
    raise typer.Exit(
        run_server(settings, data=data, dev=False, http=False, follow=follow, follow_event=event, as_json=json)
    )


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "serve",
        epilog=examples(
            "pixiu queue serve",
            "pixiu queue serve --follow 127.0.0.1:12301 --secret-file secret --data copy --port 12302",
            "pixiu queue serve --follow smss://10.0.0.5:12301 --data pixiu-data",
        ),
    )(serve)
