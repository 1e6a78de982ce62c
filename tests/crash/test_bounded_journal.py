"""The journal of a messaging node is bounded by retention, and a killed node finds its inboxes again."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_surfaces import Served

IN_FLIGHT = 64
SEGMENT_BYTES, RETENTION_BYTES = 64 * 1024, 256 * 1024


def journal_bytes(data: Path) -> int:
    total = 0
    for path in (data / "queue" / "journal").glob("*"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:  # retention removed it meanwhile
            continue
    return total


async def exchange(node: Served, count: int) -> None:
    """Alice sends to Bob, Bob acks: each message is two operations on inboxes."""
    async with node.socket(node.token("alice")) as alice, node.socket(node.token("bob")) as bob:
        room = asyncio.Semaphore(IN_FLIGHT)

        async def answers() -> None:
            left = count
            while left:
                frame = json.loads(await alice.recv())
                if "id" in frame:
                    assert "result" in frame, frame
                    left -= 1
                    room.release()

        async def acks() -> None:
            left = count
            while left:
                frame = json.loads(await bob.recv())
                if frame.get("push") == "message":
                    left -= 1
                    ack = {"id": 0, "action": "ack", "params": {"cursor": frame["cursor"]}}
                    await bob.send(json.dumps(ack))

        readers = asyncio.gather(answers(), acks())
        for number in range(count):
            await room.acquire()
            params = {"to": "bob", "text": "x" * 200, "send_id": str(number)}
            await alice.send(json.dumps({"id": number + 1, "action": "send", "params": params}))
        await readers


def seen(node: Served) -> dict[str, Any]:
    bob = node.token("bob", platform="ios")
    history = node.act(bob, "history", **{"with": "alice"})
    return {"waits": node.act(bob, "receive"), "newest": history["messages"], "contacts": node.act(bob, "contacts")}


@pytest.mark.crash
@pytest.mark.feature("X60", "E31")
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("count", [2_000, pytest.param(500_000, marks=pytest.mark.long)])
async def test_journal_stays_bounded_and_a_killed_node_finds_the_same_inboxes(tmp_path: Path, count: int) -> None:
    node = Served(
        tmp_path / "data", f"journal.segment_bytes={SEGMENT_BYTES}", f"journal.retention_bytes={RETENTION_BYTES}",
        "journal.checkpoint_bytes=65536", "journal.checkpoint_interval_ms=100", "topics.retention_interval_ms=50",
        f"topics.segment_bytes={SEGMENT_BYTES}", f"topics.retention_bytes={RETENTION_BYTES}", "journal.fill_bytes=0",
        "messaging.sends_per_second=0", "gateway.requests_per_user=0",
    )  # fmt: skip
    await asyncio.to_thread(node.start)
    try:
        node.act(node.token("bob", platform="ios"), "receive")
        await exchange(node, count)
        async with asyncio.timeout(20):
            while journal_bytes(node.data) > RETENTION_BYTES + 2 * SEGMENT_BYTES:
                await asyncio.sleep(0.05)
        before = await asyncio.to_thread(seen, node)
        assert len(before["newest"]) == 100
        node.stop(kill=True)
        await asyncio.to_thread(node.start)
        assert await asyncio.to_thread(seen, node) == before
    finally:
        node.stop()
