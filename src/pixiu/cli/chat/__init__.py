"""``pixiu chat``: talk in the terminal. On a terminal it is a screen, in a pipe it is lines."""

import asyncio
import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from pixiu.cli.calling import Url, find_url, make_token, own_server_tls
from pixiu.cli.examples import examples
from pixiu.model.errors import Unavailable

__all__ = ["app"]

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

PLATFORM = "terminal"

Token = Annotated[
    str | None,
    typer.Option(
        "--token", metavar="TOKEN", envvar="PIXIU_TOKEN",
        help="NAME's token.  [default: one is made with the key in --data]",
    ),
]  # fmt: skip


@app.command(epilog=examples("pixiu chat alice", "echo 'bob: hello' | pixiu chat alice"))
def chat(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Who you are.")],
    url: Url = None,
    token: Token = None,
    data: Annotated[Path | None, typer.Option("--data", metavar="DIR", help="Of the server to talk to.")] = None,
    stay: Annotated[
        float, typer.Option("--stay", metavar="SECONDS", min=0, help="As lines: listen on after the input has ended.")
    ] = 0,
) -> None:
    """Talk as NAME: conversations, groups, rooms. /help inside lists what you can do.

    Without a terminal it reads lines and prints messages.
    """
    address = find_url(url, data)
    given = token or make_token(address, url, data, name, platform=PLATFORM, device=f"chat-{os.getpid()}")
    is_screen = sys.stdout.isatty() and sys.stdin.isatty()
    try:
        has_failed = asyncio.run(_talk(address, given, stay=stay, is_screen=is_screen, is_own=url is None))
    except Unavailable as error:
        if not is_nobody_there(error):
            raise
        raise Unavailable(f"{error}; start one: make serve (or pixiu serve --dev)") from error
    if has_failed:
        raise typer.Exit(1)


def is_nobody_there(error: BaseException) -> bool:
    """Does nothing listen at the address? A server that refuses, or is silent, is not mended by another one."""
    cause = error.__cause__
    if not isinstance(cause, OSError):
        return False
    # Of a host with several addresses one error comes for all of them, with their texts.
    return isinstance(cause, ConnectionRefusedError) or f"[Errno {errno.ECONNREFUSED}]" in str(cause)


async def _talk(url: str, token: str | Callable[[], str], *, stay: float, is_screen: bool, is_own: bool) -> bool:
    """Connect first, so that what is wrong is said in a line and not on a screen."""
    from pixiu.sdk import connect

    connecting = (
        connect(url, token, tls=own_server_tls()) if is_own and url.startswith("https:") else connect(url, token)
    )
    async with connecting as me:
        if not is_screen:
            from pixiu.cli.chat.plain import PlainChat

            lines = PlainChat(me, stay_seconds=stay)
            await lines.run(sys.stdin)
            return lines.has_failed
        from pixiu.cli.chat.screen import ChatScreen

        screen = ChatScreen(me)
        await screen.run_async()
        if screen.error is not None:
            raise screen.error
    return False
