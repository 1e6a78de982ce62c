"""Every action of a server as a method with types. What each does and who may is in docs/messaging.md."""

from __future__ import annotations

from abc import ABC, abstractmethod
from base64 import b64encode
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

from pixiu.machines.client_session.values import (
    CaughtUp,
    Contacts,
    Group,
    Message,
    Page,
    Profile,
    Said,
    Scheduled,
    Sent,
    number,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["Actions", "Content"]

Id = int | str
Op = Literal["approve", "refuse", "invite", "remove", "mute", "unmute", "admin", "member", "transfer", "history"]
History = Literal["all", "since_join"]
PushProvider = Literal["apns", "fcm", "webhook"]


class Content(TypedDict, total=False):
    """What a message may have beside its text."""

    body: bytes
    """In place of the text, with a ``kind``."""
    kind: str
    send_id: str
    """Your token of this send; one is made up otherwise."""
    ref: Id
    """The message that this one answers."""
    fields: Mapping[str, str]
    priority: Literal["low", "normal", "high"]
    enc: str
    key_print: Id
    subtype: int
    timeout_seconds: float
    """Until the client gives up, over all its connections."""


class Actions(ABC):
    """What a session can do. Errors are of ``pixiu.model.errors``, with a ``code``."""

    @abstractmethod
    async def act(self, action: str, *, timeout_seconds: float | None = None, **params: Any) -> dict[str, Any]:
        """Any action, by its name on the wire; words of Python's get an underscore: ``with_``. None is left out."""

    @abstractmethod
    def new_send_id(self) -> str:
        """A token that no other send has."""

    # Saying something.

    async def send(self, to: str, text: str | None = None, **content: Unpack[Content]) -> Sent:
        """Send a private message. Returns when it is safe on the server; repeated until then, and stored once."""
        return _sent(await self._say("send", {"to": to}, text, content))

    async def gsend(self, group: str, text: str | None = None, **content: Unpack[Content]) -> Sent:
        """Send a message to a group."""
        return _sent(await self._say("gsend", {"group": group}, text, content))

    async def signal(
        self, to: str, text: str | None = None, *, body: bytes | None = None, kind: str | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> int | None:  # fmt: skip
        """Send a live message that is never stored. Returns how many sessions of the user it went to; 0: dropped.

        None if you may not see the user's presence. The user must be a contact, or in a group that you are in.
        """
        packed = None if body is None else b64encode(body).decode()
        answer = await self.act("signal", to=to, text=text, body=packed, kind=kind, fields=fields)
        delivered = answer.get("delivered")
        return None if delivered is None else number(delivered)

    async def schedule(
        self, at: int, text: str | None = None, *, to: str | None = None, group: str | None = None,
        **content: Unpack[Content],
    ) -> Scheduled:  # fmt: skip
        """Send a message at a time, in milliseconds since the epoch."""
        answer = await self._say("schedule", {"at": at, "to": to, "group": group}, text, content)
        return Scheduled(number(answer.get("schedule_id")), number(answer.get("at")))

    async def unschedule(self, schedule_id: Id) -> None:
        """Drop a scheduled message."""
        await self.act("unschedule", schedule_id=str(schedule_id))

    async def scheduled(self) -> tuple[Scheduled, ...]:
        """One's own messages that wait for their time."""
        rows = (await self._pages("scheduled", "scheduled"))["scheduled"]
        return tuple(
            Scheduled(number(row.get("schedule_id")), number(row.get("at")), Message.read(row)) for row in rows
        )

    async def _pages(self, action: str, *lists: str) -> dict[str, list[dict[str, Any]]]:
        """Every page of a list, joined."""
        found: dict[str, list[dict[str, Any]]] = {name: [] for name in lists}
        cursor: str | None = None
        while True:
            page = await self.act(action, cursor=cursor)
            for name in lists:
                found[name] += page.get(name) or ()
            cursor = page.get("cursor") if page.get("has_more") else None
            if not cursor:
                return found

    async def recall(self, message_id: Id) -> None:
        """Take a message back, for everyone and for good."""
        await self.act("recall", message_id=str(message_id))

    async def _say(
        self, action: str, where: dict[str, Any], text: str | None, content: Content
    ) -> dict[str, Any]:  # fmt: skip
        params: dict[str, Any] = {**where, "text": text, **content}
        timeout_seconds = params.pop("timeout_seconds", None)
        if isinstance(params.get("body"), bytes | bytearray | memoryview):
            params["body"] = b64encode(params["body"]).decode()
        if not params.get("send_id"):
            params["send_id"] = self.new_send_id()
        answer = await self.act(action, timeout_seconds=timeout_seconds, **params)
        return {**answer, "send_id": params["send_id"]}

    # Reading.

    async def history(
        self,
        with_: str | None = None,
        *,
        group: str | None = None,
        before: Id | None = None,
        after: Id | None = None,
        limit: int | None = None,
        direction: Literal["forward", "backward"] | None = None,
    ) -> Page:
        """A page of a conversation, newest first; with only ``after``, oldest first. Bounds are exclusive."""
        return Page.read(
            await self.act(
                "history", with_=with_, group=group, before=_id(before), after=_id(after), limit=limit,
                direction=direction,
            )
        )  # fmt: skip

    async def sync(
        self,
        with_: str | Mapping[str, Id] | None = None,
        *,
        group: str | Mapping[str, Id] | None = None,
        last: Id | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> CaughtUp:
        """What was missed: from a cursor, or by conversation from the last message that is here."""
        return CaughtUp.read(
            await self.act("sync", with_=_lasts(with_), group=_lasts(group), last=_id(last), cursor=cursor, limit=limit)
        )

    async def receive(self, *, start: str | None = None, limit: int | None = None) -> CaughtUp:
        """What waits in the inbox of this platform. ``messages()`` brings it by itself."""
        return CaughtUp.read(await self.act("receive", start=start, limit=limit))

    async def read(self, with_: str | None = None, *, group: str | None = None, through: Id | None = None) -> int:
        """A conversation is read, through a message or all of it. Returns how many are unread still."""
        return number((await self.act("read", with_=with_, group=group, through=_id(through))).get("unread"))

    async def receipt(self, message_ids: Iterable[Id], kind: Literal["delivered", "read", "both"] = "read") -> int:
        """Tell the senders that these were delivered or read. Returns how many did not know."""
        ids = [str(each) for each in message_ids]
        return number((await self.act("receipt", message_ids=ids, kind=kind)).get("marked"))

    async def search(
        self,
        q: str,
        *,
        with_: str | None = None,
        group: str | None = None,
        order: Literal["newest", "relevance"] | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page:
        """Messages that contain something, newest first; ``Unavailable`` where the server has no index.

        ``q`` is words, "phrases", and ``from:`` ``in:`` ``before:`` ``after:``. ``cursor`` of a page asks for the next.
        """
        return Page.read(
            await self.act("search", q=q, with_=with_, group=group, order=order, limit=limit, cursor=cursor)
        )

    # People.

    async def create_user(
        self, user: str | None = None, *, name: str | None = None, avatar: str | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> Profile:  # fmt: skip
        """Create a user, or change one's own profile."""
        return Profile.read(await self.act("create_user", user=user, name=name, avatar=avatar, fields=fields))

    async def user(self, user: str | None = None) -> Profile:
        """A user; without a name, oneself."""
        return Profile.read(await self.act("user", user=user))

    async def contact(self, user: str) -> Contacts:
        """Add a user to one's list. Returns that contact alone; ``contacts`` gives the list."""
        return Contacts.read(await self.act("contact", user=user))

    async def unlink(self, user: str) -> Contacts:
        """Remove a user from one's list. Returns no contact."""
        return Contacts.read(await self.act("unlink", user=user))

    async def contacts(self) -> Contacts:
        """One's whole list of people and groups, with unread counts, read page by page."""
        return Contacts.read(await self._pages("contacts", "contacts", "others", "invitations"))

    async def block(self, user: str) -> Contacts:
        """Refuse messages of a user from now on. Returns the user's contact, if there is one."""
        return Contacts.read(await self.act("block", user=user))

    async def unblock(self, user: str) -> Contacts:
        """Accept messages of that user again. Returns the user's contact, if there is one."""
        return Contacts.read(await self.act("unblock", user=user))

    # Phones.

    async def register_push(self, provider: PushProvider, token: str, *, topic: str | None = None) -> dict[str, Any]:
        """Let this device be told through a provider while it is away."""
        return await self.act("register_push", provider=provider, token=token, topic=topic)

    async def unregister_push(self) -> dict[str, Any]:
        """Let this device be told no more."""
        return await self.act("unregister_push")

    # Groups.

    async def create_group(
        self,
        group: str | None = None,
        *,
        name: str | None = None,
        avatar: str | None = None,
        members: Iterable[str] | None = None,
        needs_approval: bool | None = None,
        history: History | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> Group:
        """Create a group that one owns."""
        invited = None if members is None else list(members)
        return Group.read(
            await self.act(
                "create_group", group=group, name=name, avatar=avatar, members=invited,
                needs_approval=needs_approval, history=history, fields=fields,
            )
        )  # fmt: skip

    async def group(self, group: str, *, offset: int | None = None) -> Group:
        """A group; its members, a thousand from ``offset``, to members; every request to join, to admins."""
        answer = await self.act("group", group=group, offset=offset)
        requests = list(answer.get("requests") or ())
        cursor = answer.get("requests_cursor")
        while cursor:
            page = await self.act("group", group=group, requests_cursor=cursor)
            requests += page.get("requests") or ()
            cursor = page.get("requests_cursor")
        return Group.read({**answer, "requests": requests})

    async def join(self, group: str) -> Group:
        """Join a group, or ask to."""
        return Group.read(await self.act("join", group=group))

    async def quit(self, group: str) -> Group:
        """Leave a group."""
        return Group.read(await self.act("quit", group=group))

    async def manage(self, group: str, user: str | None, op: Op, *, history: History | None = None) -> None:
        """Change someone's place in a group; with the op ``history`` and no user, what members read of it."""
        await self.act("manage", group=group, user=user, op=op, history=history)

    # What is live.

    async def enter(self, room: str) -> int:
        """Listen in a room, also after a reconnect. Returns how many listen."""
        return number((await self.act("enter", room=room)).get("members"))

    async def leave(self, room: str) -> int:
        """Listen in a room no more."""
        return number((await self.act("leave", room=room)).get("members"))

    async def say(
        self,
        room: str,
        text: str,
        *,
        reliable: bool = False,
        send_id: str | None = None,
        priority: Literal["low", "normal", "high"] = "normal",
    ) -> Said:
        """Say something to everyone in a room. Nothing of it is stored; a cut connection may lose it.

        For a listener that reads slowly, messages of priority ``high`` are sent first, and ``low`` ones dropped first.
        """
        params: dict[str, Any] = {"room": room, "text": text, "send_id": send_id or self.new_send_id()}
        if reliable:
            params["class"] = "reliable"
        if priority != "normal":
            params["priority"] = priority
        answer = await self.act("say", **params)
        return Said(
            str(answer.get("room")), number(answer.get("message_id")), number(answer.get("at")),
            number(answer.get("members")),
        )  # fmt: skip

    async def typing(self, with_: str | None = None, *, group: str | None = None) -> None:
        """Tell the others that one types."""
        await self.act("typing", with_=with_, group=group)

    async def presence(self, users: Iterable[str] | None = None) -> dict[str, str]:
        """Who of these contacts is there, and from now on an event for who comes and goes. None: all contacts."""
        wanted = None if users is None else list(users)
        states = (await self.act("presence", users=wanted)).get("states") or {}
        return {str(user): str(state) for user, state in states.items()}


def _sent(answer: dict[str, Any]) -> Sent:
    return Sent(number(answer.get("message_id")), number(answer.get("at")), str(answer["send_id"]))


def _id(value: Id | None) -> str | None:
    return None if value is None else str(value)


def _lasts(value: str | Mapping[str, Id] | None) -> str | dict[str, str] | None:
    return value if value is None or isinstance(value, str) else {name: str(last) for name, last in value.items()}
