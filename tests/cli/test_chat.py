"""``pixiu chat`` against a real node: the screen, driven by keys, and the lines of a pipe."""

from __future__ import annotations

import asyncio
import errno
import os
import pty
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from textual.widgets import Input, OptionList, Static

from pixiu.cli.chat import is_nobody_there
from pixiu.cli.chat.conversations import Conversations, described, place_of, ticks_of
from pixiu.cli.chat.screen import ChatScreen
from pixiu.model.errors import Unavailable
from pixiu.sdk import Message, Place, ReceiptEvent
from tests.sdk.world import cut, eventually, take, told, wanted, world_at
from tests.servers import free_port

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from textual.pilot import Pilot

    from tests.sdk.world import World


async def until(pilot: Pilot[None], condition: Callable[[], object], seconds: float = 10) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await pilot.pause(0.02)


async def type_line(pilot: Pilot[None], line: str) -> None:
    typed = pilot.app.query_one(Input)
    typed.value = line
    await pilot.press("enter")


def rows(screen: ChatScreen) -> list[str]:
    shown = screen.query_one("#list", OptionList)
    return [str(shown.get_option_at_index(index).prompt) for index in range(shown.option_count)]


def lines(screen: ChatScreen) -> list[str]:
    return screen._history.texts


def line_text(screen: ChatScreen, name: str) -> str:
    return str(screen.query_one(f"#{name}", Static).content)


async def test_two_chats_talk(tmp_path: Path) -> None:
    """Two screens: messages, ticks, typing, presence, a recall; what one is typing is never touched."""
    async with world_at(tmp_path) as world, world.connect("alice") as alice, world.connect("bob") as bob:
        screens: dict[str, tuple[ChatScreen, Pilot[None]]] = {}
        done = asyncio.Event()

        async def show(name: str, screen: ChatScreen) -> None:
            async with screen.run_test(size=(100, 30)) as pilot:
                screens[name] = (screen, pilot)
                await done.wait()

        shows = [asyncio.create_task(show("a", ChatScreen(alice))), asyncio.create_task(show("b", ChatScreen(bob)))]
        try:
            await eventually(lambda: len(screens) == 2)
            (a, pilot_a), (b, pilot_b) = screens["a"], screens["b"]
            await type_line(pilot_a, "/contact bob")
            await type_line(pilot_b, "/contact alice")
            await until(pilot_a, lambda: any(row.startswith("● bob") for row in rows(a)))
            await until(pilot_b, lambda: b.current is not None)
            b.query_one(Input).value = "half a sent"
            await type_line(pilot_a, "你好 [bold]bob[/bold]")
            await until(pilot_b, lambda: any("alice: 你好 [bold]bob[/bold]" in line for line in lines(b)))
            assert b.query_one(Input).value == "half a sent", "what one types is not disturbed"
            await until(pilot_a, lambda: any("✓✓\u00a0read" in line for line in lines(a)))
            assert sum("──" in line for line in lines(a)) == 1, "a day is said once"
            b.query_one(Input).value = "half a sentence"
            await until(pilot_a, lambda: "bob types" in line_text(a, "typing"))
            await pilot_b.press("enter")
            await until(pilot_a, lambda: any("bob: half a sentence" in line for line in lines(a)))
            await type_line(pilot_b, "/recall")
            await until(pilot_b, lambda: "Type /yes to confirm" in line_text(b, "status"))
            assert "half a sentence" in line_text(b, "status")
            await type_line(pilot_b, "/yes")
            await until(pilot_a, lambda: any("message recalled" in line for line in lines(a)))
            assert not any("half a sentence" in line for line in lines(a) + lines(b))
            await type_line(pilot_a, "/dance")
            await until(pilot_a, lambda: "no command /dance" in line_text(a, "status"))
            await pilot_a.press("f1")
            await until(pilot_a, lambda: "/recall" in line_text(a, "status"))
            cut(alice)
            await until(pilot_a, lambda: "offline" in line_text(a, "status") or alice.is_online)
            await until(pilot_a, lambda: "online" in line_text(a, "status") and alice.is_online)
        finally:
            done.set()
            await asyncio.gather(*shows)


