"""One scenario for one process and for many (X75): people who do everything, and what each of them has seen.

``play`` runs the steps in order through the Python SDK and HTTP, over as many doors as there are: each person comes in
by another one. It returns a transcript in which ids are left out, so that two runs can be compared word by word.

A step is a coroutine that takes the ``Stage``. It asserts what must be so everywhere, and notes what was seen.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, TypeVar

import httpx

import pixiu
from pixiu.config import SecuritySettings
from pixiu.machines.client_session import ClientRules
from pixiu.model.errors import NotAllowed, PixiuError
from pixiu.ports.authentication import Identity
from pixiu.runtime.clock import SystemClock
from pixiu.runtime.keys import Keyring
from pixiu.runtime.tokens import Tokens
from pixiu.sdk import PresenceEvent, RecallEvent, ReceiptEvent, SignalEvent, TypingEvent

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from pixiu.sdk import Client, Message

__all__ = ["PEOPLE", "QUICK", "STEPS", "Doors", "Stage", "play"]

PEOPLE = ("alice", "bob", "carol", "dave", "erin", "1001", "1002")
"""Two have public ids that are their own numbers."""
QUICK = ClientRules(retry_ms=20, retry_ms_max=500)
SECONDS = 20.0
PROBE = "(is it so already?)"
"""Said until it is refused, or accepted again: how often that is depends on how fast a change is known everywhere."""
E = TypeVar("E")


class Doors:
    """Where people come in, and the keys that sign their tokens."""

    def __init__(self, urls: list[str], keys: Path) -> None:
        """``urls`` are like ``http://127.0.0.1:8400``; ``keys`` is the folder with the signing keys."""
        self.urls = urls
        clock = SystemClock()
        self._tokens = Tokens(Keyring(keys, clock), clock, SecuritySettings())

    def token(self, user: str, *, platform: str = "web", device: str = "d1", is_admin: bool = False) -> str:
        """A token of a user."""
        return self._tokens.issue(Identity(user, platform, device, is_admin))

    def url(self, user: str, turn: int = 0) -> str:
        """The door of a person; another one at each turn."""
        place = PEOPLE.index(user) if user in PEOPLE else 0
        return self.urls[(place + turn) % len(self.urls)]

    def connect(self, user: str, *, platform: str = "web", device: str = "d1", turn: int = 0, **options: Any) -> Client:
        """A client of a person."""
        url = self.url(user, turn).replace("http://", "ws://")
        token = self.token(user, platform=platform, device=device)
        return pixiu.connect(url, token, **{"rules": QUICK, "patience_seconds": 10, **options})

    async def act(self, actor: str, action: str, *, is_admin: bool = False, turn: int = 0, **params: Any) -> Any:
        """An action over HTTP. Raises ``AssertionError`` with the answer unless it was done."""
        headers = {"Authorization": f"Bearer {self.token(actor, is_admin=is_admin)}"}
        async with httpx.AsyncClient(base_url=self.url(actor, turn), headers=headers, timeout=20) as http:
            answer = await http.post(f"/v1/actions/{action}", json=params)
        assert answer.status_code == 200, f"{action}: {answer.status_code} {answer.text}"
        return answer.json()


class Stage:
    """Who is there, and what was noted."""

    def __init__(self, doors: Doors) -> None:
        self.doors = doors
        self.people: dict[str, Client] = {}
        self.transcript: dict[str, Any] = {}
        self._exits = AsyncExitStack()

    async def enter(self, user: str, **options: Any) -> Client:
        """A person comes, or comes back."""
        client = self.people[user] = await self._exits.enter_async_context(self.doors.connect(user, **options))
        return client

    def __getitem__(self, user: str) -> Client:
        return self.people[user]

    def note(self, what: str, seen: object) -> None:
        """For the transcript."""
        assert what not in self.transcript
        self.transcript[what] = seen

    async def close(self) -> None:
        """Everyone goes."""
        await self._exits.aclose()


