"""What a client is given: messages, pages, gaps, contacts, groups, and what is told live. Read from JSON here only.

Ids of messages are numbers, as they are compared; public ids and cursors are texts. Times are milliseconds. What a
server leaves out has its default, and what it adds later is not looked at.
"""

from __future__ import annotations

from base64 import b64decode
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = [
    "CaughtUp",
    "Closed",
    "Contact",
    "Contacts",
    "ContactsEvent",
    "Event",
    "Gap",
    "GapEvent",
    "Group",
    "KickEvent",
    "Member",
    "Message",
    "Missed",
    "Online",
    "Page",
    "Place",
    "PresenceEvent",
    "Profile",
    "RecallEvent",
    "ReceiptEvent",
    "RoomPresence",
    "Said",
    "Scheduled",
    "Sent",
    "TypingEvent",
]

Raw = dict[str, Any]


class Place(NamedTuple):
    """Where something is said: with a user, in a group, in a room."""

    kind: Literal["with", "group", "room"]
    name: str


@dataclass(frozen=True, slots=True)
class Message:
    """One message, as its receiver and its sender see it."""

    message_id: int
    sender: str
    at: int
    kind: str = "text"
    text: str = ""
    to: str = ""
    group: str = ""
    room: str = ""
    body: bytes = b""
    """Content that is no plain text."""
    send_id: str = ""
    ref: int = 0
    """The message that this one answers, or takes back."""
    fields: Mapping[str, str] = field(default_factory=dict)
    priority: str = "normal"
    enc: str = ""
    key_print: int = 0
    subtype: int = 0
    previous: int = 0
    """In a large group: the message before. Whoever does not have it has a gap."""
    delivered_at: int = 0
    read_at: int = 0
    is_recalled: bool = False
    is_missing: bool = False
    """Its content is not there any more."""
    is_late: bool = False
    """It was missed before, and comes out of a gap: newer ones were shown already."""
    highlights: tuple[tuple[int, int], ...] = ()
    """Of one that was found: begin and end of what was looked for, in the text."""
    done: Callable[[], object] | None = field(default=None, repr=False, compare=False)

    def ack(self) -> None:
        """It has arrived for good, and so has everything before it. Only needed with ``auto_ack=False``."""
        if self.done is not None:
            self.done()

    def place(self, own: str) -> Place:
        """The conversation that it belongs to, for the user ``own``."""
        if self.room:
            return Place("room", self.room)
        if self.group:
            return Place("group", self.group)
        return Place("with", self.to if self.sender == own else self.sender)

    @classmethod
    def read(cls, raw: Raw, *, is_late: bool = False, done: Callable[[], object] | None = None) -> Message:
        """From what a server says."""
        body = raw.get("body")
        return cls(
            message_id=number(raw.get("message_id")),
            sender=text(raw.get("from")),
            at=number(raw.get("at")),
            kind=text(raw.get("kind")) or "text",
            text=text(raw.get("text")),
            to=text(raw.get("to")),
            group=text(raw.get("group")),
            room=text(raw.get("room")),
            body=b64decode(body) if isinstance(body, str) else b"",
            send_id=text(raw.get("send_id")),
            ref=number(raw.get("ref")),
            fields=raw.get("fields") or {},
            priority=text(raw.get("priority")) or "normal",
            enc=text(raw.get("enc")),
            key_print=number(raw.get("key_print")),
            subtype=number(raw.get("subtype")),
            previous=number(raw.get("prev")),
            delivered_at=number(raw.get("delivered_at")),
            read_at=number(raw.get("read_at")),
            is_recalled=bool(raw.get("recalled")),
            is_missing=bool(raw.get("missing")),
            is_late=is_late,
            highlights=tuple((number(each[0]), number(each[1])) for each in raw.get("highlights") or ()),
            done=done,
        )


@dataclass(frozen=True, slots=True)
class Gap:
    """Messages behind ``after`` and below ``before`` that this client knows it lacks; both ends are known."""

    place: Place
    after: int
    before: int
    is_trimmed: bool = False
    """They are gone for good."""

    def rest(self, oldest: int, *, reaches_end: bool) -> Gap | None:
        """What is left of it after a page that went back from ``before`` to ``oldest``."""
        if reaches_end or oldest <= self.after:
            return None
        return Gap(self.place, self.after, min(self.before, oldest), self.is_trimmed)

    @classmethod
    def read(cls, raw: Raw) -> Gap | None:
        """From what a server says; None if it is a gap of no conversation."""
        if "with" in raw:
            place = Place("with", text(raw["with"]))
        elif "group" in raw:
            place = Place("group", text(raw["group"]))
        else:
            return None
        return cls(place, number(raw.get("after")), number(raw.get("before")), bool(raw.get("trimmed")))


