"""``pixiu queue topics | create | delete | info``."""

from typing import Annotated, Any

import typer

from pixiu.cli.examples import examples
from pixiu.cli.queue.asking import Data, Json, Port, TopicName, Url, Where, ask, parse_duration_ms
from pixiu.cli.queue.output import bytes_text, moment_text, print_facts, print_json, print_rows, until_text
from pixiu.cli.shown import shown
from pixiu.machines.queue_wire.commands import RESERVED_PREFIX
from pixiu.model.errors import NotAllowed
from pixiu.queue.client import Client, Topic

__all__ = ["register"]


def list_topics(url: Url = None, port: Port = None, data: Data = None, json: Json = False) -> None:
    """List all topics."""
    topics = ask(Where(url, port, data), Client.topics)
    if json:
        for topic in topics:
            print_json(_as_json(topic))
        return
    rows = [
        (
            topic.name,
            topic.create_event_id,
            moment_text(topic.created_at_ms),
            until_text(topic.expires_at_ms),
        )
        for topic in topics
    ]
    empty = "no topics yet; create one with: pixiu queue create NAME"
    print_rows(("topic", "event", "created", "ends"), rows, empty=empty)


def create(
    topic: TopicName,
    lifetime: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Delete it by itself after 10s, 1h, 2d …")
    ] = None,
    url: Url = None,
    port: Port = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Create a topic."""
    lifetime_ms = None if lifetime is None else parse_duration_ms(lifetime)
    if lifetime_ms is not None and lifetime_ms <= 10_000:
        raise typer.BadParameter("a topic lives for more than 10s", param_hint="--lifetime")

    async def work(client: Client) -> int:
        return await client.create_topic(topic, lifetime=lifetime_ms)

    event_id = ask(Where(url, port, data), work, topic=topic)
    if json:
        print_json({"topic": topic, "event_id": event_id})
    else:
        print(f"created topic {shown(topic)} (event {event_id})")


def delete(topic: TopicName, url: Url = None, port: Port = None, data: Data = None, json: Json = False) -> None:
    """Delete a topic and all its messages; its subscribers are told. Pixiu's own (pixiu.…) cannot be deleted."""
    if topic.encode().startswith(RESERVED_PREFIX):
        raise NotAllowed(f"topic {topic} is Pixiu's own and cannot be deleted: what was sent is in it")

    async def work(client: Client) -> int:
        return await client.delete_topic(topic)

    event_id = ask(Where(url, port, data), work, topic=topic)
    if json:
        print_json({"topic": topic, "event_id": event_id})
    else:
        print(f"deleted topic {shown(topic)} (event {event_id})")


def info(topic: TopicName, url: Url = None, port: Port = None, data: Data = None, json: Json = False) -> None:
    """Tell about one topic."""

    async def work(client: Client) -> tuple[Topic, dict[str, Any]]:
        return await client.topic_info(topic), await client.topic_size(topic)

    found, size = ask(Where(url, port, data), work, topic=topic)
    if json:
        print_json({**_as_json(found), **(size if "messages" in size else {})})
        return
    rows: list[tuple[str, str | int]] = [("topic", found.name)]
    if "messages" in size:  # an older queue tells of itself instead
        count = size["messages"]
        rows += [
            ("messages", "too many to count quickly" if count is None else count),
            ("size", bytes_text(size["bytes"])),
            ("newest event", size["last_event_id"] or "none yet"),
        ]
    rows += [
        ("created", moment_text(found.created_at_ms)),
        ("created by event", found.create_event_id),
        ("ends", until_text(found.expires_at_ms)),
    ]
    print_facts(rows)


def _as_json(topic: Topic) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "created_at_ms": topic.created_at_ms,
        "create_event_id": topic.create_event_id,
        "expires_at_ms": topic.expires_at_ms,
    }


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("topics", epilog=examples("pixiu queue topics", "pixiu queue topics --json"))(list_topics)
    app.command("list", hidden=True)(list_topics)
    app.command("create", epilog=examples("pixiu queue create letters", "pixiu queue create today --lifetime 1d"))(
        create
    )
    app.command("delete", epilog=examples("pixiu queue delete letters"))(delete)
    app.command("info", epilog=examples("pixiu queue info letters"))(info)
