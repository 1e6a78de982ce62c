"""What docs/sdk-python.md shows runs, and so does the bot of the examples."""

from __future__ import annotations

import ast
import asyncio
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pixiu
import pixiu.sdk
from pixiu.im import VERBS
from tests.sdk.world import take, world_at

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "sdk-python.md"
BOT = ROOT / "examples" / "chat_bot.py"


def test_both_sdks_have_every_action_of_a_user() -> None:
    actions = {name for name, verb in VERBS.items() if not verb.is_for_admins}
    script = (ROOT / "src" / "pixiu" / "console" / "static" / "pixiu.js").read_text(encoding="utf-8")
    listed = re.search(r"const ACTIONS = \[(.*?)\];", script, flags=re.DOTALL)
    assert listed is not None
    assert actions <= set(re.findall(r"'(\w+)'", listed[1]))
    for client in (pixiu.sdk.Client, pixiu.sdk.BlockingClient):
        assert actions - set(dir(client)) == set(), client


async def test_every_example_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(blocks) >= 8
    async with world_at(tmp_path) as world, world.connect("bob") as bob:

        async def echo() -> None:
            async for message in bob.messages():
                if message.kind == "text" and not message.group and not message.room:
                    await bob.send(message.sender, f"bob heard {message.text}")

        echoing = asyncio.create_task(echo())
        for block in blocks:
            code = block.replace("ws://127.0.0.1:8400", world.url)
            names: dict[str, Any] = {"pixiu": pixiu, "token": world.token("alice")}
            if "async " in code:
                wrapped = f"async def example():\n{textwrap.indent(code, '    ')}"
                exec(compile(ast.parse(wrapped), str(PAGE), "exec"), names)
                await asyncio.wait_for(names["example"](), 20)
            else:
                await asyncio.wait_for(asyncio.to_thread(exec, compile(code, str(PAGE), "exec"), names), 20)
        assert not echoing.done()
        echoing.cancel()


def test_the_page_names_every_option_method_event_and_bound() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name in pixiu.sdk.Options.__annotations__:
        assert name == "rules" or f"`{name}`" in text, f"option {name}"
    for name in vars(pixiu.sdk.actions.Actions):
        assert name.startswith("_") or name == "new_send_id" or f"`{name}" in text, f"method {name}"
    for name in pixiu.sdk.__all__:
        if name.endswith("Event") and name != "Event":
            assert f"`{name}`" in text, f"event {name}"


async def test_the_bot_answers_each_message_once_also_after_a_restart_of_the_server(tmp_path: Path) -> None:
    assert len(BOT.read_text(encoding="utf-8").splitlines()) <= 40
    async with world_at(tmp_path) as world, world.connect("alice") as alice:
        bot = await asyncio.create_subprocess_exec(
            sys.executable, BOT, world.url, world.token("bot"), stdout=subprocess.PIPE
        )
        await alice.send("bot", "one")
        assert [message.text for message in await take(alice, 1, 20)] == ["you said: one"]
        await world.restart()
        await alice.create_group("team", name="Team", members=["bot"])
        await alice.gsend("team", "two")
        await alice.send("bot", "goodbye")
        said: list[str] = []
        while "you said: goodbye" not in said:
            message = await alice.next_message(20)
            if message.kind == "text":
                said.append(message.text)
        assert said == ["you said: two", "you said: goodbye"]
        out, _ = await asyncio.wait_for(bot.communicate(), 20)
        assert out.decode().splitlines() == ["bot is online"] and bot.returncode == 0
