"""The client without asyncio: in a script of its own, and with threads."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

import pixiu
from pixiu.blocking import LoopThread
from pixiu.model.errors import NotFound, Unavailable
from pixiu.sdk import BlockingClient
from pixiu.sdk.actions import Actions
from tests.sdk.world import take, world_at
from tests.servers import free_port

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = """
import sys, pixiu
url, token = sys.argv[1:]
with pixiu.connect_blocking(url, token, store=sys.argv[0] + ".db") as me:
    print(me.name, me.is_online, flush=True)
    me.send("alice", "from a script")
    for message in me.messages():
        print(message.sender, message.text, flush=True)
        if message.text == "bye":
            break
    print(len(me.history("alice").messages), len(me.local.history(with_="alice").messages))
    print(me.gaps, list(me.close_gaps()))
    try:
        me.group("nowhere")
    except pixiu.model.errors.NotFound as error:
        print(error.code)
    print(list(me.messages(timeout_seconds=0.05)))
"""


async def test_a_script_talks(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    async with world_at(tmp_path) as world, world.connect("alice") as alice:
        process = await asyncio.create_subprocess_exec(
            sys.executable, script, world.url, world.token("bob"), stdout=subprocess.PIPE
        )
        (message,) = await take(alice, 1, 20)
        assert (message.sender, message.text) == ("bob", "from a script")
        await alice.send("bob", "hi")
        await alice.send("bob", "bye")
        out, _ = await asyncio.wait_for(process.communicate(), 20)
    lines = out.decode().splitlines()
    assert lines == ["bob True", "alice hi", "alice bye", "3 3", "[] []", "not_found", "[]"] and process.returncode == 0


async def test_every_action_is_there_and_errors_come_through(tmp_path: Path) -> None:
    public = {name for name in vars(Actions) if not name.startswith("_")} - {"new_send_id"}
    assert {name for name in public if not callable(getattr(BlockingClient, name, None))} == set()
    async with world_at(tmp_path) as world:

        def work() -> None:
            with pixiu.connect_blocking(world.url, world.token("bob")) as me:
                with pytest.raises(NotFound):
                    me.group("nowhere")
                with pytest.raises(TimeoutError):
                    me.next_message(0.05)
                assert me.act("user")["user"] == "bob" and me.user().user == "bob"
            with pytest.raises(Unavailable, match="closed"):
                me.user()

        await asyncio.to_thread(work)
    with pytest.raises(Unavailable), pixiu.connect_blocking(f"ws://127.0.0.1:{free_port()}", "x"):
        pass


def test_whoever_waits_on_a_loop_that_ends_is_told() -> None:
    """Threads that share a client ask all the time while another one closes it: none of them waits for ever."""
    for _ in range(30):
        loop = LoopThread("test")
        told: list[str] = []
        begun = threading.Barrier(5)

        def ask(loop: LoopThread = loop, told: list[str] = told, begun: threading.Barrier = begun) -> None:
            begun.wait()
            try:
                while True:
                    loop.run(asyncio.sleep(0.0001))
            except Unavailable as error:
                told.append(str(error))

        threads = [threading.Thread(target=ask, daemon=True) for _ in range(4)]
        for thread in threads:
            thread.start()
        begun.wait()
        loop.stop()
        for thread in threads:
            thread.join(10)
        assert told == ["this client is closed"] * 4
        loop.stop()


def test_what_takes_for_ever_ends_with_the_loop() -> None:
    loop = LoopThread("test")
    begun = threading.Event()

    async def wait() -> None:
        begun.set()
        await asyncio.Event().wait()

    def stop() -> None:
        begun.wait()
        loop.stop()

    threading.Thread(target=stop, daemon=True).start()
    with pytest.raises(Unavailable, match="closed"):
        loop.run(wait())
