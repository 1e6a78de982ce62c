"""What a person can type in a chat: a line to say, or a command after a slash."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.cli.chat.conversations import described, name_of, place_of
from pixiu.cli.shown import shown
from pixiu.model.errors import RequestError
from pixiu.sdk import Message, Place

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pixiu.cli.chat.conversations import Conversations
    from pixiu.sdk import Client

__all__ = ["EXIT", "HELP", "Commands"]

QUOTED_MAX = 60

EXIT = ("/exit", "/quit")
"""What ends the chat, and changes nothing else."""

HELP = """\
/to NAME            open a conversation; #GROUP and ~ROOM work too
/contact NAME       add a person to your contacts and see when they are online
/group NAME [WHO …] create a group
/join GROUP         join a group
/invite WHO         add a person to this group
/transfer WHO       make a member the owner of this group (asks first)
/room NAME          enter a room: live messages that are not stored
/leave              leave this group (asks first) or this room
/recall             recall your last message here (asks first)
/yes                confirm what was asked
/who                list who is here
/help               show this list
/exit, /quit        end the chat; you stay in your groups"""


class Commands:
    """Runs what was typed. Errors are ``PixiuError``; the text to show is returned.

    A command that cannot be undone returns a question. ``/yes`` as the next line runs it; any other line cancels it.
    """

    def __init__(self, me: Client, conversations: Conversations, turn: Callable[[Place], Awaitable[None]]) -> None:
        """``turn`` opens another conversation."""
        self._me = me
        self._all = conversations
        self._turn = turn
        self._asked: Callable[[], Awaitable[str | Message | None]] | None = None

    async def do(self, line: str, current: Place | None) -> str | Message | None:
        """Send a line to the current conversation, or run a command. A ``Message`` was sent, or recalled."""
        asked, self._asked = self._asked, None
        if not line.startswith("/") or line.startswith("//"):
            return await self._say(line.removeprefix("/") if line.startswith("//") else line, current)
        word, _, rest = line[1:].partition(" ")
        words = rest.split()
        match word, words:
            case "help", _:
                return HELP
            case "yes", []:
                if asked is None:
                    raise RequestError("nothing to confirm: /yes follows a question")
                return await asked()
            case "to", [name]:
                await self._turn(place_of(name))
            case "contact", [name]:
                await self._me.contact(name)
                await self._turn(Place("with", name))
            case "group", [name, *members]:
                await self._me.create_group(name, name=name, members=members)
                await self._turn(Place("group", name))
            case "join", [name]:
                group = await self._me.join(name.removeprefix("#"))
                if group.is_requested:
                    return f"You asked to join #{group.group}. An admin of the group decides."
                await self._turn(Place("group", group.group))
            case "room", [name]:
                await self._me.enter(name.removeprefix("~"))
                await self._turn(Place("room", name.removeprefix("~")))
            case (("invite" | "transfer" | "leave" | "recall" | "who"), _):
                return await self._here(word, words, current)
            case _:
                raise RequestError(f"no command /{line[1:40]}; /help lists them")
        return None

    async def _here(self, word: str, words: list[str], current: Place | None) -> str | Message | None:
        """What is about the conversation that is open."""
        if current is None:
            raise RequestError("open a conversation first: /to NAME")
        match word, current.kind, words:
            case "invite", "group", [user]:
                await self._me.manage(current.name, user, "invite")
                return f"{user} is in {name_of(current)}"
            case "transfer", "group", [user]:
                return self._ask(f"Make {user} the owner of {name_of(current)}?", lambda: self._transfer(current, user))
            case "leave", "group", []:
                question = f"Leave {name_of(current)}? You can no longer read its messages."
                return self._ask(question, lambda: self._leave(current))
            case "leave", "room", []:
                return await self._leave(current)
            case "recall", ("with" | "group"), []:
                last = self._last_own(current)
                question = f'Recall "{shown(described(last))[:QUOTED_MAX]}"? Its content is removed for everyone.'
                return self._ask(question, lambda: self._recall(current, last.message_id))
            case "who", "group", []:
                group = await self._me.group(current.name)
                names = sorted(member.user for member in group.members)
                return f"{group.member_count} in {name_of(current)}: {', '.join(names)}"
            case "who", "with", []:
                states = await self._me.presence()
                return f"{current.name}: {states.get(current.name, 'presence is not shared with you')}"
            case _:
                raise RequestError(f"/{word} is not for {name_of(current)}; see /help")

    def _ask(self, question: str, run: Callable[[], Awaitable[str | Message | None]]) -> str:
        self._asked = run
        return f"{question} Type /yes to confirm."

    async def _transfer(self, place: Place, user: str) -> str:
        await self._me.manage(place.name, user, "transfer")
        return f"{user} owns {name_of(place)} now"

    async def _leave(self, place: Place) -> str:
        await (self._me.quit(place.name) if place.kind == "group" else self._me.leave(place.name))
        return f"You have left {name_of(place)}."

    async def _recall(self, place: Place, message_id: int) -> Message | None:
        await self._me.recall(message_id)
        return self._all.open(place).change(message_id, is_recalled=True, text="", body=b"")

    def _last_own(self, place: Place) -> Message:
        for message in reversed(self._all.open(place).messages):
            if message.sender == self._me.name and message.kind != "system" and not message.is_recalled:
                return message
        raise RequestError("there is nothing of yours here to recall")

    async def _say(self, text: str, current: Place | None) -> Message | None:
        if not text.strip():
            return None
        if current is None:
            raise RequestError("open a conversation first: /to NAME")
        name, own = current.name, self._me.name
        if current.kind == "room":
            said = await self._me.say(name, text)
            return Message(said.message_id, own, said.at, text=text, room=name)
        if current.kind == "group":
            sent = await self._me.gsend(name, text)
            return Message(sent.message_id, own, sent.at, text=text, group=name)
        sent = await self._me.send(name, text)
        return Message(sent.message_id, own, sent.at, text=text, to=name)
