"""Options of commands that ask a server over HTTP."""

from typing import Annotated

import typer

__all__ = ["DEFAULT_URL", "Token", "Url"]

DEFAULT_URL = "http://127.0.0.1:8400"

Url = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", help=f"Where Pixiu serves HTTP.  [default: {DEFAULT_URL}, or as --data says]"),
]
Token = Annotated[
    str | None,
    typer.Option(
        "--token", metavar="TOKEN", envvar="PIXIU_TOKEN",
        help="An admin's token.  [default: one is made with the key in --data]",
    ),
]  # fmt: skip
