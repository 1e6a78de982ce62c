"""Searching by the SDK, over a WebSocket, in an index that the pipeline has made of the server's own log."""

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("tantivy")

from pixiu.model.errors import NotAllowed, Unavailable
from pixiu.pipeline.lake.local import fill_lake
from tests.pipeline.search_child import feed
from tests.sdk.world import world_at

pytestmark = pytest.mark.feature("B03", "R18")


async def test_what_one_may_read_is_found_and_a_recall_counts_at_once(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world, world.connect("alice") as alice, world.connect("bob") as bob:
        await alice.create_group("team", members=["bob"], history="since_join")
        for number in range(3):
            await alice.gsend("team", f"明天午饭 {number}")
        private = await alice.send("bob", "午饭 with Bob")
        with pytest.raises(Unavailable, match="pixiu pipeline run archive search --once"):
            await alice.search("午饭")
        await asyncio.to_thread(fill_lake, world.path)
        feed(world.path)
        page = await bob.search("午饭", limit=3)
        assert [each.text for each in page.messages] == ["午饭 with Bob", "明天午饭 2", "明天午饭 1"]
        assert (page.messages[1].highlights, page.has_more) == (((2, 4),), True)
        rest = await bob.search("午饭", limit=3, cursor=page.cursor)
        assert ([each.text for each in rest.messages], rest.has_more, rest.cursor) == (["明天午饭 0"], False, "")
        best = await bob.search("午饭 in:team", order="relevance")
        assert len(best.messages) == 3
        assert [each.text for each in (await bob.search("午饭", with_="alice")).messages] == ["午饭 with Bob"]
        await alice.recall(private.message_id)
        assert [each.group for each in (await bob.search("午饭")).messages] == ["team"] * 3
        async with world.connect("carol") as carol:
            await carol.join("team")
            assert (await carol.search("午饭")).messages == ()
            await alice.manage("team", None, "history", history="all")
            assert (await carol.group("team")).history == "all"
            assert len((await carol.search("午饭")).messages) == 3
            await carol.quit("team")
            assert (await carol.search("午饭")).messages == ()
            with pytest.raises(NotAllowed):
                await carol.search("午饭", group="team")
