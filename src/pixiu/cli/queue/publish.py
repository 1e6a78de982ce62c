"""``pixiu queue pub``: one message, or as many as a file has lines."""

import asyncio
import sys
from collections.abc import Iterable, Iterator
from itertools import chain, repeat
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from pixiu.cli.examples import examples
from pixiu.cli.queue.asking import Data, Json, Port, TopicName, Url, Where, ask, parse_headers
from pixiu.cli.queue.output import Progress, print_json, progress
from pixiu.machines.queue_wire import Message
from pixiu.model.counted import counted
from pixiu.queue.client import Appended, Client

__all__ = ["register"]

MESSAGES_PER_REQUEST = 500
BYTES_PER_REQUEST = 256 * 1024
REQUESTS_IN_FLIGHT = 8


def pub(
    topic: TopicName,
    bodies: Annotated[
        list[str] | None, typer.Argument(metavar="BODY", help="Messages; - is stdin, one per line.")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", metavar="NAME=VALUE", help="A header; repeatable.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", metavar="FILE", help="One message per line; - is stdin.")
    ] = None,
    count: Annotated[int, typer.Option("--count", min=1, help="Publish everything this many times.")] = 1,
    key: Annotated[
        str | None, typer.Option("--key", help="Append one message unless this key was there already.")
    ] = None,
    url: Url = None,
    port: Port = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Publish messages to a topic."""
    headers = parse_headers(header)
    from_stdin = bodies == ["-"] or file == Path("-") or (not bodies and file is None and not sys.stdin.isatty())
    if bodies and bodies != ["-"] and file is not None:
        raise typer.BadParameter("give messages or --file, not both")
    if not bodies and file is None and not from_stdin:
        raise typer.BadParameter(f"no message; for example: pixiu queue pub {topic} 'good morning'")
    where = Where(url, port, data)
    is_asked_for = bool(bodies) or file is not None
    if key is not None:
        if not bodies or len(bodies) != 1 or count != 1 or from_stdin:
            raise typer.BadParameter("--key goes with exactly one message", param_hint="--key")
        _append(where, topic, bodies[0], key, headers, json)
        return
    if from_stdin:
        lines: Iterable[bytes] = sys.stdin.buffer
        if not is_asked_for:
            lines = _some_lines(topic, sys.stdin.buffer)
        _publish_lines(where, topic, lines, None, headers, count, json)
    elif file is not None:
        try:
            with file.open("rb") as opened:
                total = sum(1 for line in opened if line.rstrip(b"\r\n")) * count
                opened.seek(0)
                _publish_lines(where, topic, opened, total, headers, count, json)
        except OSError as error:
            raise typer.BadParameter(f"cannot read {file}: {error.strerror}", param_hint="--file") from error
    else:
        texts = [body.encode() for body in bodies or []]
        if not all(texts) and not headers:
            raise typer.BadParameter("a message without headers needs a body")
        repeated = chain.from_iterable(repeat(texts, count))
        _publish(where, topic, repeated, len(texts) * count, headers, json)


def _some_lines(topic: str, stdin: BinaryIO) -> Iterator[bytes]:
    """Lines of a stdin that nobody has named: one without any was not meant, and is no success."""
    first = next((line for line in stdin if line.rstrip(b"\r\n")), None)
    if first is None:
        raise typer.BadParameter(
            f"no message, and nothing comes from stdin; for example: pixiu queue pub {topic} 'good morning', "
            f"or: echo 'good morning' | pixiu queue pub {topic}"
        )
    return chain((first,), stdin)


def _append(where: Where, topic: str, body: str, key: str, headers: dict[str, str], json: bool) -> None:
    async def work(client: Client) -> Appended:
        return await client.append(topic, body, key=key, headers=headers)

    appended = ask(where, work, topic=topic)
    if json:
        print_json(
            {
                "event_id": appended.event_id,
                "message_id": appended.message_id,
                "repeat": appended.repeat,
            }
        )
    else:
        what = "was there already, as" if appended.repeat else "published"
        print(f"{what} event {appended.event_id}, message {appended.message_id}")


def _publish_lines(
    where: Where,
    topic: str,
    lines: Iterable[bytes],
    total: int | None,
    headers: dict[str, str],
    count: int,
    json: bool,
) -> None:
    texts: Iterable[bytes] = (text for line in lines if (text := line.rstrip(b"\r\n")))
    if count > 1:
        kept = list(texts)
        texts = chain.from_iterable(repeat(kept, count))
        total = len(kept) * count
    _publish(where, topic, texts, total, headers, json)


def _publish(
    where: Where, topic: str, texts: Iterable[bytes], total: int | None, headers: dict[str, str], json: bool
) -> None:
    messages = (Message.of(text, headers) for text in texts)
    with progress(f"publishing to {topic}", total) as bar:

        async def work(client: Client) -> tuple[int, int, int]:
            return await _send(client, topic, messages, bar)

        sent, first, last = ask(where, work, topic=topic)
    if json:
        print_json({"count": sent, "first_event_id": first, "last_event_id": last})
    elif sent == 1:
        print(f"published event {first}")
    else:
        print(f"published {counted(sent, 'message')}" + (f", events {first} to {last}" if sent else ""))


async def _send(client: Client, topic: str, messages: Iterator[Message], bar: Progress) -> tuple[int, int, int]:
    """Publish in requests of many messages, some of them in flight, in order."""
    sent, first, last = 0, 0, 0
    waiting: list[tuple[int, asyncio.Task[int]]] = []

    async def settle(down_to: int) -> None:
        nonlocal sent, first, last
        while len(waiting) > down_to:
            size, task = waiting.pop(0)
            event_id = await task
            sent += size
            first = first or event_id
            last = event_id + size - 1
            bar.advance(size)

    try:
        for group in _groups(messages):
            waiting.append((len(group), asyncio.ensure_future(client.publish_message(topic, *group))))
            await asyncio.sleep(0)
            await settle(REQUESTS_IN_FLIGHT - 1)
        await settle(0)
    finally:
        for _, task in waiting:
            task.cancel()
        await asyncio.gather(*(task for _, task in waiting), return_exceptions=True)
    return sent, first, last


def _groups(messages: Iterator[Message]) -> Iterator[list[Message]]:
    group: list[Message] = []
    size = 0
    for message in messages:
        group.append(message)
        size += len(message.body) + 16
        if len(group) == MESSAGES_PER_REQUEST or size >= BYTES_PER_REQUEST:
            yield group
            group, size = [], 0
    if group:
        yield group


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "pub",
        epilog=examples(
            "pixiu queue pub letters 'good morning'", "seq 1 1000 | pixiu queue pub letters --header lang=en"
        ),
    )(pub)