async def play(doors: Doors) -> dict[str, Any]:
    """Every step, in order. Returns the transcript."""
    stage = Stage(doors)
    try:
        for step in STEPS:
            try:
                async with asyncio.timeout(3 * SECONDS):
                    await step(stage)
            except Exception as error:
                error.add_note(f"in the step {step.__name__}")
                raise
    finally:
        await stage.close()
    return stage.transcript


# Helpers of steps.


async def wanted(client: Client, is_wanted: Callable[[Message], bool]) -> Message:
    """The next message of a kind; others are passed over."""
    async with asyncio.timeout(SECONDS):
        while True:
            message = await client.next_message()
            if is_wanted(message):
                return message


async def texts(client: Client, count: int) -> list[str]:
    """The next messages that have a text."""
    return [(await wanted(client, lambda message: bool(message.text))).text for _ in range(count)]


async def told(client: Client, kind: type[E], is_wanted: Callable[[E], bool] = lambda _event: True) -> E:
    """The next event of a kind."""
    async with asyncio.timeout(SECONDS):
        while True:
            event = await client.next_event()
            if isinstance(event, kind) and is_wanted(event):
                return event


async def eventually(ask: Callable[[], Awaitable[E]], is_so: Callable[[E], bool]) -> E:
    """Ask until it is so: what others did is applied everywhere soon, and not at once."""
    until = time.monotonic() + SECONDS
    while True:
        found = await ask()
        if is_so(found):
            return found
        assert time.monotonic() < until, found
        await asyncio.sleep(0.05)


async def refused(asking: Awaitable[object]) -> str:
    """The code of the error that it ends with."""
    try:
        await asking
    except PixiuError as error:
        return error.code
    return "done"


def shown(messages: Any) -> list[tuple[str, str, str]]:
    """Messages without their ids."""
    return [(each.sender, each.kind, each.text) for each in messages if each.text != PROBE]


# The steps.


async def users_are_made_by_an_admin_over_http(stage: Stage) -> None:
    for number, user in enumerate(PEOPLE):
        made = await stage.doors.act(
            "root", "create_user", is_admin=True, turn=number, user=user, name=user.title(), fields={"age": str(number)}
        )
        assert made["user"] == user
    for number, user in enumerate(PEOPLE):
        profile = await stage.doors.act(user, "user", turn=number + 1)
        stage.note(f"profile of {user}", {key: profile[key] for key in ("user", "name", "avatar", "fields")})


async def they_come_in_and_add_each_other(stage: Stage) -> None:
    for user in ("alice", "bob", "carol", "1001", "1002"):
        client = await stage.enter(user)
        assert client.name == user
    for user, peers in (("alice", ("bob", "carol", "1001")), ("bob", ("alice",)), ("1001", ("alice", "1002"))):
        for peer in peers:
            await stage[user].contact(peer)
    for user in ("alice", "bob", "1001"):
        stage.note(f"contacts of {user}", sorted(each.place.name for each in (await stage[user].contacts()).contacts))


async def everyone_writes_to_everyone(stage: Stage) -> None:
    present = ("alice", "bob", "carol", "1001", "1002")
    for sender in present:
        for to in present:
            if sender != to:
                for number in range(3):
                    await stage[sender].send(to, f"{sender} to {to} {number}")
    for user in present:
        heard: dict[str, list[str]] = {}
        for text in await texts(stage[user], 3 * (len(present) - 1)):
            heard.setdefault(text.split()[0], []).append(text)
        stage.note(f"heard by {user}", heard)


async def a_repeat_is_one_message_whichever_door_it_comes_by(stage: Stage) -> None:
    sent = await stage["alice"].send("bob", "once", send_id="alice-once")
    again = await stage.doors.act("alice", "send", turn=1, to="bob", text="once", send_id="alice-once")
    assert again["message_id"] == str(sent.message_id)
    await stage["alice"].send("bob", "and no more")
    stage.note("a repeat", await texts(stage["bob"], 2))


