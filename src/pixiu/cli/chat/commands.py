"""What a person can type in a chat: a line to say, or a command after a slash."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.cli.chat.conversations import name_of, place_of
from pixiu.model.errors import RequestError
from pixiu.sdk import Message, Place

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pixiu.cli.chat.conversations import Conversations
    from pixiu.sdk import Client

__all__ = ["HELP", "Commands"]

HELP = """\
/to NAME            talk with someone; #GROUP and ~ROOM work too
/contact NAME       add someone to your list, and see who is there
/group NAME [WHO …] make a group
/join GROUP         join a group
/invite WHO         into this group
/quit               leave this group
/room NAME          enter a room: talk that nobody keeps
/leave              leave this room
/recall             take back the last thing you said here
/who                who is here
/help               this
/exit               end"""


class Commands:
    """Does what was typed. Errors are ``PixiuError``; what is to be shown is returned as a text."""

    def __init__(self, me: Client, conversations: Conversations, turn: Callable[[Place], Awaitable[None]]) -> None:
        """``turn`` opens another conversation."""
        self._me = me
        self._all = conversations
        self._turn = turn

    async def do(self, line: str, current: Place | None) -> str | Message | None:
        """Say a line in the current conversation, or do a command. A ``Message`` was said, or taken back."""
        if not line.startswith("/") or line.startswith("//"):
            return await self._say(line.removeprefix("/") if line.startswith("//") else line, current)
        word, _, rest = line[1:].partition(" ")
        words = rest.split()
        match word, words:
            case "help", _:
                return HELP
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
                    return f"asked to join #{group.group}; an admin decides"
                await self._turn(Place("group", group.group))
            case "room", [name]:
                await self._me.enter(name.removeprefix("~"))
                await self._turn(Place("room", name.removeprefix("~")))
            case (("invite" | "quit" | "leave" | "recall" | "who"), _):
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
            case "quit", "group", []:
                await self._me.quit(current.name)
                return f"you are out of {name_of(current)}"
            case "leave", "room", []:
                await self._me.leave(current.name)
                return f"you are out of {name_of(current)}"
            case "recall", ("with" | "group"), []:
                message_id = self._last_own(current).message_id
                await self._me.recall(message_id)
                return self._all.open(current).change(message_id, is_recalled=True, text="", body=b"")
            case "who", "group", []:
                group = await self._me.group(current.name)
                names = sorted(member.user for member in group.members)
                return f"{group.member_count} in {name_of(current)}: {', '.join(names)}"
            case "who", "with", []:
                states = await self._me.presence()
                return f"{current.name}: {states.get(current.name, 'not one of your contacts')}"
            case _:
                raise RequestError(f"/{word} is not for {name_of(current)}; see /help")

    def _last_own(self, place: Place) -> Message:
        for message in reversed(self._all.open(place).messages):
            if message.sender == self._me.name and message.kind != "system" and not message.is_recalled:
                return message
        raise RequestError("you have said nothing here that could be taken back")

    async def _say(self, text: str, current: Place | None) -> Message | None:
        if not text.strip():
            return None
        if current is None:
            raise RequestError("say to whom first: /to NAME")
        name, own = current.name, self._me.name
        if current.kind == "room":
            said = await self._me.say(name, text)
            return Message(said.message_id, own, said.at, text=text, room=name)
        if current.kind == "group":
            sent = await self._me.gsend(name, text)
            return Message(sent.message_id, own, sent.at, text=text, group=name)
        sent = await self._me.send(name, text)
        return Message(sent.message_id, own, sent.at, text=text, to=name)
