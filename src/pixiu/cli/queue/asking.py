"""What every command that asks a queue shares: where it is, how to reach it, what to say when it fails."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from pixiu.machines.queue_wire.commands import KEY_NEEDED
from pixiu.model.errors import (
    ConfigError,
    Conflict,
    NotAllowed,
    NotFound,
    NotLeader,
    PixiuError,
    RequestError,
    Unavailable,
)
from pixiu.queue.client import Client, FateUnknown
from pixiu.runtime.datadir import find_server, read_node_key

__all__ = ["Data", "Json", "Port", "TopicName", "Url", "Where", "ask", "hours_of", "parse_duration_ms", "parse_headers"]

DEFAULT_ADDRESS = "127.0.0.1:12301"
DEFAULT_DATA = Path("pixiu-data")

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="HOST:PORT",
        help=f"Where the queue is; several with commas.  [default: {DEFAULT_ADDRESS}, or as --data says]",
    ),
]
Port = Annotated[int | None, typer.Option("--port", help="The queue's port on this machine.", min=1, max=65535)]
Data = Annotated[
    Path | None,
    typer.Option("--data", metavar="DIR", help="Ask the server that runs on this data directory."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, one value per line.")]
TopicName = Annotated[str, typer.Argument(metavar="TOPIC")]

Answer = TypeVar("Answer")

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)")


class Where:
    """The address to ask, and the node's key where a data directory gives it."""

    def __init__(self, url: str | None, port: int | None, data: Path | None, *, needs_key: bool = False) -> None:
        """``needs_key`` uses the key of the default directory as well, where its server is asked."""
        if sum(value is not None for value in (url, port, data)) > 1:
            raise ConfigError("say where the queue is once: --url, --port or --data")
        self.key: str | None = None
        if url is not None:
            self.address = url.removeprefix("tcp://")
        elif port is not None:
            self.address = f"127.0.0.1:{port}"
        elif data is not None:
            holder = find_server(data)
            if holder is None or holder.address is None:
                raise Unavailable(f"no queue runs on {data}; start one with: pixiu serve --data {data}")
            self.address = holder.address
            self.key = read_node_key(data)
        else:
            holder = find_server(DEFAULT_DATA)
            self.address = DEFAULT_ADDRESS if holder is None or holder.address is None else holder.address
            if needs_key and holder is not None:
                self.key = read_node_key(DEFAULT_DATA)


def ask(
    where: Where, work: Callable[[Client], Awaitable[Answer]], *, topic: str = "", answer_seconds: float = 10.0
) -> Answer:
    """Connect, do the work, close. Each address is tried once: a person is waiting."""

    async def run() -> Answer:
        async with Client(where.address, key=where.key, patience_s=0.0, response_timeout_s=answer_seconds) as client:
            return await work(client)

    try:
        return asyncio.run(run())
    except PixiuError as error:
        raise explained(error, where, topic) from error


def explained(error: PixiuError, where: Where, topic: str) -> PixiuError:
    """The same error in words that say what to do next."""
    text = str(error)
    if isinstance(error, FateUnknown):
        return error
    if isinstance(error, Unavailable) and text.startswith("cannot connect"):
        if "refused" in text:
            return Unavailable(f"no queue at {where.address}; start one with: pixiu serve")
        return Unavailable(f"{text}; is the address right?")
    if isinstance(error, NotLeader):
        return NotLeader(f"{where.address} is a follower; ask the leader (pixiu queue status names it)")
    if isinstance(error, NotFound) and text.endswith("topic not exist"):
        return NotFound(
            f"there is no topic {topic}; create it with: pixiu queue create {topic} (pixiu queue topics lists all)"
        )
    if isinstance(error, Conflict) and text.endswith("topic exist"):
        return Conflict(f"topic {topic} exists already")
    if isinstance(error, NotAllowed) and "reserved" in text:
        return NotAllowed(f"topic {topic} is Pixiu's own; name the data directory with --data to use its key")
    if KEY_NEEDED in text:
        return NotAllowed(
            f"{where.address} requires a key for this: name its data directory with --data DIR, or its node.key or its "
            "cluster's secret with --secret-file FILE"
        )
    if isinstance(error, RequestError) and "MUST be less than 128" in text:
        return RequestError("a topic's name has 1 to 128 bytes, without spaces, tabs and line ends")
    return error


def parse_duration_ms(text: str) -> int:
    """``500ms``, ``5s``, ``1h30m``, ``2d``; a bare number is seconds."""
    compact = text.strip().lower()
    if re.fullmatch(r"\d+(\.\d+)?", compact):
        compact += "s"
    parts = _DURATION.findall(compact)
    if not parts or "".join(number + unit for number, unit in parts) != compact.replace(" ", ""):
        raise typer.BadParameter(f"{text!r} is not a duration; write 500ms, 5s, 10m, 1h or 2d")
    return round(sum(float(number) * _UNITS_MS[unit] for number, unit in parts))


def hours_of(keep: str) -> int:
    """A time as whole hours, which is what Delta counts in; rounded up, so that nothing goes before its time."""
    return -(-parse_duration_ms(keep) // 3_600_000)


def parse_headers(texts: list[str] | None) -> dict[str, str]:
    """``k=v``, each once."""
    headers = {}
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{text!r} is not a header; write --header NAME=VALUE")
        headers[name] = value
    return headers