async def a_group_is_made_joined_and_left(stage: Stage) -> None:
    await stage["alice"].create_group("team", name="The team", members=["bob", "1001"])
    await eventually(lambda: stage["carol"].act("join", group="team"), lambda answer: "group" in answer)
    for sender in ("alice", "bob", "carol", "1001"):
        await stage[sender].gsend("team", f"{sender} to the team")
    for user in ("alice", "bob", "carol", "1001"):
        wanted_texts = {f"{sender} to the team" for sender in ("alice", "bob", "carol", "1001") if sender != user}
        heard: set[str] = set()
        while heard != wanted_texts:
            message = await wanted(stage[user], lambda message: message.group == "team" and bool(message.text))
            heard.add(message.text)
    assert await refused(stage["1002"].gsend("team", "let me in")) == NotAllowed.code
    await stage["alice"].manage("team", "1001", "mute")

    async def muted_says() -> str:
        return await refused(stage["1001"].gsend("team", PROBE))

    assert await eventually(muted_says, lambda code: code != "done") == NotAllowed.code
    await stage["carol"].quit("team")
    group = await eventually(lambda: stage["bob"].group("team"), lambda group: len(group.members) == 3)
    stage.note("members", sorted((member.user, member.role) for member in group.members))
    page = await stage["bob"].history(group="team", limit=50)
    stage.note("team's history", sorted(shown(page.messages)))


async def a_large_group_is_heard_in_its_room(stage: Stage) -> None:
    """Six are large here: see the settings of the tests."""
    await stage["alice"].create_group("crowd", name="Crowd", members=["bob", "carol", "dave", "1001", "1002"])
    for user in ("bob", "1001", "1002"):
        group = await eventually(lambda user=user: stage[user].group("crowd"), lambda group: group.member_count == 6)  # type: ignore[misc]
        assert group.is_large
        await stage[user].enter("g:crowd")
    for number in range(3):
        await stage["alice"].gsend("crowd", f"to the crowd {number}")
    for user in ("bob", "1001", "1002"):
        heard = [await wanted(stage[user], lambda message: message.group == "crowd") for _ in range(3)]
        assert [each.text for each in heard] == [f"to the crowd {number}" for number in range(3)]
        assert heard[2].previous == heard[1].message_id
        await stage[user].leave("g:crowd")
    page = await stage["carol"].history(group="crowd")
    stage.note("the crowd's history", shown(page.messages))
    assert await refused(stage["1002"].enter("g:team")) == NotAllowed.code


async def who_was_away_gets_everything_in_order(stage: Stage) -> None:
    for number in range(20):
        sender = ("alice", "bob", "1001")[number % 3]
        await stage[sender].send("dave", f"for dave {number}")
    dave = await stage.enter("dave")
    stage.note("dave", await texts(dave, 20))


async def who_comes_back_with_a_cursor_gets_what_is_new(stage: Stage) -> None:
    bob = stage["bob"]
    await stage["alice"].send("bob", "before he goes")
    await wanted(bob, lambda message: message.text == "before he goes")
    await bob.send("alice", "see you")
    await asyncio.sleep(0.2)  # the ack leaves
    cursor = bob.cursor
    await bob.close()
    for number in range(5):
        await stage["carol"].send("bob", f"while away {number}")
    bob = await stage.enter("bob", cursor=cursor, turn=1)
    stage.note("bob again", await texts(bob, 5))


async def two_devices_of_one_user_see_the_same(stage: Stage) -> None:
    mobile = await stage._exits.enter_async_context(
        stage.doors.connect("carol", platform="mobile", device="m1", turn=1)
    )
    await stage["alice"].send("carol", "on both")
    both = [await wanted(client, lambda message: message.text == "on both") for client in (stage["carol"], mobile)]
    assert both[0].message_id == both[1].message_id
    mine = await mobile.send("alice", "from my phone")
    copy = await wanted(stage["carol"], lambda message: message.text == "from my phone")
    assert copy.message_id == mine.message_id
    await mobile.close()


