"""From notification tasks to what a phone shows.

A conversation that talks fast would ring a phone for every line. So a notification waits a moment, per user, platform
and conversation, and a newer one takes its place: the newest is what is shown, with the newest badge. Whatever it
replaced counts as told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.model.failure import Failure
from pixiu.ports.notifications import Notification
from pixiu.roles.horn.metrics import HornCounters

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.config.messaging import HornSettings
    from pixiu.model.pixiu_pb2 import Notify, Task
    from pixiu.ports.notifications import Notifications
    from pixiu.ports.scheduler import Scheduler, Timer
    from pixiu.ports.users import Users

__all__ = ["Horn"]

_WAITING_MAX = 10_000
"""Conversations that wait to collapse; beyond that notifications go out at once."""

_Key = tuple[int, str, str]


class _Waiting:
    """The newest notification of a conversation, for one platform of one user, and the task that it belongs to."""

    __slots__ = ("notification", "part", "timer")

    def __init__(self, notification: Notification, part: _Part, timer: Timer) -> None:
        self.notification = notification
        self.part = part
        self.timer = timer


class _Part:
    """One task: finished when every platform of it is."""

    __slots__ = ("_done", "_left", "failed", "reason")

    def __init__(self, count: int, done: Callable[[Failure | None], None]) -> None:
        self._left = count
        self._done = done
        self.failed: list[str] = []
        self.reason = ""

    def finished(self, platform: str, reason: str | None) -> None:
        """One platform is told, or could not be."""
        if reason is not None:
            self.failed.append(platform)
            self.reason = reason
        self._left -= 1
        if not self._left:
            self._done(Failure(self.reason, tuple(self.failed)) if self.failed else None)


class Horn:
    """Performs notification tasks through a provider."""

    def __init__(
        self, users: Users, notifications: Notifications, scheduler: Scheduler, settings: HornSettings
    ) -> None:
        self.counters = HornCounters()
        self._users = users
        self._notifications = notifications
        self._scheduler = scheduler
        self._collapse_ms = settings.collapse_ms
        self._waiting: dict[_Key, _Waiting] = {}

    def perform(self, task: Task, done: Callable[[Failure | None], None]) -> None:
        """Tell the platforms that the task names. ``done`` is called once, later."""
        notify = task.notify
        user = self._users.get(notify.user)
        platforms = tuple(dict.fromkeys(notify.platforms))
        if user is None or not platforms:
            self._scheduler.soon(lambda: done(None))
            return
        sender = self._users.get(getattr(notify, "from"))
        part = _Part(len(platforms), done)
        for platform in platforms:
            notification = Notification(
                user=user.public_id,
                platform=platform,
                message_id=notify.message_id,
                conversation=notify.conversation,
                sender=sender.public_id if sender is not None else "",
                text=notify.text,
                badge=notify.unread,
            )
            self._take(notify, notification, part)

    def _take(self, notify: Notify, notification: Notification, part: _Part) -> None:
        """Let it wait for a newer one, or take the place of an older one."""
        key = (notify.user, notification.platform, notify.conversation)
        waiting = self._waiting.get(key)
        if waiting is None:
            if not self._collapse_ms or len(self._waiting) >= _WAITING_MAX:
                self._send(notification, part)
                return
            timer = self._scheduler.after(self._collapse_ms, lambda: self._send_waiting(key))
            self._waiting[key] = _Waiting(notification, part, timer)
            return
        self.counters.collapsed += 1
        if notification.message_id < waiting.notification.message_id:
            # An older one that is tried again: what waits says more.
            self._told_later(part, notification.platform)
            return
        older = waiting.part
        waiting.notification, waiting.part = notification, part
        self._told_later(older, notification.platform)

    def _told_later(self, part: _Part, platform: str) -> None:
        self._scheduler.soon(lambda: part.finished(platform, None))

    def _send_waiting(self, key: _Key) -> None:
        waiting = self._waiting.pop(key, None)
        if waiting is not None:
            self._send(waiting.notification, waiting.part)

    def _send(self, notification: Notification, part: _Part) -> None:
        def sent(reason: str | None) -> None:
            if reason is None:
                self.counters.sent += 1
            else:
                self.counters.failed += 1
            part.finished(notification.platform, reason)

        self._notifications.send(notification, sent)

    def stop(self) -> None:
        """Tell nobody any more. The tasks are unfinished: whoever comes next does them."""
        for waiting in self._waiting.values():
            waiting.timer.cancel()
        self._waiting.clear()
