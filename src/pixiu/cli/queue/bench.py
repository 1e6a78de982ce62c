"""``pixiu queue bench``: how fast this queue is for a client like this one.

The load comes from one Python process, so a fast queue is rarely the bottleneck here; `make bench-queue` has
a load generator that is not. It answers the everyday question: is this installation roughly as fast as it
should be?
"""

import asyncio
import time
from typing import Annotated

import typer

from pixiu.cli.examples import examples
from pixiu.cli.queue.asking import Data, Json, Port, Url, Where, ask
from pixiu.cli.queue.output import Progress, bytes_text, print_json, print_rows, progress
from pixiu.machines.queue_wire import Message
from pixiu.model.counted import counted
from pixiu.queue.client import Client

__all__ = ["register"]


def bench(
    connections: Annotated[int, typer.Option("--connections", min=1, max=1000)] = 16,
    in_flight: Annotated[
        int, typer.Option("--in-flight", min=1, max=1024, help="Unanswered publishes per connection.")
    ] = 10,
    size: Annotated[int, typer.Option("--size", min=1, max=1 << 20, help="Bytes per message.")] = 200,
    count: Annotated[int, typer.Option("--count", min=1, help="Messages in all.")] = 20_000,
    topic: Annotated[
        str | None, typer.Option("--topic", help="Use this topic and keep it.  [default: one of its own]")
    ] = None,
    url: Url = None,
    port: Port = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Measure publishing to, and then reading from, a queue."""
    name = topic or f"bench-{time.time_ns():x}"
    where = Where(url, port, data)

    async def work(client: Client) -> dict[str, float]:
        if topic is None:
            await client.create_topic(name, lifetime=3_600_000)
        first = await client.publish(name, b"x")
        clients = [
            Client(where.address, key=where.key, pool=1, patience_s=0.0, in_flight_max=in_flight)
            for _ in range(connections)
        ]
        try:
            with progress("publishing", count) as bar:
                result = await _publish(clients, name, size=size, count=count, in_flight=in_flight, bar=bar)
            with progress("reading", count) as bar:
                result |= await _read(client, name, after=first, count=count, bar=bar)
        finally:
            for other in clients:
                await other.close()
            if topic is None:
                await client.delete_topic(name)
        return result

    result = ask(where, work, topic=name)
    if json:
        setting = {"connections": connections, "in_flight": in_flight, "size": size, "count": count}
        print_json(setting | {key: round(value, 3) for key, value in result.items()})
        return
    rows = [
        ("publish", f"{result['publish_per_s']:,.0f} messages/s"),
        ("", f"{bytes_text(result['publish_per_s'] * size)}/s"),
        ("latency, half below", f"{result['p50_ms']:.2f} ms"),
        ("latency, 99 % below", f"{result['p99_ms']:.2f} ms"),
        ("latency, worst", f"{result['max_ms']:.2f} ms"),
        ("subscribe", f"{result['subscribe_per_s']:,.0f} messages/s"),
    ]
    print(
        f"{counted(count, 'message', is_grouped=True)} of {counted(size, 'byte')}, "
        f"{counted(connections, 'connection')}, {in_flight} in flight on each"
    )
    print_rows(("", ""), rows)


async def _publish(
    clients: list[Client], topic: str, *, size: int, count: int, in_flight: int, bar: Progress
) -> dict[str, float]:
    message = Message(b"x" * size)
    latencies: list[float] = []
    left = count

    async def publisher(client: Client) -> None:
        nonlocal left
        while left > 0:
            left -= 1
            started_s = time.perf_counter()
            await client.publish_message(topic, message)
            latencies.append(time.perf_counter() - started_s)
            if len(latencies) % 256 == 0:
                bar.advance(256)

    started_s = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for client in clients:
            for _ in range(in_flight):
                group.create_task(publisher(client))
    took_s = time.perf_counter() - started_s
    latencies.sort()
    return {
        "publish_per_s": count / took_s,
        "p50_ms": latencies[len(latencies) // 2] * 1000,
        "p99_ms": latencies[int(len(latencies) * 0.99)] * 1000,
        "max_ms": latencies[-1] * 1000,
    }


async def _read(client: Client, topic: str, *, after: int, count: int, bar: Progress) -> dict[str, float]:
    seen = 0
    started_s = time.perf_counter()
    async with client.subscribe(topic, after=after, batch=255) as subscription:
        async for batch in subscription.batches():
            seen += len(batch)
            bar.advance(len(batch))
            if seen >= count:
                break
    return {"subscribe_per_s": seen / (time.perf_counter() - started_s)}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "bench",
        epilog=examples("pixiu queue bench", "pixiu queue bench --connections 4 --size 1000 --count 5000 --json"),
    )(bench)