async def a_receipt_and_a_recall_are_told(stage: Stage) -> None:
    alice, bob = stage["alice"], stage["bob"]
    first = await alice.send("bob", "read me")
    second = await alice.send("bob", "forget me")
    await wanted(bob, lambda message: message.message_id == second.message_id)
    assert await bob.receipt([first.message_id], "read") == 1
    receipt = await told(alice, ReceiptEvent)
    assert [int(each) for each in receipt.message_ids] == [first.message_id]
    await alice.recall(second.message_id)
    recall = await told(bob, RecallEvent)
    assert int(recall.message_id) == second.message_id
    assert await refused(bob.recall(first.message_id)) == NotAllowed.code
    page = await eventually(
        lambda: bob.history("alice", limit=2), lambda page: not any(each.text == "forget me" for each in page.messages)
    )
    stage.note("after the recall", shown(page.messages))


async def history_comes_in_pages(stage: Stage) -> None:
    pages, before = [], None
    while True:
        page = await stage["1001"].history("alice", before=before, limit=2)
        pages.append(shown(page.messages))
        if not page.has_more:
            break
        before = page.messages[-1].message_id
    stage.note("pages", pages)


async def what_is_unread_is_counted_until_it_is_read(stage: Stage) -> None:
    await stage["1002"].read("1001")
    for number in range(4):
        await stage["1001"].send("1002", f"unread {number}")
    await texts(stage["1002"], 4)

    async def unread() -> int:
        listed = await stage["1002"].contacts()
        return sum(each.unread for each in (*listed.contacts, *listed.others) if each.place.name == "1001")

    await eventually(unread, lambda count: count == 4)
    assert await stage["1002"].read("1001") == 0
    await eventually(unread, lambda count: count == 0)


async def sync_by_conversation_tells_what_is_missing(stage: Stage) -> None:
    alice = stage["alice"]
    anchor = await alice.send("carol", "the last that I have")
    for number in range(5):
        await stage["carol"].send("alice", f"missed {number}")
    await texts(alice, 1)
    caught = await eventually(
        lambda: alice.sync({"carol": anchor.message_id}), lambda caught: len(caught.messages) >= 5
    )  # fmt: skip
    stage.note("synced", sorted(shown(caught.messages)))
    assert not caught.gaps


async def a_room_hears_everyone_in_the_order_of_each(stage: Stage) -> None:
    present = ("alice", "carol", "1001")
    for user in present:
        await stage[user].enter("lobby")
    # A room is heard when its routes are known: the first word is repeated until everyone has it.
    for user in present:
        await _until_heard(stage, user, present)
    for number in range(10):
        for user in present:
            await stage[user].say("lobby", f"{user} says {number}", reliable=True)
    for user in present:
        heard: dict[str, list[str]] = {}
        for _ in range(10 * (len(present) - 1)):
            message = await wanted(
                stage[user],
                lambda message, user=user: "says" in message.text and message.sender != user,  # type: ignore[misc]
            )
            heard.setdefault(message.sender, []).append(message.text)
        stage.note(f"{user} in the room", heard)
    for user in present:
        await stage[user].leave("lobby")
    assert await refused(stage["bob"].say("lobby", "from outside")) == NotAllowed.code


async def _until_heard(stage: Stage, user: str, present: tuple[str, ...]) -> None:
    until = time.monotonic() + SECONDS
    missing = set(present) - {user}
    number = 0
    while missing:
        assert time.monotonic() < until, f"{missing} hear nothing of {user}"
        number += 1
        word = f"{user} is here {number}"
        await stage[user].say("lobby", word)
        for listener in list(missing):
            try:
                async with asyncio.timeout(0.3):
                    await wanted(stage[listener], lambda message, word=word: message.text == word)  # type: ignore[misc]
                missing.discard(listener)
            except TimeoutError:
                continue


async def typing_and_presence_are_told_to_contacts(stage: Stage) -> None:
    alice, bob = stage["alice"], stage["bob"]
    states = await eventually(alice.presence, lambda states: states.get("bob") == "online")
    stage.note("present", states)
    await bob.typing("alice")
    assert (await told(alice, TypingEvent)).user == "bob"
    assert await bob.signal("alice", "live") == 1
    assert (await told(alice, SignalEvent)).message.text == "live"
    await bob.close()
    await told(alice, PresenceEvent, lambda event: event.user == "bob" and event.state == "offline")
    await stage.enter("bob", cursor=bob.cursor, turn=2)
    await told(alice, PresenceEvent, lambda event: event.user == "bob" and event.state == "online")


