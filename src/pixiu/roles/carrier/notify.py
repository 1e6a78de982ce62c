"""Notification tasks for those who are away: one per user and message, naming the platforms that were not there.

The task is appended under a key of user and message, so that a carrier that applies a message again after a crash asks
for one notification, not two. A platform is told about what waits for it also while its user is online elsewhere: a
message that another platform shows may not have been seen. Whoever wants that otherwise gives ``is_quiet``.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pixiu.model.body import text_of
from pixiu.model.conversation import Direct, InGroup
from pixiu.model.errors import PixiuError, Unavailable
from pixiu.model.pixiu_pb2 import GROUP, MsgChat, Notify, Task
from pixiu.ports.log import NOTIFY
from pixiu.roles.carrier.repeats import since

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pixiu.model.inbox import Entry
    from pixiu.ports.clock import Clock
    from pixiu.ports.log import Appended, Log
    from pixiu.ports.stores import Stores
    from pixiu.roles.carrier.metrics import CarrierCounters

__all__ = ["Notifier"]

log = logging.getLogger(__name__)

_CHATS_MAX = 256


class Notifier:
    """Turns "was away" into tasks on ``pixiu.notify``."""

    def __init__(
        self,
        stores: Stores,
        queue: Log,
        clock: Clock,
        counters: CarrierCounters,
        *,
        text_max: int,
        is_quiet: Callable[[int], bool] = lambda _user: False,
    ) -> None:
        """``is_quiet`` says of a user that no notification is wanted now."""
        self._stores = stores
        self._log = queue
        self._clock = clock
        self._counters = counters
        self._text_max = text_max
        self._is_quiet = is_quiet
        self._chats: dict[int, MsgChat] = {}

    def away(self, user: int, entries_by_platform: Mapping[str, Sequence[Entry]]) -> None:
        """These entries ask for a notification, and nobody was there for them on these platforms."""
        platforms_of: dict[int, list[str]] = {}
        events: dict[int, int] = {}
        for platform, entries in entries_by_platform.items():
            for entry in entries:
                platforms_of.setdefault(entry.message_id, []).append(platform)
                events[entry.message_id] = entry.event_id
        if not platforms_of or self._is_quiet(user):
            return
        try:
            badge = sum(self._stores.unread.of(user).values())
            chats = {message_id: self._chat(message_id) for message_id in platforms_of}
        except Unavailable as error:
            # The messages wait in their inboxes; only the hint is lost.
            log.warning("notification lost", extra={"reason": str(error)})
            return
        for message_id, platforms in platforms_of.items():
            chat = chats[message_id]
            # What one's own other device has said is no news.
            if chat is not None and chat.fromId != user:
                self._append(user, events[message_id], self._notify(user, chat, platforms, badge))

    def _notify(self, user: int, chat: MsgChat, platforms: list[str], badge: int) -> Notify:
        is_group = chat.chatType == GROUP
        notify = Notify(
            user=user,
            platforms=platforms,
            message_id=chat.msgId,
            conversation=str(InGroup(chat.toId) if is_group else Direct(chat.fromId)),
            unread=badge,
            text=text_of(chat, self._text_max),
        )
        setattr(notify, "from", chat.fromId)  # a word of Python's
        return notify

    def _append(self, user: int, event_id: int, notify: Notify) -> None:
        payload = Task(at=self._clock.now_ms(), notify=notify).SerializeToString()
        key = b"\xffnotify:%d:%d" % (user, notify.message_id)
        self._log.append(NOTIFY, payload, self._appended, key=key, unless_after=since(self._log, event_id))

    def _appended(self, result: Appended | PixiuError) -> None:
        if isinstance(result, PixiuError):
            # The message waits in its inbox; only the hint is lost.
            log.warning("notification lost", extra={"reason": str(result)})
        elif not result.is_repeat:
            self._counters.notifications += 1

    def _chat(self, message_id: int) -> MsgChat | None:
        """A message, decoded once for all who were away."""
        chat = self._chats.get(message_id)
        if chat is None:
            body = self._stores.bodies.get((message_id,)).get(message_id)
            if body is None:
                return None
            if len(self._chats) >= _CHATS_MAX:
                self._chats.clear()
            chat = self._chats[message_id] = MsgChat.FromString(body)
        return chat
