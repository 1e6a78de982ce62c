"""What a chat shows, apart from how: conversations, their messages, ticks, unread counts, who types."""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pixiu.model.counted import counted
from pixiu.sdk import Contacts, Message, Place

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["MESSAGES_MAX", "Conversation", "Conversations", "day_of", "described", "name_of", "ticks_of", "time_of"]

MESSAGES_MAX = 2_000
"""Messages of one conversation that are kept here; the oldest go, and scrolling back loads them again."""
TYPING_MS = 4_000
_NOTICES = {
    "contact": "added you as a contact",
    "unlink": "removed you from their contacts",
    "create": "created this group",
    "join": "joined",
    "quit": "left",
    "invite": "was invited",
    "request": "asks to join",
    "invitation": "invites you to a group: /join it to accept",
    "remove": "was removed",
    "mute": "was muted",
    "unmute": "was unmuted",
    "admin": "is now an admin",
    "member": "is no longer an admin",
    "transfer": "is now the owner",
    "history": "changed which earlier messages members can read",
}
_SIGNS = {"with": "", "group": "#", "room": "~"}


def name_of(place: Place) -> str:
    """How a person writes a conversation: ``bob``, ``#team``, ``~lobby``."""
    return _SIGNS[place.kind] + place.name


def place_of(name: str) -> Place:
    """The conversation that a person means."""
    for kind in ("group", "room"):
        if name.startswith(_SIGNS[kind]) and len(name) > 1:
            return Place("group" if kind == "group" else "room", name[1:])
    return Place("with", name.removeprefix("@"))


@dataclass(slots=True)
class Conversation:
    """One of them. Messages are in order, each once."""

    place: Place
    title: str
    unread: int = 0
    messages: list[Message] = field(default_factory=list)
    has_older: bool = True
    is_loaded: bool = False
    is_online: bool = False
    draft: str = ""
    active_at: int = 0
    typing: dict[str, int] = field(default_factory=dict)
    """Who types, until when."""
    _ids: set[int] = field(default_factory=set)

    def add(self, message: Message) -> bool:
        """Put a message where it belongs. False: it was here."""
        if message.message_id in self._ids:
            return False
        self._ids.add(message.message_id)
        insort(self.messages, message, key=lambda each: each.message_id)
        self.active_at = max(self.active_at, message.at)
        if len(self.messages) > MESSAGES_MAX:
            self._ids.discard(self.messages.pop(0).message_id)
            self.has_older = True
        return True

    def change(self, message_id: int, **changes: object) -> Message | None:
        """A message is not what it was: taken back, delivered, read. Returns it as it is now."""
        for index, message in enumerate(self.messages):
            if message.message_id == message_id:
                self.messages[index] = changed = replace(message, **changes)  # type: ignore[arg-type]
                return changed
        return None

    def typists(self, now_ms: int) -> list[str]:
        """Who types now."""
        self.typing = {name: until for name, until in self.typing.items() if until > now_ms}
        return sorted(self.typing)


class Conversations:
    """All of them, the most recent first."""

    def __init__(self, own: str) -> None:
        self.own = own
        self.all: dict[Place, Conversation] = {}

    def open(self, place: Place, title: str = "") -> Conversation:
        """A conversation, which begins here if it is new."""
        found = self.all.get(place)
        if found is None:
            found = self.all[place] = Conversation(place, title or name_of(place))
        elif title:
            found.title = title
        return found

    def in_order(self) -> list[Conversation]:
        """In the order of a list: who was heard last, first."""
        return sorted(self.all.values(), key=lambda each: (-each.active_at, each.title.lower(), each.place))

    def contacts(self, contacts: Contacts) -> None:
        """The server's list, with its unread counts."""
        for contact in (*contacts.contacts, *contacts.others):
            sign = _SIGNS[contact.place.kind]
            found = self.open(contact.place, f"{sign}{contact.name}" if contact.name else "")
            found.unread = contact.unread
            found.active_at = max(found.active_at, contact.at)

    def arrived(self, message: Message, current: Place | None) -> tuple[Conversation, bool]:
        """A message: where it belongs, and whether it is new. It is unread unless its conversation is being read."""
        found = self.open(message.place(self.own))
        is_new = found.add(message)
        found.typing.pop(message.sender, None)
        if is_new and found.place != current and message.sender != self.own and message.kind != "system":
            found.unread += 1
        return found, is_new

    def types(self, place: Place, user: str, now_ms: int) -> Conversation:
        """Someone types."""
        found = self.open(place)
        found.typing[user] = now_ms + TYPING_MS
        return found

    def receipt(self, user: str, message_ids: Iterable[int], kind: str, at: int) -> list[Message]:
        """Someone got or read these. Returns them as they are now."""
        found = self.all.get(Place("with", user))
        if found is None:
            return []
        changes: dict[str, object] = {}
        if kind in ("delivered", "both"):
            changes["delivered_at"] = at
        if kind in ("read", "both"):
            changes["read_at"] = at
        changed = (found.change(message_id, **changes) for message_id in message_ids)
        return [message for message in changed if message is not None]

    def recalled(self, message_id: int) -> tuple[Conversation, Message] | None:
        """A message was taken back."""
        for conversation in self.all.values():
            changed = conversation.change(message_id, is_recalled=True, text="", body=b"")
            if changed is not None:
                return conversation, changed
        return None


def ticks_of(message: Message, own: str) -> str:
    """What became of one's own private message: accepted, delivered, read."""
    if message.sender != own or not message.to or message.to == own or message.is_recalled:
        return ""
    if message.read_at:
        return "✓✓\u00a0read"
    return "✓✓" if message.delivered_at else "✓"


def described(message: Message) -> str:
    """What to show of a message's content."""
    if message.is_recalled:
        return "message recalled"
    if message.is_missing:
        return "message is no longer available"
    if message.kind == "system" and not message.text:
        action = message.fields.get("action", "")
        who = message.fields.get("user") or message.sender
        return f"{who} {_NOTICES.get(action, action)}".strip() or "a notice"
    if message.text:
        return message.text
    return f"[{message.kind}, {counted(len(message.body), 'byte')}]" if message.body else ""


def moment(at: int) -> datetime:
    """A time where the person is."""
    return datetime.fromtimestamp(at / 1000, tz=UTC).astimezone()


def day_of(message: Message) -> str:
    """The day of a message."""
    return f"{moment(message.at):%A %d %B %Y}"


def time_of(message: Message) -> str:
    """The time of a message."""
    return f"{moment(message.at):%H:%M}"