async def whom_one_blocks_one_does_not_hear(stage: Stage) -> None:
    await stage["carol"].block("1002")

    async def blocked_writes() -> str:
        return await refused(stage["1002"].send("carol", PROBE))

    stage.note("blocked", await eventually(blocked_writes, lambda code: code != "done"))
    await stage["carol"].unblock("1002")
    await eventually(blocked_writes, lambda code: code == "done")
    await stage["1002"].send("carol", "hello?")
    await wanted(stage["carol"], lambda message: message.text == "hello?")


async def a_scheduled_message_comes_in_its_time(stage: Stage) -> None:
    at = int(time.time() * 1000) + 400
    await stage["alice"].schedule(at, "later", to="dave")
    later = await wanted(stage["dave"], lambda message: message.text == "later")
    assert later.at >= at and later.sender == "alice"


async def what_is_wrong_is_said_alike(stage: Stage) -> None:
    alice = stage["alice"]
    stage.note("errors", {
        "no such group": await refused(alice.gsend("nowhere", "hi")),
        "no such user": await refused(alice.send("nobody-of-this-name", "hi")),
        "no such message": await refused(alice.recall(12345)),
        "not a member": await refused(stage["1002"].history(group="team")),
        "no such action": await refused(alice.act("levitate")),
        "bad params": await refused(alice.act("send", to="bob", txt="typo")),
        "too long": await refused(alice.send("bob", "x" * 200_000)),
        "not an admin": await refused(alice.act("push", uids=["bob"], msg_bodies=[{"text": "spam"}])),
    })  # fmt: skip


async def a_push_reaches_its_users(stage: Stage) -> None:
    headers = {"Authorization": f"Bearer {stage.doors.token('root', is_admin=True)}"}
    body = {"uids": ["alice", "dave", "erin"], "msg_bodies": [{"text": "maintenance at noon"}]}
    async with httpx.AsyncClient(base_url=stage.doors.urls[-1], headers=headers, timeout=20) as http:
        answer = await http.post("/v1/push", json=body)
    assert answer.status_code == 200, answer.text
    for user in ("alice", "dave"):
        message = await wanted(stage[user], lambda message: message.text == "maintenance at noon")
        stage.note(f"pushed to {user}", (message.sender, message.kind))


async def everything_is_in_the_histories_at_the_end(stage: Stage) -> None:
    for user in ("alice", "bob", "carol", "1001", "1002", "dave"):
        for peer in PEOPLE:
            if user != peer:
                page = await stage[user].history(peer, limit=100)
                stage.note(f"history of {user} with {peer}", shown(page.messages))
    for user in PEOPLE:
        for peer in PEOPLE:
            mine, theirs = (stage.transcript.get(f"history of {a} with {b}") for a, b in ((user, peer), (peer, user)))
            assert mine is None or theirs is None or mine == theirs, (user, peer)


STEPS: tuple[Callable[[Stage], Awaitable[None]], ...] = (
    users_are_made_by_an_admin_over_http,
    they_come_in_and_add_each_other,
    everyone_writes_to_everyone,
    a_repeat_is_one_message_whichever_door_it_comes_by,
    a_group_is_made_joined_and_left,
    a_large_group_is_heard_in_its_room,
    who_was_away_gets_everything_in_order,
    who_comes_back_with_a_cursor_gets_what_is_new,
    two_devices_of_one_user_see_the_same,
    a_receipt_and_a_recall_are_told,
    history_comes_in_pages,
    what_is_unread_is_counted_until_it_is_read,
    sync_by_conversation_tells_what_is_missing,
    a_room_hears_everyone_in_the_order_of_each,
    typing_and_presence_are_told_to_contacts,
    whom_one_blocks_one_does_not_hear,
    a_scheduled_message_comes_in_its_time,
    what_is_wrong_is_said_alike,
    a_push_reaches_its_users,
    everything_is_in_the_histories_at_the_end,
)
