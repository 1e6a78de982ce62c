"""A server whose inboxes were numbered anew: clients that come with cursors of the numbers before lose nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pixiu.config import Settings
from pixiu.model.cursor import Cursors, epoch_of
from pixiu.queue.log import EngineLog
from tests.sdk.world import World, eventually, take

if TYPE_CHECKING:
    from pathlib import Path


async def talk(world: World, texts: list[str]) -> None:
    async with world.connect("alice") as alice:
        for text in texts:
            await alice.send("bob", text)


@pytest.mark.feature("P06")
@pytest.mark.parametrize("names", [("one", "other"), ("other", "one")], ids=["one way", "the other"])
async def test_a_client_with_a_cursor_of_another_log_gets_all_that_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, str]
) -> None:
    """Two logs behind one address, one after the other: what a rebuild from another log is for clients."""
    now = [names[1]]
    monkeypatch.setattr(EngineLog, "epoch", property(lambda _: epoch_of(now[0])))
    first, second = (World(tmp_path / name, Settings()) for name in "ab")
    before, after = ([f"{word} {number}" for number in range(count)] for word, count in (("before", 5), ("after", 8)))
    await second.start()
    await talk(second, after)  # four of them get numbers that bob will hold, of the other log
    await second.stop()
    second.settings = replace(second.settings, queue=first.settings.queue, http=first.settings.http)
    now[0], here = names[0], [first]

    async def token() -> str:
        return here[0].token("bob")

    await first.start()
    try:
        async with first.connect("bob", token=token) as bob:
            await talk(first, before)
            assert [message.text for message in await take(bob, 5)] == before
            await eventually(lambda: Cursors(epoch_of(now[0])).useq(int(bob.cursor)) == 4)  # the fifth is in its hands
            await first.stop()
            now[0], here[0] = names[1], second
            await second.start()
            assert [message.text for message in await take(bob, 8)] == after
            await eventually(lambda: Cursors(epoch_of(now[0])).useq(int(bob.cursor)) == 7)
            await eventually(lambda: second.waiting("bob") == 1)
    finally:
        await here[0].stop()
