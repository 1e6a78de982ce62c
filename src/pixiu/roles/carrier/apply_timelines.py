"""The lane of timelines, recent caches and unread counts: what was said, and what of it was not read.

Unread counts are in this lane because a reading is answered from timelines: how many messages lie behind the one that
was read. In another lane the answer would depend on how far this one has come.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pixiu.model.body import body_of, tombstone
from pixiu.model.conversation import Direct, InGroup
from pixiu.model.errors import Unavailable
from pixiu.model.pixiu_pb2 import DELETE, SYSTEM, MemberChanged, MsgChat, Record
from pixiu.model.timeline import GroupRow, PrivateRow, State
from pixiu.ports.stores import Lane
from pixiu.roles.carrier.apply_erasure import TimelineErasure
from pixiu.roles.carrier.apply_trim import TimelineTrim, last_trimmed
from pixiu.roles.carrier.audience import Audience, group_of
from pixiu.roles.carrier.releases import Releases

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.ports.log import LogRecord
    from pixiu.ports.stores import Stores
    from pixiu.ports.streams import Streams
    from pixiu.roles.carrier.reached import Reached

__all__ = ["Marked", "Said", "TimelineApplier"]

_PAGE = 100
_COUNTED_MAX = 1_000
"""Messages behind the last one read that are counted out, in one turn of the event loop."""
_COUNTED_BYTES_MAX = 4 * 2**20
"""Bytes of their bodies, which must be looked at."""
_REMEMBERED_MAX = 100_000
_new = tuple.__new__
"""Makes a named tuple in half the time."""


class Said(NamedTuple):
    """A message of a large group: it enters no inbox, the group's room is told."""

    group: int
    message_id: int
    previous: int
    """The group's message before it: whoever does not have that has missed something."""
    body: bytes


class Marked(NamedTuple):
    """Receipts that were new: the sender's sessions are told."""

    from_user: int
    peer: int
    message_ids: list[int]
    is_delivered: bool
    is_read: bool
    at: int


