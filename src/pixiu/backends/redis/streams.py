"""``Streams``: ``s:<user>`` and ``gs:<group>``, bounded, with ids that Redis gives.

The body of a message is in one stream. Everybody else who is concerned has an entry with ``FW``, the key of that
stream, and ``entry``, the id of the body in it. ``id`` is the message in all of them: a reader that was told something
twice knows it by that. Programs of others read this; the node itself never does.

Entries get their ids from Redis, so a commit that is told again must find what it has written: the functions look
through the end of a stream for messages of this commit, which are not older than its first one (``floor``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pixiu.backends.redis.server import TextCommand
from pixiu.model.message import ENCRYPTIONS, KINDS
from pixiu.model.pixiu_pb2 import DELETE, NORMAL, PLAIN, SYSTEM, TEXT, MsgChat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pixiu.backends.redis.layout import Keys
    from pixiu.backends.redis.overlay import Overlay

__all__ = ["RedisStreams"]

_KIND_NAMES = {number: name for name, number in KINDS.items()}
_ENCRYPTION_NAMES = {number: name for name, number in ENCRYPTIONS.items()}
_POINTS_MAX = 900
"""Streams in one command: Lua passes so many on, and not many more."""
_RESERVED = frozenset(
    "id uid tuid user group by at kind text data send_id ref enc subtype priority action FW".split()  # noqa: SIM905
)


class RedisStreams:
    """``applied`` is the event through which Redis has this lane: what comes again of it is in the streams already."""

    def __init__(self, overlay: Overlay, keys: Keys, *, entries_max: int, applied: Callable[[], int]) -> None:
        self._overlay = overlay
        self._keys = keys
        self._entries_max = entries_max
        self._applied = applied
        self._through = 0
        """The event that was said last: a record that failed later on comes again."""
        self._floor = 0
        """The first message that waits for the commit; 0 if none does."""
        overlay.attach(self)

    def say_to_user(self, event_id: int, message_id: int, from_user: int, to: int, chat: bytes) -> None:
        """A message: its body for the receiver, a pointer to it for the sender."""
        if not self._is_new(event_id, message_id):
            return
        body = self._keys.stream % to
        fields = _fields(chat, ("uid", from_user), ("tuid", to))
        if from_user and from_user != to:
            self._put("TELL", (body, self._keys.stream % from_user), message_id, fields, len(chat))
        else:
            self._put("SAY", (body,), message_id, fields, len(chat))

    def say_in_group(
        self, event_id: int, message_id: int, from_user: int, group: int, members: Sequence[int], chat: bytes
    ) -> None:
        """A message of a group: its body there, a pointer to it for each of the ``members``."""
        if not self._is_new(event_id, message_id):
            return
        body = self._keys.group_stream % group
        fields = _fields(chat, ("user", from_user), ("group", group))
        self._put("SAY", (body,), message_id, fields, len(chat))
        self._point(members, message_id, body)

    def unsay(self, message_id: int, *, user: int = 0, group: int = 0) -> None:
        """A body leaves the stream of its receiver, or of its group; pointers to it lead nowhere from now on."""
        key = self._keys.group_stream % group if group else self._keys.stream % user
        self._overlay.step("UNSAY", key, message_id)

    def erase(self, user: int, *, peers: Iterable[int] = (), groups: Iterable[int] = ()) -> None:
        """What a user has said leaves these streams, and the user's own stream goes."""
        streams = [self._keys.stream % peer for peer in peers]
        for key in (*streams, *(self._keys.group_stream % group for group in groups)):
            self._overlay.step("PURGE", key, user)
        self._overlay.step("DEL", self._keys.stream % user)

    def save(self) -> None:
        """All is in the overlay."""

    def written(self) -> None:
        """Redis has it."""
        self._floor = 0

    def forget(self) -> None:
        """Begin anew, behind what Redis has."""
        self._through = self._floor = 0

    def _is_new(self, event_id: int, message_id: int) -> bool:
        if event_id <= self._through or event_id <= self._applied():
            return False
        self._through = event_id
        self._floor = self._floor or message_id
        return True

    def _put(self, name: str, streams: Sequence[str], message_id: int, fields: list[str | bytes], size: int) -> None:
        parts = (name, *streams, str(self._floor), str(self._entries_max), str(message_id), *fields)
        is_text = bytes not in map(type, fields)
        self._overlay.put_step(TextCommand(cast("tuple[str, ...]", parts)) if is_text else parts, size)

    def _point(self, users: Sequence[int], message_id: int, body: str) -> None:
        pattern = self._keys.stream
        for at in range(0, len(users), _POINTS_MAX):
            streams = [pattern % user for user in users[at : at + _POINTS_MAX]]
            self._overlay.step("POINTS", body, self._floor, self._entries_max, message_id, *streams)


def _fields(chat: bytes, one: tuple[str, int], other: tuple[str, int]) -> list[str | bytes]:
    """Names and values of a message, as programs of others may want them, behind the two that say where it is."""
    said = MsgChat.FromString(chat)
    found: list[str | bytes] = [one[0], str(one[1]), other[0], str(other[1]), "at", str(said.tm)]
    if said.chatType == SYSTEM or not said.fromId:  # users cannot say what the system says
        return _notice(said, found)
    if said.params:
        for name, text in said.params.items():
            found += (f"field:{name}" if name in _RESERVED else name, text)
    return found + _content(said)


def _notice(said: MsgChat, places: list[str | bytes]) -> list[str | bytes]:
    """What the system says has its own names for who and what."""
    found = _pairs(places)
    group = found.get("group")
    found.update(said.params)
    if group is not None:  # a group that was being created had no number yet
        found["group"] = group
    if said.fromId and str(said.fromId) != found.get("user", found.get("uid")):
        found["by"] = str(said.fromId)
    found |= _pairs(_content(said))
    return [part for pair in found.items() for part in pair]


def _content(said: MsgChat) -> list[str | bytes]:
    found: list[str | bytes] = []
    kind, encryption, data = said.msgType, said.encType, said.data
    if kind == DELETE:
        found += ("action", "recall")
    elif kind != TEXT:
        found += ("kind", _KIND_NAMES.get(kind, str(kind)))
    if encryption != PLAIN:
        found += ("enc", _ENCRYPTION_NAMES.get(encryption, str(encryption)))
    if data:
        found += ("text" if kind == TEXT and encryption == PLAIN else "data", _text(data))
    if said.sendId:
        found += ("send_id", said.sendId)
    if said.refMessageId:
        found += ("ref", str(said.refMessageId))
    if said.subMsgType:
        found += ("subtype", str(said.subMsgType))
    if said.priority != NORMAL:
        found += ("priority", str(int(said.priority)))
    return found


def _pairs(parts: list[str | bytes]) -> dict[str | bytes, str | bytes]:
    return dict(zip(parts[::2], parts[1::2], strict=True))


def _text(data: bytes) -> str | bytes:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data
