"""Suggestions for misspelled names do not cost more for a long name than for a short one."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from pixiu.model.errors import RequestError
from tests.sdk.world import world_at


@contextmanager
def comparisons() -> Iterator[list[str]]:
    """The functions of difflib that this thread enters, such as the event loop of a server in this process."""
    entered: list[str] = []

    def seen(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and frame.f_globals.get("__name__") == "difflib":
            entered.append(frame.f_code.co_name)

    sys.setprofile(seen)
    try:
        yield entered
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize("length", [65, 240_000])
async def test_a_name_beyond_64_characters_is_not_compared_with_known_names(tmp_path: Path, length: int) -> None:
    async with world_at(tmp_path) as world, world.connect("alice") as alice:
        await alice.act("contacts")
        with comparisons() as entered:
            with pytest.raises(RequestError, match="no action"):
                await alice.act("s" * length)
            long_name: dict[str, Any] = {"t" * length: "x"}
            wrong: dict[str, dict[str, Any]] = {"send": {"to": "bob", "text": "hi"}, "say": {"room": "lobby"}}
            for action, params in wrong.items():
                with pytest.raises(RequestError, match="knows no"):
                    await alice.act(action, **params, **long_name)
        assert entered == []


async def test_a_short_misspelled_name_still_gets_a_suggestion(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world, world.connect("alice") as alice:
        with pytest.raises(RequestError, match="did you mean 'send'"):
            await alice.act("sned")
        with pytest.raises(RequestError, match="did you mean 'text'"):
            await alice.act("send", to="bob", tezt="hi")