@dataclass(frozen=True, slots=True)
class Page:
    """A page of history, or of what was found, in the order that was asked for."""

    messages: tuple[Message, ...]
    has_more: bool = False
    min: int = 0
    max: int = 0
    is_trimmed: bool = False
    cursor: str = ""
    """Of a search: asks for the next page; empty behind the last."""

    @classmethod
    def read(cls, raw: Raw) -> Page:
        """From what a server says."""
        messages = tuple(map(Message.read, raw.get("messages") or ()))
        return cls(
            messages, bool(raw.get("has_more")), number(raw.get("min")), number(raw.get("max")),
            bool(raw.get("trimmed")), text(raw.get("cursor")),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """What was missed, as far as one page goes."""

    messages: tuple[Message, ...]
    gaps: tuple[Gap, ...]
    has_more: bool = False
    cursor: str = ""
    is_trimmed: bool = False

    @classmethod
    def read(cls, raw: Raw) -> CaughtUp:
        """From what a server says."""
        gaps = tuple(gap for gap in map(Gap.read, raw.get("gaps") or ()) if gap is not None)
        messages = tuple(map(Message.read, raw.get("messages") or ()))
        return cls(messages, gaps, bool(raw.get("has_more")), text(raw.get("cursor")), bool(raw.get("trimmed")))


@dataclass(frozen=True, slots=True)
class Sent:
    """A message that was accepted: it will arrive."""

    message_id: int
    at: int
    send_id: str = ""


@dataclass(frozen=True, slots=True)
class Said:
    """Something that was said in a room, to so many sessions."""

    room: str
    message_id: int
    at: int
    members: int


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A message that waits for its time. ``message`` is what will be said, where it was asked for."""

    schedule_id: int
    at: int
    message: Message | None = None


@dataclass(frozen=True, slots=True)
class Profile:
    """A user."""

    user: str
    name: str = ""
    avatar: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)
    at: int = 0

    @classmethod
    def read(cls, raw: Raw) -> Profile:
        """From what a server says."""
        fields = raw.get("fields") or {}
        return cls(text(raw.get("user")), text(raw.get("name")), text(raw.get("avatar")), fields, number(raw.get("at")))


@dataclass(frozen=True, slots=True)
class Contact:
    """A person or a group on one's list, with what is unread."""

    place: Place
    name: str = ""
    avatar: str = ""
    at: int = 0
    unread: int = 0


@dataclass(frozen=True, slots=True)
class Contacts:
    """One's list in the order of adding, and others with unread messages."""

    contacts: tuple[Contact, ...]
    others: tuple[Contact, ...] = ()
    has_more: bool = False
    """This is the first page of a longer list."""
    invitations: tuple[Contact, ...] = ()
    """Groups that one is invited to: ``join`` accepts, ``quit`` declines."""

    @classmethod
    def read(cls, raw: Raw) -> Contacts:
        """From what a server says."""
        return cls(
            tuple(map(_contact, raw.get("contacts") or ())),
            tuple(map(_contact, raw.get("others") or ())),
            has_more=bool(raw.get("has_more")),
            invitations=tuple(map(_contact, raw.get("invitations") or ())),
        )


def _contact(raw: Raw) -> Contact:
    place = Place("group", text(raw["group"])) if "group" in raw else Place("with", text(raw.get("user")))
    return Contact(
        place, text(raw.get("name")), text(raw.get("avatar")), number(raw.get("at")), number(raw.get("unread"))
    )


@dataclass(frozen=True, slots=True)
class Member:
    """Someone in a group, or someone who asks to be."""

    user: str
    role: str = ""
    at: int = 0
    is_muted: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """A group. Members are told only to members, requests only to its admins."""

    group: str
    name: str = ""
    avatar: str = ""
    owner: str = ""
    at: int = 0
    needs_approval: bool = False
    is_large: bool = False
    history: str = "all"
    """What members read: all, or since_join."""
    is_requested: bool = False
    """You asked to join, and nobody has answered yet."""
    fields: Mapping[str, str] = field(default_factory=dict)
    member_count: int = 0
    members: tuple[Member, ...] = ()
    has_more: bool = False
    requests: tuple[Member, ...] = ()

    @classmethod
    def read(cls, raw: Raw) -> Group:
        """From what a server says."""
        return cls(
            group=text(raw.get("group")),
            name=text(raw.get("name")),
            avatar=text(raw.get("avatar")),
            owner=text(raw.get("owner")),
            at=number(raw.get("at")),
            needs_approval=bool(raw.get("needs_approval")),
            is_large=bool(raw.get("is_large")),
            history=text(raw.get("history")) or "all",
            is_requested=bool(raw.get("is_requested")),
            fields=raw.get("fields") or {},
            member_count=number(raw.get("member_count")),
            members=tuple(map(_member, raw.get("members") or ())),
            has_more=bool(raw.get("has_more")),
            requests=tuple(map(_member, raw.get("requests") or ())),
        )


def _member(raw: Raw) -> Member:
    return Member(text(raw.get("user")), text(raw.get("role")), number(raw.get("at")), bool(raw.get("is_muted")))


# What is told live, beside messages.


@dataclass(frozen=True, slots=True)
class Online:
    """The connection stands: what was missed follows, then what is said."""


@dataclass(frozen=True, slots=True)
class Closed:
    """The connection is gone; the next try comes in ``retry_ms``. None: there is none."""

    reason: str
    retry_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ContactsEvent:
    """One's list, as it is when a connection begins."""

    contacts: Contacts


@dataclass(frozen=True, slots=True)
class ReceiptEvent:
    """Someone got or read what you sent."""

    user: str
    message_ids: tuple[int, ...]
    kind: str
    at: int


@dataclass(frozen=True, slots=True)
class RecallEvent:
    """A message was taken back: show it no more."""

    message_id: int
    message: Message
    """The message that takes it back; its ``place`` is where."""


@dataclass(frozen=True, slots=True)
class PresenceEvent:
    """A user whom you watch has come or gone."""

    user: str
    state: str


@dataclass(frozen=True, slots=True)
class RoomPresence:
    """How many listen in a room. ``is_in`` is false when you were put out of it."""

    room: str
    members: int = 0
    users: int = 0
    is_in: bool = True
    reason: str = ""


@dataclass(frozen=True, slots=True)
class TypingEvent:
    """Someone types, in the conversation ``place``."""

    place: Place
    user: str


@dataclass(frozen=True, slots=True)
class SignalEvent:
    """A live message, which no server stores: it has no message_id."""

    message: Message


@dataclass(frozen=True, slots=True)
class GapEvent:
    """Messages are missing here until the gap is closed."""

    gap: Gap


@dataclass(frozen=True, slots=True)
class Missed:
    """Live messages that gave way to newer ones, and are stored nowhere. Without a room: other live events."""

    count: int
    room: str = ""


@dataclass(frozen=True, slots=True)
class KickEvent:
    """The server ends the session, for this reason."""

    reason: str


Event = (
    Online
    | Closed
    | ContactsEvent
    | ReceiptEvent
    | RecallEvent
    | PresenceEvent
    | RoomPresence
    | TypingEvent
    | SignalEvent
    | GapEvent
    | Missed
    | KickEvent
)


def event_of(raw: Raw) -> Event | None:
    """A push that is no message, as an event; None for what this client does not know."""
    match raw.get("push"):
        case "contacts":
            return ContactsEvent(Contacts.read(raw))
        case "receipt":
            ids = tuple(map(number, raw.get("message_ids") or ()))
            return ReceiptEvent(text(raw.get("with")), ids, text(raw.get("kind")), number(raw.get("at")))
        case "presence" if "room" in raw:
            return RoomPresence(
                text(raw["room"]), number(raw.get("members")), number(raw.get("users")),
                raw.get("is_in") is not False, text(raw.get("reason")),
            )  # fmt: skip
        case "presence":
            return PresenceEvent(text(raw.get("user")), text(raw.get("state")))
        case "typing" if "group" in raw:
            return TypingEvent(Place("group", text(raw["group"])), text(raw.get("from")))
        case "typing":
            user = text(raw.get("with"))
            return TypingEvent(Place("with", user), user)
        case "signal" if isinstance(raw.get("message"), dict):
            return SignalEvent(Message.read(raw["message"]))
        case "gap" if "missed" in raw:
            return Missed(number(raw["missed"]), text(raw.get("room")))
        case "gap":
            gap = Gap.read(raw)
            return None if gap is None else GapEvent(gap)
        case "kick":
            return KickEvent(text(raw.get("reason")))
        case _:
            return None


def number(value: object) -> int:
    """A number that may be a text; 0 if it is neither."""
    if isinstance(value, str):
        try:
            return int(value)
        except ValueError:
            return 0
    return value if isinstance(value, int) else 0


def text(value: object) -> str:
    """A text that may be a number; empty if it is neither."""
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else ""
