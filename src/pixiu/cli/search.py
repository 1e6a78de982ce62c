"""``pixiu search``: messages by what they say."""

import asyncio
import re
import sys
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from pixiu.cli.calling import Caller, Url, make_token
from pixiu.cli.examples import examples
from pixiu.cli.queue.asking import DEFAULT_DATA, Json
from pixiu.cli.queue.output import print_json
from pixiu.cli.shown import shown
from pixiu.model.errors import ConfigError, NotFound
from pixiu.runtime.datadir import find_server

__all__ = ["app"]

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


class Order(StrEnum):
    """What comes first."""

    NEWEST = "newest"
    RELEVANCE = "relevance"


@app.command(epilog=examples("pixiu search 'lunch from:alice'", "pixiu search '\"good morning\"' --user bob --limit 5"))
def search(
    query: Annotated[str, typer.Argument(metavar="QUERY", help='Words, "phrases", from: in: before: after:.')],
    user: Annotated[
        str | None, typer.Option("--user", metavar="USER", help="What this user may read.  [default: all, as operator]")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="Messages on one page.")] = 20,
    cursor: Annotated[str | None, typer.Option("--cursor", metavar="C", help="Go on behind a page.")] = None,
    order: Annotated[Order, typer.Option("--order", help="What comes first.")] = Order.NEWEST,
    url: Url = None,
    token: Annotated[
        str | None, typer.Option("--token", metavar="TOKEN", envvar="PIXIU_TOKEN", help="A user's token, for --url.")
    ] = None,
    data: Annotated[Path | None, typer.Option("--data", metavar="DIR", help="The server's data directory.")] = None,
    json: Json = False,
) -> None:
    """Find messages. Over --url it is what the token's user may read; with --data, what --user may, or all there is.

    The pipeline makes the index: pixiu pipeline run archive search --once
    """
    params: dict[str, Any] = {"q": query, "limit": limit, "order": order.value}
    if cursor is not None:
        params["cursor"] = cursor
    if url is not None:
        answer = _ask_server(url, token, data, user, params)
    elif token is not None:
        raise ConfigError("--token is for --url; --data needs none")
    else:
        answer = _ask_here(data or DEFAULT_DATA, user, params)
    if json:
        print_json(answer)
    else:
        _show(answer)


def _ask_server(url: str, token: str | None, data: Path | None, user: str | None, params: dict[str, Any]) -> Any:
    if token is None:
        if user is None:
            raise ConfigError("say who searches: --token TOKEN, or --user USER where the server's key is in --data")
        token = make_token(url, url, data, user, platform="cli", device="search")()
    elif user is not None:
        raise ConfigError("--token says who searches; leave --user out")
    return Caller(url, token, data).post("/v1/actions/search", params)


def _ask_here(data: Path, user: str | None, params: dict[str, Any]) -> Any:
    """The data directory: through its server if one runs, else by a node of our own; as operator, from the archive."""
    if not (data / "queue").is_dir():
        raise NotFound(f"there is no log in {data}; name its data directory with --data")
    if user is None:
        from pixiu.pipeline.session import require_packages

        require_packages()
        from pixiu.pipeline.search.archive import search_archive

        cursor = str(params.get("cursor", "0"))
        if not cursor.isdecimal():
            raise ConfigError(f"--cursor must be one of an earlier page, not {cursor!r}")
        return search_archive(
            data, params["q"], limit=params["limit"], cursor=int(cursor),
            is_by_relevance=params["order"] == Order.RELEVANCE,
        )  # fmt: skip
    holder = find_server(data)
    if holder is not None and holder.http is not None:
        # A user who is not there would be made by the token, where the server runs with --dev.
        Caller(None, None, data).post("/v1/actions/user", {"user": user})
        token = make_token("", None, data, user, platform="cli", device="search")()
        return Caller(None, token, data).post("/v1/actions/search", params)
    return asyncio.run(_ask_node(data, user, params))


async def _ask_node(data: Path, user: str, params: dict[str, Any]) -> Any:
    from pixiu.node import EmbeddedNode

    async with EmbeddedNode(data) as node:
        return await node.act(user, "search", **params)


def _show(answer: dict[str, Any]) -> None:
    """One message in two lines: who, where and when; what, with what was looked for marked."""
    begin, end = ("\x1b[1;33m", "\x1b[0m") if sys.stdout.isatty() else ("", "")
    for each in answer["messages"]:
        when = datetime.fromtimestamp(each["at"] / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
        where = f"# {each['group']}" if "group" in each else f"> {each['to']}"
        print(f"{when}  {each['from']} {where}  {each['message_id']}")
        print(f"    {_marked(each['text'], each['highlights'], begin, end)}")
    if not answer["messages"]:
        print("nothing found")
    if answer["has_more"]:
        print(f"there is more: --cursor {answer['cursor']}")


def _marked(text: str, spans: list[list[int]], begin: str, end: str) -> str:
    pieces, at = [], 0
    for low, high in spans:
        pieces += [_line(text[at:low]), begin, _line(text[low:high]), end]
        at = high
    return "".join([*pieces, _line(text[at:])])


def _line(text: str) -> str:
    """In one line: a break is a space here, as what is found is shown in short."""
    return shown(re.sub(r"\s", " ", text))
