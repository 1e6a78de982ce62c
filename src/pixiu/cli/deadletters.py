"""``pixiu dead-letters``: what was given up on, and giving it back."""

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer

from pixiu.cli.calling import Caller, Token, Url
from pixiu.cli.examples import examples
from pixiu.cli.queue.asking import DEFAULT_DATA, Json
from pixiu.cli.queue.output import moment_text, print_json, print_rows
from pixiu.cli.serve import Config, read_settings
from pixiu.config import Settings
from pixiu.model.errors import ConfigError, NotFound
from pixiu.runtime.datadir import find_server

__all__ = ["app"]

app = typer.Typer(
    help="What was given up on: list it, give it back.",
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None,
)  # fmt: skip

Data = Annotated[Path | None, typer.Option("--data", metavar="DIR", help="A data directory, served or not.")]


@app.command("list", epilog=examples("pixiu dead-letters list", "pixiu dead-letters list --json"))
def list_letters(url: Url = None, token: Token = None, data: Data = None, json: Json = False) -> None:
    """Every task that was given up on and not given back, oldest first."""
    letters = _stopped_letters(data) if _is_stopped(url, data) else _all_letters(Caller(url, token, data))
    if json:
        for letter in letters:
            print_json(letter)
        return
    rows = [
        (letter["id"], moment_text(letter["at"]), letter["what"], letter.get("user"), letter["reason"])
        for letter in letters
    ]
    print_rows(("id", "when", "what", "user", "why"), rows, empty="no dead letters")


@app.command(epilog=examples("pixiu dead-letters replay 42", "pixiu dead-letters replay --all"))
def replay(
    ids: Annotated[list[int] | None, typer.Argument(metavar="ID…", help="Which ones.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
    url: Url = None,
    token: Token = None,
    data: Data = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Give dead letters back to where they came from, to be tried again."""
    if bool(ids) == everything:
        raise ConfigError("name the IDs to give back, or say --all")
    if _is_stopped(url, data):
        settings = read_settings(config, {}, [])
        wanted = ids or [int(letter["id"]) for letter in _stopped_letters(data)]
        asyncio.run(_replay_stopped(data or DEFAULT_DATA, settings, wanted))
    else:
        caller = Caller(url, token, data)
        wanted = ids or [int(letter["id"]) for letter in _all_letters(caller)]
        for each in wanted:
            caller.post(f"/v1/admin/dead-letters/{each}/replay", {})
    print_json({"ids": [str(each) for each in wanted]}) if json else print(f"gave {len(wanted)} back")


def _is_stopped(url: str | None, data: Path | None) -> bool:
    """Is it a data directory that nobody serves?"""
    if url is not None and data is not None:
        raise ConfigError("say where once: --url or --data")
    directory = data or DEFAULT_DATA
    if url is not None or find_server(directory) is not None:
        return False
    if not (directory / "queue").is_dir():
        raise NotFound(f"there is no log in {directory}, and no server on it; name one with --data or --url")
    return True


def _stopped_letters(data: Path | None) -> list[dict[str, Any]]:
    from pixiu.node.admin.administration import stopped_dead_letters

    return list(stopped_dead_letters(data or DEFAULT_DATA))


def _all_letters(caller: Caller) -> list[dict[str, Any]]:
    letters: list[dict[str, Any]] = []
    while True:
        after = letters[-1]["id"] if letters else 0
        page = caller.get(f"/v1/admin/dead-letters?after={after}&limit=1000")
        letters += page["dead_letters"]
        if not page["has_more"]:
            return letters


async def _replay_stopped(data: Path, settings: Settings, wanted: list[int]) -> None:
    """A node for as long as it takes: what is given back is tried at once, as a start would do."""
    from pixiu.node.admin.administration import NodeAdministration
    from pixiu.node.embedded import EmbeddedNode

    async with EmbeddedNode(data, settings=settings) as node:
        administration = NodeAdministration(node.host)
        for each in wanted:
            await administration.replay(each)