class TimelineApplier:
    """Applies records to timelines, recent caches and unread counts; gathers what is to be told live."""

    def __init__(self, stores: Stores, reached: Reached) -> None:
        self._timelines = stores.timelines
        self._recent = stores.recent
        self._streams: Streams | None = getattr(stores, "streams", None)  # of engines that others read
        self._unread = stores.unread
        self._groups = stores.groups
        self._bodies = stores.bodies
        self._reached = reached
        self._audience = Audience(stores.groups, reached)
        # Timelines may be of another engine that is behind: what it drops once more was released long ago.
        self._releases = Releases(stores.bodies, stores.bodies_applied(Lane.TIMELINES))
        self._erasure = TimelineErasure(stores, reached, self._releases)
        self._trim = TimelineTrim(stores, reached, self._releases)
        self._stores = stores
        self._last: dict[int, int] = {}
        self._marked: list[Marked] = []
        self._said: list[Said] = []
        self._changes: dict[str, Callable[[LogRecord, Record], None]] = {
            "contact": self._contact,
            "group_info": self._group_info,
            "member": self._member,
            "recalled": self._recalled,
            "receipt": self._receipt,
            "read": self._read,
            "erased": self._erased,
            "trimmed": self._trimmed,
        }

    def apply(self, record: LogRecord, parsed: Record) -> None:
        """Apply one record, once."""
        event_id = record.event_id
        if event_id <= self._reached.timelines:
            return
        what = parsed.WhichOneof("what")
        if what is None:
            self._message(record, parsed)
        else:
            change = self._changes.get(what)
            if change is not None:
                change(record, parsed)
        self._reached.timelines = event_id

    @property
    def is_midway(self) -> bool:
        """Do the stores hold half a record?"""
        return bool(self._releases.ids)

    def take_marked(self) -> list[Marked]:
        """New receipts since the last time."""
        marked, self._marked = self._marked, []
        return marked

    def take_said(self) -> list[Said]:
        """Messages of large groups since the last time."""
        said, self._said = self._said, []
        return said

    # Messages.

    def _message(self, record: LogRecord, parsed: Record) -> None:
        to = parsed.to
        if to:
            actor = parsed.actor
            self._put_private(record.message_id, actor, to)
            if self._streams is not None:
                self._stream_private(record, parsed)
            if actor != to:
                self._unread.add(to, _new(Direct, (actor, "u")), record.event_id)
        elif group := parsed.group:
            event_id, actor = record.event_id, parsed.actor
            members = self._say(group, actor, record, parsed)
            if members is not None:
                conversation = InGroup(group)
                add = self._unread.add
                for user in members:
                    if user != actor:
                        add(user, conversation, event_id)

    def _put_private(self, message_id: int, actor: int, to: int) -> None:
        """Write diffusion: a row at each side; the system and a note to oneself have one side."""
        put = self._timelines.put_private
        if actor != to and actor:
            put(actor, _new(PrivateRow, (message_id, to, False, 0, 0, 0)))
        put(to, _new(PrivateRow, (message_id, actor, True, 0, 0, 0)))

    def _stream_private(self, record: LogRecord, parsed: Record) -> None:
        if self._streams is not None and parsed.chat and parsed.to:
            event_id, message_id = record.event_id, record.message_id
            self._streams.say_to_user(event_id, message_id, parsed.actor, parsed.to, parsed.chat)

    def _say(self, group: int, actor: int, record: LogRecord, parsed: Record) -> list[int] | None:
        """Read diffusion: one row, whatever the number of members. Returns the members; None for a large group."""
        message_id = record.message_id
        members = self._audience.of(group, record.event_id)
        previous = self._last.get(group, message_id)
        if previous >= message_id:
            # Not known, or noted by an attempt at this very record that failed later on.
            rows = self._timelines.group_backward(group, before=message_id, limit=1)
            previous = rows[0].message_id if rows else self._last_trimmed(group, message_id)
        self._timelines.put_group(group, GroupRow(message_id, actor, previous))
        if len(self._last) >= _REMEMBERED_MAX:
            self._last.clear()
        self._last[group] = message_id
        if self._streams is not None and parsed.chat:
            self._streams.say_in_group(record.event_id, message_id, actor, group, members or (), parsed.chat)
        if members is None or self._recent.is_warm(group):
            body = body_of(parsed.chat, message_id)
            self._recent.push(group, message_id, body)
            if members is None:
                self._said.append(Said(group, message_id, previous, body))
        return members

    def _last_trimmed(self, group: int, before: int) -> int:
        """The message before this one, where it has gone with all the others."""
        last = last_trimmed(self._stores, group)
        return last if last < before else 0

    # Changes.

    def _contact(self, record: LogRecord, parsed: Record) -> None:
        self._stream_private(record, parsed)
        change = parsed.contact
        if not change.is_linked:
            self._unread.drop(change.user, Direct(change.peer))

    def _group_info(self, record: LogRecord, parsed: Record) -> None:
        self._audience.forget(parsed.group_info.group)
        number = parsed.group_info.group or record.message_id
        self._notice(record, parsed, "group_info")
        if self._audience.of(number, record.event_id) is None:
            return
        for member in self._groups.members(number, at=record.event_id):
            if member.joined == record.event_id:
                self._unread.set(member.user, InGroup(number), 0, record.event_id)

    def _member(self, record: LogRecord, parsed: Record) -> None:
        change = parsed.member
        self._audience.forget(change.group)
        self._notice(record, parsed, "member")
        if change.op == MemberChanged.QUIT:
            self._unread.drop(change.user, InGroup(change.group))
        elif change.op == MemberChanged.JOIN:
            self._unread.set(change.user, InGroup(change.group), 0, record.event_id)

    def _notice(self, record: LogRecord, parsed: Record, what: str) -> None:
        """Notices are part of what was said in a group, and nobody has to read them."""
        group = group_of(record, parsed, what)
        if group:
            self._say(group, parsed.actor, record, parsed)

    def _recalled(self, record: LogRecord, parsed: Record) -> None:
        if parsed.to and parsed.chat:
            self._put_private(record.message_id, parsed.actor, parsed.to)
            self._stream_private(record, parsed)
        else:
            self._notice(record, parsed, "recalled")
        change = parsed.recalled
        message_id, from_user = change.message_id, getattr(change, "from")
        if self._streams is not None:
            self._streams.unsay(message_id, user=change.to, group=change.group)
        if change.group:
            self._timelines.recall_group(change.group, message_id)
            body = tombstone(message_id, from_id=from_user, to_id=change.group, is_group=True)
            self._recent.replace(change.group, message_id, body)
        else:
            for user in sorted({from_user, change.to} - {0}):
                self._timelines.recall_private(user, message_id)

    def _receipt(self, _: LogRecord, parsed: Record) -> None:
        """Note receipts in the sender's rows, where they are the sender's own rows to this peer."""
        change = parsed.receipt
        sender, peer = getattr(change, "from"), change.peer
        delivered_at = parsed.at if change.is_delivered else 0
        read_at = parsed.at if change.is_read else 0
        new: list[int] = []
        for message_id in change.message_ids:
            row = self._timelines.private_row(sender, message_id)
            if row is None or row.is_incoming or row.peer != peer:
                continue
            if self._timelines.mark(sender, message_id, delivered_at=delivered_at, read_at=read_at):
                new.append(message_id)
        if new:
            self._marked.append(Marked(sender, peer, new, change.is_delivered, change.is_read, parsed.at))

    def _erased(self, record: LogRecord, parsed: Record) -> None:
        self._erasure.erase(parsed.erased.user, record.event_id)

    def _trimmed(self, record: LogRecord, parsed: Record) -> None:
        self._trim.trim(parsed.trimmed, record.event_id)

    # Reading.

    def _read(self, record: LogRecord, parsed: Record) -> None:
        """Count again what lies behind the last message that was read.

        A read that leaves more than ``_COUNTED_MAX`` messages or ``_COUNTED_BYTES_MAX`` behind it leaves the count.
        """
        change = parsed.read
        user, group, through = change.user, change.group, change.through
        if group and self._audience.of(group, record.event_id) is None:
            return
        conversation = InGroup(group) if group else Direct(change.peer)
        present = self._unread.get(user, conversation)
        count = looked = size = 0
        while count < present:
            if looked >= _COUNTED_MAX or size >= _COUNTED_BYTES_MAX:
                count = present
                break
            if group:
                rows = self._timelines.group_forward(group, after=through, limit=_PAGE)
                ids = [row.message_id for row in rows if row.from_user != user and row.state != State.RECALLED]
                looked += len(rows)
                last = rows[-1].message_id if rows else 0
            else:
                private = self._timelines.private_forward(user, after=through, limit=_PAGE, peer=change.peer)
                ids = [row.message_id for row in private if row.is_incoming and row.state != State.RECALLED]
                looked += len(private)
                last = private[-1].message_id if private else 0
            if not last:
                break
            bodies = self._bodies_of(ids)
            size += sum(map(len, bodies))
            count += len(ids) - _uncounted(bodies, is_group=bool(group))
            through = last
        self._unread.set(user, conversation, min(count, present), record.event_id)

    def _bodies_of(self, message_ids: list[int]) -> list[bytes]:
        if self._reached.inboxes < self._reached.timelines:
            raise Unavailable(f"inboxes are at event {self._reached.inboxes}, and their bodies must be looked at")
        return list(self._bodies.get(message_ids).values())


def _uncounted(bodies: list[bytes], *, is_group: bool) -> int:
    """How many of these nobody has to read: recalls and a group's notices raised no count, so they do not count now."""
    chats = map(MsgChat.FromString, bodies)
    return sum(chat.msgType == DELETE or (is_group and chat.chatType == SYSTEM) for chat in chats)
