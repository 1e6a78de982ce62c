"""``pixiu queue delay | delays | cancel``."""

from dataclasses import asdict
from typing import Annotated

import typer

from pixiu.cli.examples import examples
from pixiu.cli.queue.asking import (
    Data,
    Json,
    Port,
    TopicName,
    Url,
    Where,
    ask,
    parse_duration_ms,
    parse_headers,
)
from pixiu.cli.queue.output import moment_text, print_json, print_rows
from pixiu.model.errors import NotFound
from pixiu.queue.client import Client, DelayedMessage

__all__ = ["register"]

PAGE = 1000


def delay(
    topic: TopicName,
    body: Annotated[str, typer.Argument(metavar="BODY")],
    after: Annotated[str, typer.Option("--after", metavar="DURATION", help="At least 1s: 5s, 10m, 2d …")],
    header: Annotated[
        list[str] | None, typer.Option("--header", metavar="NAME=VALUE", help="A header; repeatable.")
    ] = None,
    url: Url = None,
    port: Port = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Publish a message after a while."""
    after_ms = parse_duration_ms(after)
    if after_ms < 1000:
        raise typer.BadParameter("a delay is at least 1s", param_hint="--after")
    headers = parse_headers(header)

    async def work(client: Client) -> int:
        return await client.delay(topic, body, after=after_ms, headers=headers)

    event_id = ask(Where(url, port, data), work, topic=topic)
    if json:
        print_json({"event_id": event_id, "topic": topic, "after_ms": after_ms})
    else:
        print(f"delayed as event {event_id}; take it back with: pixiu queue cancel {event_id}")


def delays(url: Url = None, port: Port = None, data: Data = None, json: Json = False) -> None:
    """List the messages that wait for their time."""

    async def work(client: Client) -> list[DelayedMessage]:
        found: list[DelayedMessage] = []
        while page := await client.delays(after=found[-1].event_id if found else 0, limit=PAGE):
            found += page
            if len(page) < PAGE:
                break
        return found

    found = ask(Where(url, port, data), work)
    if json:
        for delayed in found:
            print_json(asdict(delayed))
        return
    rows = [(d.event_id, d.topic, moment_text(d.due_ms), d.count, d.bytes) for d in found]
    print_rows(("event", "topic", "due", "messages", "bytes"), rows, empty="nothing waits for its time")


def cancel(
    event_id: Annotated[int, typer.Argument(metavar="EVENT", help="As `delay` and `delays` print it.", min=1)],
    url: Url = None,
    port: Port = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Take a delayed message back before its time."""

    async def work(client: Client) -> None:
        try:
            await client.cancel_delay(event_id)
        except NotFound:
            raise NotFound(f"no delayed message has event {event_id}: it was published already?") from None

    ask(Where(url, port, data), work)
    if json:
        print_json({"event_id": event_id, "cancelled": True})
    else:
        print(f"cancelled the delayed message of event {event_id}")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("delay", epilog=examples("pixiu queue delay letters 'good night' --after 10m"))(delay)
    app.command("delays", epilog=examples("pixiu queue delays"))(delays)
    app.command("cancel", epilog=examples("pixiu queue cancel 42"))(cancel)
