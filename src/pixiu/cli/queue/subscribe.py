"""``pixiu queue sub``: read a topic."""

import asyncio
import base64
import sys
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from pixiu.cli.examples import examples
from pixiu.cli.queue.asking import Data, Json, Port, TopicName, Url, Where, ask, parse_duration_ms
from pixiu.cli.queue.output import moment_text, print_json
from pixiu.cli.shown import shown
from pixiu.model.counted import counted
from pixiu.queue.client import Client, Delivery
from pixiu.queue.client.asynchronous import SubscribeOptions

__all__ = ["register"]

QUIET_S = 1.0
"""Without --follow: nothing for this long is the end."""


def sub(
    topic: TopicName,
    name: Annotated[str | None, typer.Option("--name", help="Subscriber's name; one connection has it.")] = None,
    after: Annotated[
        int | None, typer.Option("--after", metavar="EVENT", min=0, help="Start after this event id.")
    ] = None,
    from_start: Annotated[
        bool, typer.Option("--from-start", help="Start with the oldest message (the default).")
    ] = False,
    from_now: Annotated[
        bool, typer.Option("--from-now", help="Only what comes from now on; implies --follow.")
    ] = False,
    stored: Annotated[
        bool, typer.Option("--stored", help="Go on where NAME was, and remember how far it comes.")
    ] = False,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help="Start at a time: 10m ago, or 2025-01-31T12:00."),
    ] = None,
    batch: Annotated[int, typer.Option("--batch", min=1, max=255, help="Messages per push.")] = 100,
    count: Annotated[int | None, typer.Option("--count", min=1, help="Stop after this many.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more until Ctrl-C.")] = False,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Wait for NAME to be free instead of failing.")
    ] = False,
    url: Url = None,
    port: Port = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Print the messages of a topic."""
    if sum((after is not None and not stored, from_start, from_now, stored, since is not None)) > 1:
        raise typer.BadParameter("choose one of --after, --from-start, --from-now, --stored, --since")
    if (stored or take_over) and name is None:
        raise typer.BadParameter("--stored and --take-over need --name")
    options: SubscribeOptions = {
        "name": name,
        "after": after or 0,
        "from_now": from_now,
        "from_stored": stored,
        "from_time": None if since is None else _parse_since(since),
        "batch": min(batch, count or batch),
        "take_over": take_over,
        "remember": stored,
    }
    waits = follow or from_now or take_over or count is not None

    async def work(client: Client) -> None:
        await _read(client, topic, options, count=count, waits=waits, json=json)

    ask(Where(url, port, data), work, topic=topic)


async def _read(
    client: Client, topic: str, options: SubscribeOptions, *, count: int | None, waits: bool, json: bool
) -> None:
    printed = 0
    async with client.subscribe(topic, **options) as subscription:
        while count is None or printed < count:
            delivery = subscription.take()
            if delivery is None:
                sys.stdout.flush()
                try:
                    async with asyncio.timeout(None if waits else QUIET_S):
                        batch = await subscription.next_batch()
                except TimeoutError:
                    break
                if batch is None:
                    _say(f"topic {topic} has ended")
                    return
                continue
            print_delivery(delivery, json=json)
            printed += 1
        await subscription.finish()
    if count is None:
        _say(f"{counted(printed, 'message')}, no more for now; --follow waits for them")


def print_delivery(delivery: Delivery, *, json: bool) -> None:
    """One message on one line."""
    if json:
        print_json(delivery_as_json(delivery))
        return
    number = "" if delivery.message_id is None else f" id={delivery.message_id}"
    headers = "".join(f" {name}={_printable(value)}" for name, value in delivery.headers.items() if name != "pixiu.id")
    body = _printable(delivery.body)
    print(f"{delivery.event_id}  {moment_text(delivery.time_ms)}{number}{headers}  {body}")


def delivery_as_json(delivery: Delivery) -> dict[str, Any]:
    """Bodies that are text as ``body``, others as ``body_base64``; headers likewise."""
    value: dict[str, Any] = {
        "topic": delivery.topic,
        "event_id": delivery.event_id,
        "time_ms": delivery.time_ms,
    }
    if delivery.message_id is not None:
        value["message_id"] = delivery.message_id
    headers = {name: text for name, text in delivery.headers.items() if name != "pixiu.id"}
    if headers:
        value["headers"] = {name: _printable(text) for name, text in headers.items()}
    try:
        value["body"] = delivery.body.decode()
    except UnicodeDecodeError:
        value["body_base64"] = base64.b64encode(delivery.body).decode()
    return value


def _printable(data: bytes) -> str:
    try:
        return shown(data.decode())
    except UnicodeDecodeError:
        return f"0x{data.hex()}"


def _parse_since(text: str) -> datetime:
    moment = text.removesuffix(" ago").strip()
    try:
        parsed = datetime.fromisoformat(moment)
    except ValueError:
        try:
            return datetime.now(UTC) - timedelta(milliseconds=parse_duration_ms(moment))
        except typer.BadParameter:
            raise typer.BadParameter(
                f"{text!r} is neither a duration like 10m nor a time like 2025-01-31T12:00",
                param_hint="--since",
            ) from None
    return parsed if parsed.tzinfo is not None else parsed.astimezone()


def _say(text: str) -> None:
    if sys.stderr.isatty():
        print(text, file=sys.stderr)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "sub",
        epilog=examples(
            "pixiu queue sub letters",
            "pixiu queue sub letters --name reader --stored --follow",
            "pixiu queue sub letters --since 10m --json",
        ),
    )(sub)
