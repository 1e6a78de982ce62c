"""Logs for the pipeline's tests, made by the real writer."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pixiu
from pixiu.config import JournalSettings, Settings

__all__ = ["say", "small_segments", "talk", "with_node"]


def small_segments(size: int = 4096) -> Settings:
    """So that a few messages make several segments."""
    return Settings(journal=JournalSettings(segment_bytes=size))


def with_node(
    path: Path, work: Callable[[Any], Awaitable[Any]], *, settings: Settings | None = None, creates_users: bool = True
) -> Any:
    """Run some work on a node, and close it."""

    async def run() -> Any:
        async with pixiu.Node.embedded(path, settings=settings, creates_users=creates_users) as node:
            return await work(node)

    return asyncio.run(run())


async def say(node: Any, count: int, *, begin: int = 0, user: str = "alice", to: str = "bob") -> list[int]:
    """So many private messages; returns their ids."""
    sends = (
        node.send(user, to=to, text=f"{user} to {to} {number}", send_id=f"{to}{number}")
        for number in range(begin, begin + count)
    )
    return [int(answer["message_id"]) for answer in await asyncio.gather(*sends)]


async def talk(node: Any) -> dict[str, Any]:
    """A little of everything: private and group messages, two platforms, acks, a recall, receipts, a push, a quit."""
    for user in ("alice", "bob", "carol", "dave"):
        await node.create_user(user, name=user.title())
    await node.create_group("alice", "team", members=["bob", "carol"])
    phone = await node.connect("bob", platform="ios")
    ids = await say(node, 20)
    desk = await node.connect("bob", platform="web")
    ids += await say(node, 5, begin=20)
    groups = [int((await node.gsend("carol", group="team", text=f"群里说 {n}"))["message_id"]) for n in range(4)]
    for _ in range(12):
        await phone.receive(timeout_seconds=5)
    for _ in range(3):
        await desk.receive(timeout_seconds=5)
    await phone.leave()
    await desk.leave()
    await node.act("alice", "recall", message_id=ids[3])
    await node.act("bob", "receipt", message_ids=[str(ids[4]), str(ids[5])], kind="read")
    await node.act("bob", "receipt", message_ids=[str(ids[6])], kind="delivered")
    await node.act("carol", "quit", group="team")
    await node.gsend("alice", group="team", text="carol has left")
    await node.act(
        None, "push", uids=["bob", "dave"], msg_bodies=["news"], msg_options=3, platform_config={"platforms": ["tv"]}
    )
    await node.act(None, "push", uids=["alice", "bob"], msg_bodies=["gone at once"], msg_options=1)
    await node.send("dave", to="dave", text="note to myself")
    return {"private": ids, "group": groups}
