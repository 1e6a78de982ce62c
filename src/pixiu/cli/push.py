"""``pixiu push``: bodies to users' platforms, as gomsg's Push does it."""

import json as json_module
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from pixiu.cli.calling import Caller, Token, Url
from pixiu.cli.examples import examples
from pixiu.cli.queue.asking import Json
from pixiu.cli.queue.output import print_json
from pixiu.model.errors import ConfigError

__all__ = ["app"]

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command(
    epilog=examples(
        "pixiu push alice bob --text 'the shop is open'",
        "pixiu push alice --text 'it is on its way' --platforms ios,android --send-id order-17",
    )
)
def push(
    users: Annotated[list[str] | None, typer.Argument(metavar="USER…", help="Public ids.")] = None,
    text: Annotated[list[str] | None, typer.Option("--text", help="What to push; repeatable.")] = None,
    platforms: Annotated[
        str | None, typer.Option("--platforms", metavar="LIST", help="Only these, with commas.")
    ] = None,
    without: Annotated[str | None, typer.Option("--without", metavar="LIST", help="All but these.")] = None,
    options: Annotated[
        int, typer.Option("--options", min=0, max=7, help="1 needs an ack + 2 kept for later + 4 notifies.")
    ] = 7,
    send_id: Annotated[
        str | None, typer.Option("--send-id", metavar="ID", help="A repeat under this id is pushed once.")
    ] = None,
    request: Annotated[
        str | None, typer.Option("--request", metavar="FILE", help="A whole PushRequest as JSON; - is stdin.")
    ] = None,
    url: Url = None,
    token: Token = None,
    data: Annotated[Path | None, typer.Option("--data", metavar="DIR", help="Of the server to ask.")] = None,
    json: Json = False,
) -> None:
    """Push texts to users, on all their platforms or on some."""
    if request is not None:
        if users or text:
            raise ConfigError("say it once: USER… with --text, or --request")
        content = _read(request)
    elif users and text:
        content = {"uids": users, "msg_bodies": [{"text": each} for each in text], "msg_options": options}
        config = {
            "platforms": _words("--platforms", platforms),
            "without_platforms": _words("--without", without),
        }
        content["platform_config"] = {name: words for name, words in config.items() if words}
    else:
        raise ConfigError("name USERs and say --text, or give a whole --request")
    if send_id is not None:
        content["send_id"] = send_id
    answer = Caller(url, token, data).post("/v1/push", content)
    if json:
        print_json(answer)
    else:
        for message_id in answer["message_ids"]:
            print(message_id)


def _words(option: str, text: str | None) -> list[str]:
    """Names with commas. An option that names nobody is a slip: without it everybody is meant."""
    words = [word.strip() for word in (text or "").split(",") if word.strip()]
    if text is not None and not words:
        raise ConfigError(f"{option} names no platform; leave it out to push to all")
    return words


def _read(name: str) -> dict[str, Any]:
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
        content = json_module.loads(text)
    except (OSError, ValueError) as error:
        raise ConfigError(f"--request {name} cannot be read as JSON: {error}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"--request {name} must be a JSON object")
    return content