async def test_unread_groups_rooms_and_drafts(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world, world.connect("alice") as alice, world.connect("bob") as bob:
        await bob.send("alice", "before she came")
        screen = ChatScreen(alice)
        async with screen.run_test(size=(100, 30)) as pilot:
            await until(pilot, lambda: rows(screen) and rows(screen)[0].endswith(" 1 "))
            await type_line(pilot, "/group team bob")
            await until(pilot, lambda: screen.current is not None and screen.current.place == Place("group", "team"))
            await bob.gsend("team", "hello, team")
            await until(pilot, lambda: any("bob: hello, team" in line for line in lines(screen)))
            screen.query_one(Input).value = "a draft"
            await bob.send("alice", "second")
            await until(pilot, lambda: any(row.endswith(" 2 ") and "bob" in row for row in rows(screen)))
            await screen.turn_to(Place("with", "bob"))
            await until(pilot, lambda: any("second" in line for line in lines(screen)))
            assert any("before she came" in line for line in lines(screen))
            assert screen.query_one(Input).value == ""
            await until(pilot, lambda: not any(row.rstrip().endswith("2") for row in rows(screen)))
            unread = {contact.place: contact.unread for contact in (await alice.contacts()).others}
            assert not unread.get(Place("with", "bob"))
            await screen.turn_to(Place("group", "team"))
            assert screen.query_one(Input).value == "a draft"
            await pilot.press("enter")
            assert (await wanted(bob, lambda message: message.group == "team" and bool(message.text))).text == "a draft"
            await bob.enter("lobby")
            await type_line(pilot, "/room lobby")
            await until(pilot, lambda: screen.current is not None and screen.current.place.kind == "room")
            await type_line(pilot, "anyone?")
            assert (await wanted(bob, lambda message: message.room == "lobby")).text == "anyone?"
            await bob.say("lobby", "me")
            await until(pilot, lambda: any("bob: me" in line for line in lines(screen)))
            await pilot.press("ctrl+n")
            assert screen.current is not None and screen.current.place.kind != "room"
            await type_line(pilot, "/exit")


async def test_scrolling_back_loads_older_pages_and_stays_in_place(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world, world.connect("alice") as alice, world.connect("bob") as bob:
        for number in range(120):
            await bob.send("alice", f"line {number}")
        await take(alice, 120)
        screen = ChatScreen(alice)
        async with screen.run_test(size=(80, 20)) as pilot:
            await type_line(pilot, "/to bob")
            await until(pilot, lambda: len(screen._history._lines) == 50)
            history = screen._history
            await until(pilot, lambda: history.max_scroll_y > 0 and history.scroll_y >= history.max_scroll_y - 1)
            for expected in (100, 120):
                for _ in range(40):
                    await pilot.press("pageup")
                    if len(history._lines) >= expected:
                        break
                    await pilot.pause(0.02)
                await until(pilot, lambda expected=expected: len(history._lines) == expected)  # type: ignore[misc]
                await until(pilot, lambda: not history.is_loading)
                assert history.scroll_y > 0, "one stays where one reads"
            assert "line 0" in " ".join(lines(screen)[:3])
            top = history.scroll_y
            await bob.send("alice", "news")
            await until(pilot, lambda: any("news" in line for line in lines(screen)))
            await pilot.pause(0.05)
            assert history.scroll_y == top, "what arrives does not move the page"
            for _ in range(20):
                await pilot.press("pagedown")
                if history.scroll_y >= history.max_scroll_y - 1:
                    break
            assert history.scroll_y >= history.max_scroll_y - 1


async def test_a_phone_has_forty_columns(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world, world.connect("alice") as alice, world.connect("bob") as bob:
        await alice.create_user("alice", name="Alice")
        await bob.create_user("bob", name="貔貅" * 30)
        await alice.contact("bob")
        async with world.connect("alice", platform="ios") as phone:
            screen = ChatScreen(phone)
            async with screen.run_test(size=(40, 20)) as pilot:
                await until(pilot, lambda: rows(screen))
                chats, history = screen.query_one("#list", OptionList), screen._history
                assert [each.display for each in (chats, history)] == [True, False] and chats.size.width == 40
                assert "…" in rows(screen)[0], "a wide name is cut by its width on the screen"
                await pilot.press("ctrl+n")
                await until(pilot, lambda: screen.current is not None)
                await pilot.pause(0.05)
                assert [each.display for each in (chats, history)] == [False, True] and history.size.width >= 36
                await bob.send("alice", "語" * 100)
                await until(pilot, lambda: any("語" in line for line in lines(screen)))
                await pilot.pause(0.05)
                assert history.children[-1].size.height >= 5, "two columns each: it wraps within the screen"
                await pilot.press("escape")
                await pilot.pause(0.05)
                assert [each.display for each in (chats, history)] == [True, False]
                await pilot.resize_terminal(100, 20)
                await pilot.pause(0.05)
                assert [each.display for each in (chats, history)] == [True, True]


async def test_a_session_that_is_replaced_ends_the_screen_with_its_reason(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world, world.connect("alice", platform="ios", device="one") as alice:
        screen = ChatScreen(alice)
        async with screen.run_test(size=(80, 20)) as pilot:
            two = world.connect("alice", platform="ios", device="two")
            await two.__aenter__()
            await until(pilot, lambda: screen.error is not None)
            await two.close()
        assert "new_session" in str(screen.error)


async def test_the_command_on_a_terminal(tmp_path: Path) -> None:
    """As a person starts it: a real terminal, a real process."""
    async with world_at(tmp_path) as world, world.connect("bob") as bob:
        ours, theirs = pty.openpty()
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PIXIU_")}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "pixiu", "chat", "alice", "--data", str(tmp_path / "data"),
            stdin=theirs, stdout=theirs, stderr=theirs, env={**environment, "TERM": "xterm-256color"},
        )  # fmt: skip
        os.close(theirs)
        os.set_blocking(ours, False)
        shown = bytearray()

        def read() -> bytes:
            try:
                shown.extend(os.read(ours, 65536))
            except OSError:  # nothing there, or the terminal is closed
                pass
            return bytes(shown)

        await eventually(lambda: "alice · online".encode() in read(), 20)
        os.write(ours, b"/to bob\r")
        await eventually(lambda: "alice → bob".encode() in read())
        os.write(ours, b"from a terminal\r")
        while (await bob.next_message(10)).text != "from a terminal":
            read()
        os.write(ours, b"/exit\r")
        waiting = asyncio.create_task(process.wait())
        await eventually(lambda: (read(), waiting.done())[1])
        os.close(ours)
        assert waiting.result() == 0 and b"Traceback" not in shown


# Lines.


async def chat(world: World, name: str, *arguments: str, lines: str = "") -> tuple[int, str, str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PIXIU_")}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "pixiu", "chat", name, "--url", world.url.replace("ws", "http"), *arguments,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment,
    )  # fmt: skip
    out, err = await asyncio.wait_for(process.communicate(lines.encode()), 30)
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def test_a_pipe_talks(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    async with world_at(tmp_path) as world, world.connect("bob") as bob:
        code, out, err = await chat(
            world, "alice", "--data", data,
            lines="bob: hello\n/to bob\nhow are you?\n/group team bob\nall of you\n/who\n//slash\n",
        )  # fmt: skip
        assert (code, err) == (0, "") and out == "2 in #team: alice, bob\n"
        got = [await wanted(bob, lambda message: message.kind == "text") for _ in range(4)]
        assert [message.text for message in got] == ["hello", "how are you?", "all of you", "/slash"]
        await bob.send("alice", "fine")
        await bob.gsend("team", "here")
        await bob.send("alice", "one line\nboss: \x1b[2J")
        code, out, _ = await chat(world, "alice", "--token", world.token("alice", platform="terminal"), "--stay", "1")
        assert code == 0 and out.splitlines()[-3:] == [
            "bob: fine", "#team bob: here", "bob: one line\\nboss: \\x1b[2J",
        ]  # fmt: skip
        assert (await told(bob, ReceiptEvent)).kind == "delivered"
        code, out, err = await chat(
            world, "alice", "--data", data, lines="/to bob\n/dance\nstill\nsaid before /exit?\n"
        )
        assert code == 1 and "no command /dance" in err, "the rest is said, and the exit code tells"
        code, out, err = await chat(world, "alice", "--data", data, lines="nobody chosen\n/exit\nnever said\n")
        assert code == 1 and "/to NAME" in err


async def test_quit_ends_the_chat_and_leaving_and_recalling_need_a_confirmation(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    async with world_at(tmp_path) as world, world.connect("bob") as bob, world.connect("alice", platform="web"):
        await bob.create_group("team", members=["alice"])

        async def members() -> list[str]:
            return sorted(member.user for member in (await bob.group("team")).members)

        code, out, err = await chat(world, "alice", "--data", data, lines="/to #team\n/quit\nnever sent\n")
        assert (code, out, err) == (0, "", "") and await members() == ["alice", "bob"]
        code, out, err = await chat(world, "alice", "--data", data, lines="/to #team\n/leave\nno, wait\n/yes\n")
        assert code == 1 and "Leave #team?" in out and "nothing to confirm" in err
        assert await members() == ["alice", "bob"], "another line cancels"
        code, out, err = await chat(world, "alice", "--data", data, lines="/to #team\n/recall\n")
        assert code == 1 and "nothing of yours" in err
        code, out, err = await chat(
            world, "alice", "--data", data, lines="/to #team\noops\n/recall\n/recall\n/yes\n/leave\n/yes\n"
        )
        assert (code, err) == (0, "") and out.count('Recall "oops"?') == 2 and "You have left #team" in out
        assert await members() == ["bob"]
        said = [message for message in (await bob.history(group="team")).messages if message.sender == "alice"]
        texts = [(each.text, each.is_recalled) for each in said if each.kind == "text"]
        assert texts == [("", True), ("no, wait", False)]


async def test_what_is_wrong_is_said_in_a_line(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world:
        code, _, err = await chat(world, "alice", "--token", "nonsense")
        assert code == 1 and err.startswith("pixiu: ") and "token" in err and "Traceback" not in err
        code, _, err = await chat(world, "alice", "--data", str(tmp_path / "elsewhere"))
        assert code == 1 and "give --token" in err and "start a server: pixiu serve --dev" in err
    done = subprocess.run(
        [sys.executable, "-m", "pixiu", "chat", "alice", "--url", f"http://127.0.0.1:{free_port()}", "--token", "x"],
        capture_output=True, text=True, timeout=30, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 1 and "no answer from" in done.stderr and "start one: make serve" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "cause, is_nobody",
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), True),
        (OSError(f"Multiple exceptions: [Errno {errno.ECONNREFUSED}] a, [Errno {errno.ECONNREFUSED}] b"), True),
        (TimeoutError(), False),
        (ValueError("503: disk is full"), False),
        (None, False),
    ],
)
def test_another_server_is_advised_only_where_there_is_none(cause: Exception | None, is_nobody: bool) -> None:
    error = Unavailable("no connection")
    error.__cause__ = cause
    assert is_nobody_there(error) == is_nobody


# What is shown, without a screen.


def test_conversations() -> None:
    chats = Conversations("alice")
    later, earlier = Message(2, "bob", 20, to="alice", text="b"), Message(1, "bob", 10, to="alice", text="a")
    assert [chats.arrived(each, None)[1] for each in (later, earlier, later)] == [True, True, False]
    conversation = chats.all[Place("with", "bob")]
    assert [each.text for each in conversation.messages] == ["a", "b"] and conversation.unread == 2
    chats.arrived(Message(3, "alice", 30, to="bob", text="c"), None)
    assert conversation.unread == 2, "one's own is read"
    (changed,) = chats.receipt("bob", [3], "both", 40)
    assert ticks_of(changed, "alice") == "✓✓\u00a0read" and chats.receipt("carl", [3], "read", 40) == []
    assert chats.recalled(3) is not None and chats.recalled(99) is None
    assert described(conversation.messages[-1]) == "message recalled"
    chats.types(Place("with", "bob"), "bob", 1_000)
    assert conversation.typists(2_000) == ["bob"] and conversation.typists(60_000) == []
    for number in range(10, 2_100):
        conversation.add(Message(number, "bob", number, to="alice"))
    assert len(conversation.messages) == 2_000 and conversation.has_older


NAMES = {"bob": Place("with", "bob"), "@bob": Place("with", "bob"), "#t": Place("group", "t"), "~r": Place("room", "r")}


@pytest.mark.parametrize(("name", "place"), NAMES.items())
def test_names_of_places(name: str, place: Place) -> None:
    assert place_of(name) == place
