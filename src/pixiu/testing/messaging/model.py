"""What the stores must hold, worked out from the log by a model that shares no code with the appliers.

It reads record after record, in order, with dicts and loops, and knows nothing of lanes, caches, commits or replays.
For every entry that has left an inbox it remembers why.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from pixiu.model.body import tombstone
from pixiu.model.inbox import NEED_NOTIFICATION
from pixiu.model.pixiu_pb2 import MemberChanged, MsgChat, Record
from pixiu.model.push_token import PUSH_TOKENS_MAX, PushToken
from pixiu.ports.log import MAIN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pixiu.ports.log import LogRecord

__all__ = ["Gone", "Inbox", "Message", "Model", "Waiting"]

RECALLED = 5
OWNER, ADMIN, MEMBER = 2, 1, 0


class Waiting(NamedTuple):
    """One entry of an inbox."""

    useq: int
    message_id: int
    event_id: int
    at: int
    options: int
    session: int


class Gone(NamedTuple):
    """An entry that has left, and why: acked, expired, dead or evicted."""

    entry: Waiting
    why: str
    at: int
    """The time of the record that took it out."""


@dataclass(slots=True)
class Inbox:
    """One inbox."""

    latest: int = 0
    entries: dict[int, Waiting] = field(default_factory=dict)
    gone: dict[int, Gone] = field(default_factory=dict)


@dataclass(slots=True)
class Message:
    """One message of the log: who may see it."""

    message_id: int
    event_id: int
    key: bytes
    record: Record
    users: tuple[int, ...] = ()
    """Whose inboxes it entered."""


@dataclass(slots=True)
class GroupState:
    """One group."""

    public_id: str
    name: str = ""
    owner: int = 0
    needs_approval: bool = False
    is_large: bool = False
    count: int = 0
    last: int = 0
    members: dict[int, list[int]] = field(default_factory=dict)
    """user: role, joined, is_muted, count_at_read."""
    muted_away: set[int] = field(default_factory=set)
    """Who was muted and left."""
    requests: dict[int, int] = field(default_factory=dict)
    rows: dict[int, list[int]] = field(default_factory=dict)
    """message_id: from, previous, state."""


class Model:
    """Everything that follows from the log."""

    def __init__(self) -> None:
        self._offline_max = 10_000
        self.users: dict[int, tuple[str, str]] = {}
        self.contacts: dict[int, dict[int, int]] = {}
        self.blocks: set[tuple[int, int]] = set()
        self.push_tokens: list[PushToken] = []
        self.groups: dict[int, GroupState] = {}
        self.inboxes: dict[int, dict[str, Inbox]] = {}
        self.bodies: dict[int, list[object]] = {}
        """message_id: references, body."""
        self.unread: dict[int, dict[str, int]] = {}
        self.private: dict[int, dict[int, list[int]]] = {}
        """user: message_id: peer, is_incoming, state, delivered_at, read_at."""
        self.keys: dict[bytes, tuple[int, int, int]] = {}
        self.messages: dict[int, Message] = {}
        self.doubled_keys: list[bytes] = []
        self.trims: list[tuple[int, int]] = []
        """The time of each cut, and the message id through which it went."""
        self.forgotten: set[int] = set()
        """Messages whose send ids may be used again."""
        self.quiet: set[int] = set()
        """Messages that nobody has to read: recalls, and a group's notices."""
        self._changes: dict[str, Callable[[LogRecord, Record], None]] = {
            "user": self._user, "contact": self._contact, "block": self._block, "group_info": self._group_info,
            "member": self._member, "recalled": self._recalled, "receipt": self._receipt, "read": self._read,
            "inbox": self._inbox, "push": self._push, "ledger": self._ledger, "limits": self._limits,
            "push_token": self._push_token, "trimmed": self._trimmed,
        }  # fmt: skip

    @classmethod
    def of(cls, records: Iterable[LogRecord]) -> Model:
        """The model of a whole log."""
        model = cls()
        for record in records:
            if record.topic == MAIN:
                model.apply(record)
        return model

    def apply(self, record: LogRecord) -> None:
        """One record of ``pixiu.main``."""
        parsed = Record.FromString(record.payload)
        if record.message_id:
            self.messages[record.message_id] = Message(record.message_id, record.event_id, record.key, parsed)
        what = parsed.WhichOneof("what")
        if what in ("traces", "partitions"):
            return  # how things went, and how many carriers there are, change nothing
        if what is not None:
            self._changes[what](record, parsed)
        elif parsed.to:
            self._private(record, parsed, is_read=True)
        else:
            self._say(record, parsed, parsed.group, is_read=True)
        if record.key:
            if record.key in self.keys:
                self.doubled_keys.append(record.key)
            self.keys.setdefault(record.key, (record.message_id, record.event_id, parsed.at))

    def _limits(self, _: LogRecord, parsed: Record) -> None:
        self._offline_max = parsed.limits.offline_max

    # Saying.

    def _deliver(self, record: LogRecord, parsed: Record, users: Iterable[int], rows: int) -> None:
        users = list(dict.fromkeys(users))
        places = [(user, platform) for user in users for platform in self.inboxes.get(user, {})]
        if not places and not rows:
            return
        self.messages[record.message_id].users = tuple(users)
        self._put_body(record, parsed, len(places) + rows)
        for user, platform in places:
            self._add(record, parsed, user, platform, parsed.options)

    def _put_body(self, record: LogRecord, parsed: Record, references: int) -> None:
        body = parsed.chat + MsgChat(msgId=record.message_id).SerializeToString()
        self.bodies[record.message_id] = [references, body]

    def _add(self, record: LogRecord, parsed: Record, user: int, platform: str, options: int) -> None:
        inbox = self.inboxes[user][platform]
        inbox.latest += 1
        if user == parsed.actor:  # nobody is notified of what they said themselves
            options &= ~NEED_NOTIFICATION
        inbox.entries[inbox.latest] = Waiting(
            inbox.latest, record.message_id, record.event_id, parsed.at, options, parsed.session
        )
        while 0 <= self._offline_max < len(inbox.entries):
            self._take(inbox, min(inbox.entries), "evicted", parsed.at)

    def _take(self, inbox: Inbox, useq: int, why: str, at: int) -> None:
        entry = inbox.entries.pop(useq)
        inbox.gone[useq] = Gone(entry, why, at)
        self._release(entry.message_id)

    def _release(self, message_id: int) -> None:
        body = self.bodies[message_id]
        assert isinstance(body[0], int)
        body[0] -= 1
        if body[0] == 0:
            del self.bodies[message_id]

    def _trimmed(self, _: LogRecord, parsed: Record) -> None:
        change = parsed.trimmed
        self.trims.append((parsed.at, change.through))
        timelines: list[dict[int, list[int]]] = [self.private.get(user, {}) for user in change.users]
        timelines += [self.groups[group].rows for group in change.groups]
        for rows in timelines:
            for message_id in [each for each in rows if each <= change.through]:
                del rows[message_id]
                self._release(message_id)
        for key in change.keys:
            if key in self.keys and self.keys[key][0] <= change.through:
                self.forgotten.add(self.keys.pop(key)[0])

    def _private(self, record: LogRecord, parsed: Record, *, is_read: bool) -> None:
        actor, to, message_id = parsed.actor, parsed.to, record.message_id
        sides = {to: (actor, 1)} if actor in (0, to) else {actor: (to, 0), to: (actor, 1)}
        self._deliver(record, parsed, [to, *sides], len(sides))
        for user, (peer, is_incoming) in sides.items():
            self.private.setdefault(user, {})[message_id] = [peer, is_incoming, 0, 0, 0]
        if is_read and actor != to:
            self._count(to, f"u:{actor}")
        if not is_read:
            self.quiet.add(message_id)

    def _count(self, user: int, conversation: str) -> None:
        counters = self.unread.setdefault(user, {})
        counters[conversation] = counters.get(conversation, 0) + 1

    def _say(self, record: LogRecord, parsed: Record, number: int, *, is_read: bool, gone: Iterable[int] = ()) -> None:
        """In a group: one row; entries and counters unless it is large."""
        group = self.groups[number]
        group.rows[record.message_id] = [parsed.actor, group.last, 0]
        group.count += 1
        group.last = record.message_id
        members = [] if group.is_large else sorted(group.members)
        self._deliver(record, parsed, [*members, *([] if group.is_large else gone)], 1)
        if not is_read:
            self.quiet.add(record.message_id)
            return
        for user in members:
            if user != parsed.actor:
                self._count(user, f"g:{number}")

    # Users and contacts.

    def _user(self, record: LogRecord, parsed: Record) -> None:
        number = parsed.user.user or record.message_id
        self.users[number] = (parsed.user.public_id, parsed.user.name)
        self.inboxes.setdefault(number, {}) or self.inboxes[number].setdefault("first", Inbox())

    def _inbox(self, _: LogRecord, parsed: Record) -> None:
        self._open(parsed.inbox.user, parsed.inbox.platform)

    def _open(self, user: int, platform: str) -> None:
        inboxes = self.inboxes.setdefault(user, {})
        if platform in inboxes:
            return
        inboxes[platform] = inboxes.pop("first") if list(inboxes) == ["first"] else Inbox()

    def _contact(self, record: LogRecord, parsed: Record) -> None:
        change = parsed.contact
        if change.is_linked:
            self.contacts.setdefault(change.user, {}).setdefault(change.peer, parsed.at)
        else:
            self.contacts.get(change.user, {}).pop(change.peer, None)
            self.unread.get(change.user, {}).pop(f"u:{change.peer}", None)
        if parsed.chat:
            self._deliver(record, parsed, [parsed.to, parsed.actor], 0)

    def _block(self, _: LogRecord, parsed: Record) -> None:
        pair = (parsed.block.user, parsed.block.peer)
        if parsed.block.is_blocked:
            self.blocks.add(pair)
        else:
            self.blocks.discard(pair)

    def _push_token(self, record: LogRecord, parsed: Record) -> None:
        change = parsed.push_token
        place = (change.user, change.platform, change.device)
        new = PushToken(*place, change.provider, change.token, change.topic, parsed.at, record.event_id)
        if not change.is_registered:
            self.push_tokens = [t for t in self.push_tokens if t[:3] != place or change.token not in ("", t.token)]
            return
        self.push_tokens = [t for t in self.push_tokens if t[:3] != place and t[3:5] != new[3:5]] + [new]
        own = [token for token in self.push_tokens if token.user == change.user]
        if len(own) > PUSH_TOKENS_MAX:
            self.push_tokens.remove(own[0])

    # Groups.

    def _group_info(self, record: LogRecord, parsed: Record) -> None:
        change = parsed.group_info
        number = change.group or record.message_id
        is_new = number not in self.groups
        group = self.groups.setdefault(number, GroupState(change.public_id, owner=change.owner))
        group.name, group.needs_approval = change.name, change.needs_approval
        group.is_large |= change.is_large
        if is_new:
            for user in {*change.members, change.owner}:
                role = OWNER if user == change.owner else MEMBER
                group.members[user] = [role, record.event_id, 0, 1 if parsed.chat else 0]
        if parsed.chat:
            self._say(record, parsed, number, is_read=False)
        if is_new and not group.is_large:
            for user in group.members:
                self.unread.setdefault(user, {})[f"g:{number}"] = 0

    def _member(self, record: LogRecord, parsed: Record) -> None:
        change = parsed.member
        group, user, number = self.groups[change.group], change.user, change.group
        member = group.members.get(user)
        count = group.count + (1 if parsed.chat else 0)
        gone: list[int] = []
        if change.op == MemberChanged.JOIN:
            group.requests.pop(user, None)
            if member is None:
                group.members[user] = [MEMBER, record.event_id, int(user in group.muted_away), count]
                group.muted_away.discard(user)
        elif change.op == MemberChanged.QUIT:
            gone.append(user)
            if group.members.pop(user, [0, 0, 0])[2]:
                group.muted_away.add(user)
        elif change.op == MemberChanged.REQUEST:
            if member is None:
                group.requests[user] = parsed.at
        elif change.op == MemberChanged.REFUSE:
            group.requests.pop(user, None)
        elif change.op == MemberChanged.INVITE:
            pass  # the world's rule is that anyone may add: nothing is compared
        elif member is not None:
            self._change_member(group, user, member, change.op)
        if parsed.chat:
            self._say(record, parsed, number, is_read=False, gone=gone)
        if change.op == MemberChanged.QUIT:
            self.unread.get(user, {}).pop(f"g:{number}", None)
        elif change.op == MemberChanged.JOIN:
            self.unread.setdefault(user, {})[f"g:{number}"] = 0

    def _change_member(self, group: GroupState, user: int, member: list[int], op: int) -> None:
        if op in (MemberChanged.MUTE, MemberChanged.UNMUTE):
            member[2] = int(op == MemberChanged.MUTE)
        elif op == MemberChanged.TRANSFER:
            if group.owner in group.members and group.owner != user:
                group.members[group.owner][0] = ADMIN
            member[0], group.owner = OWNER, user
        elif member[0] != OWNER:
            member[0] = ADMIN if op == MemberChanged.ADMIN else MEMBER

    # Recalls, receipts, reading.

    def _recalled(self, record: LogRecord, parsed: Record) -> None:
        change = parsed.recalled
        message_id, said_by = change.message_id, getattr(change, "from")
        is_group = bool(change.group)
        if message_id in self.bodies:
            to = change.group or change.to
            self.bodies[message_id][1] = tombstone(message_id, from_id=said_by, to_id=to, is_group=is_group)
        if is_group:
            if message_id in self.groups[change.group].rows:
                self.groups[change.group].rows[message_id][2] = RECALLED
            self._say(record, parsed, change.group, is_read=False)
            return
        for user in (said_by, change.to):
            row = self.private.get(user, {}).get(message_id)
            if row is not None:
                row[2] = RECALLED
        if parsed.chat:  # a receiver who blocks the author gets no notice
            self._private(record, parsed, is_read=False)

    def _receipt(self, _: LogRecord, parsed: Record) -> None:
        change = parsed.receipt
        for message_id in change.message_ids:
            row = self.private.get(getattr(change, "from"), {}).get(message_id)
            if row is None or row[1] or row[0] != change.peer:
                continue
            if change.is_delivered:
                row[3] = row[3] or parsed.at
            if change.is_read:
                row[4] = row[4] or parsed.at
            if row[2] != RECALLED:
                row[2] = 2 if row[4] else 1 if row[3] else 0

    def _read(self, record: LogRecord, parsed: Record) -> None:
        change = parsed.read
        user, through = change.user, change.through
        if change.group:
            group = self.groups[change.group]
            if group.is_large or through >= group.last:
                self._note_place(group, user, through)
            if group.is_large:
                return
            conversation = f"g:{change.group}"
            unread = [
                each
                for each, (said_by, _, state) in group.rows.items()
                if each > through and said_by != user and state != RECALLED and each not in self.quiet
            ]
        else:
            conversation = f"u:{change.peer}"
            unread = [
                each
                for each, (peer, is_incoming, state, _, _) in self.private.get(user, {}).items()
                if each > through and peer == change.peer and is_incoming and state != RECALLED
                and each not in self.quiet
            ]  # fmt: skip
        counters = self.unread.setdefault(user, {})
        counters[conversation] = min(len(unread), counters.get(conversation, 0))

    def _note_place(self, group: GroupState, user: int, through: int) -> None:
        """How much of the group a member has read: counts once it is large."""
        member = group.members.get(user)
        if member is not None:
            member[3] = max(member[3], group.count - sum(each > through for each in group.rows))

    # Pushes and ledgers.

    def _push(self, record: LogRecord, parsed: Record) -> None:
        push = parsed.push
        targets: list[tuple[int, str, int]] = []
        users = list(dict.fromkeys(push.users))
        for user in users:
            only, without, options = list(push.platforms), set(push.without_platforms), parsed.options
            if user in push.exclusive:
                own = push.exclusive[user]
                if own.platforms or own.without_platforms:
                    only, without = list(own.platforms), set(own.without_platforms)
                options = own.options if own.has_options else options
            for platform in sorted(only):
                self._open(user, platform)
            platforms = dict.fromkeys(only) if only else [p for p in self.inboxes.get(user, {}) if p not in without]
            targets += [(user, platform, options) for platform in platforms]
        if not targets:
            return
        self.messages[record.message_id].users = tuple(users)
        self._put_body(record, parsed, len(targets))
        for user, platform, options in targets:
            self._add(record, parsed, user, platform, options)

    def _ledger(self, _: LogRecord, parsed: Record) -> None:
        ledger = parsed.ledger
        for why, rows in (("expired", ledger.expired), ("dead", ledger.dead), ("acked", ledger.acked)):
            for user, index, first, through in zip(rows.user, rows.platform, rows.first, rows.through, strict=True):
                inbox = self.inboxes.get(user, {}).get(ledger.platforms[index])
                if inbox is None:
                    continue
                for useq in sorted(inbox.entries):
                    if useq <= through and (useq >= first or why == "acked"):
                        self._take(inbox, useq, why, parsed.at)
