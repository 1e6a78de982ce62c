"""The SDK against a real node: everything a person does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.sdk.world import take, world_at

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.feature("R17", "R18")
async def test_two_people_talk(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world, world.connect("alice") as alice, world.connect("bob") as bob:
        assert alice.name == "alice" and alice.is_online
        sent = await alice.send("bob", "你好 👋", fields={"tone": "kind"}, priority="high")
        (message,) = await take(bob, 1)
        assert (message.sender, message.to, message.text) == ("alice", "bob", "你好 👋")
        assert (message.message_id, message.at, message.send_id) == (sent.message_id, sent.at, sent.send_id)
        assert message.fields == {"tone": "kind"} and message.priority == "high"
        answer = await bob.send("alice", body=b"\x00\xff", kind="file", ref=message.message_id)
        (back,) = await take(alice, 1)
        assert (back.kind, back.body, back.ref, back.message_id) == (
            "file",
            b"\x00\xff",
            sent.message_id,
            answer.message_id,
        )
        page = await alice.history("bob")
        assert [each.message_id for each in page.messages] == [answer.message_id, sent.message_id]
