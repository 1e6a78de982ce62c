"""From notification tasks to what a phone shows.

A conversation that talks fast would ring a phone for every line. So a notification waits a moment, per user, platform
and conversation, and a newer one takes its place: the newest is what is shown, with the newest badge. Whatever it
replaced counts as told.

With push tokens, telling a platform is telling each of its phones that has one. What is left to do after a failure
names the phones, so that the others do not ring again; a token that its provider knows no more is retired.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from pixiu.model.errors import Unavailable
from pixiu.model.failure import Failure
from pixiu.model.inbox import FIRST
from pixiu.ports.notifications import Notification
from pixiu.roles.horn.metrics import HornCounters

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.config.messaging import HornSettings
    from pixiu.model.pixiu_pb2 import Notify, Task
    from pixiu.model.push_token import PushToken
    from pixiu.ports.notifications import Notifications, Refused
    from pixiu.ports.push_tokens import PushTokens
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

    __slots__ = ("_done", "_left", "devices", "failed", "reason", "untold", "user")

    def __init__(self, user: int, devices: frozenset[str], count: int, done: Callable[[Failure | None], None]) -> None:
        self._left = count
        self._done = done
        self.user = user
        self.devices = devices
        """Only these phones are still to be told, or all of a platform by its name; none: all of them."""
        self.failed: list[str] = []
        self.untold: list[str] = []
        self.reason = ""

    def finished(self, platform: str, reason: str | None, untold: list[str]) -> None:
        """One platform is told, or could not be; of phones, these could not."""
        if reason is not None:
            self.failed.append(platform)
            self.untold += untold
            self.reason = reason
        self._left -= 1
        if not self._left:
            left = Failure(self.reason, tuple(self.failed), devices=tuple(self.untold))
            self._done(left if self.failed else None)


class Horn:
    """Performs notification tasks through a provider."""

    def __init__(
        self,
        users: Users,
        notifications: Notifications,
        scheduler: Scheduler,
        settings: HornSettings,
        push_tokens: PushTokens | None = None,
        retire: Callable[[PushToken], object] = lambda _push_token: None,
    ) -> None:
        """The provider ``phones`` gets phones by their push tokens, others platforms; ``retire`` hears of dead ones."""
        self.counters = HornCounters()
        self._push_tokens = push_tokens if settings.provider == "phones" else None
        self._retire = retire
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
        part = _Part(notify.user, frozenset(notify.devices), len(platforms), done)
        for platform in platforms:
            notification = Notification(
                user=user.public_id,
                platform=platform,
                message_id=notify.message_id,
                conversation=notify.conversation,
                sender=sender.public_id if sender is not None else "",
                text=notify.text,
                badge=notify.unread,
                sender_name=sender.name if sender is not None else "",
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
        self._scheduler.soon(lambda: part.finished(platform, None, []))

    def _send_waiting(self, key: _Key) -> None:
        waiting = self._waiting.pop(key, None)
        if waiting is not None:
            self._send(waiting.notification, waiting.part)

    def _send(self, notification: Notification, part: _Part) -> None:
        platform = notification.platform
        if self._push_tokens is None:
            self._hand_over(notification, lambda reason: part.finished(platform, reason, []))
            return
        try:
            tokens = self._push_tokens.of(part.user)
        except Unavailable as error:
            self.counters.failed += 1
            part.finished(platform, str(error), sorted(part.devices) or [platform])
            return
        phones = [
            each
            for each in tokens
            if platform in (each.platform, FIRST)
            and (not part.devices or each.place in part.devices or platform in part.devices)
        ]
        if not phones:
            self.counters.unreachable += not part.devices
            self._told_later(part, platform)
            return
        left, untold, last_reason = len(phones), list[str](), ""

        def answered(place: str, reason: str | None) -> None:
            nonlocal left, last_reason
            left -= 1
            if reason is not None:
                untold.append(place)
                last_reason = reason
            if not left:
                part.finished(platform, last_reason if untold else None, untold)

        for phone in phones:
            self._hand_over(replace(notification, push_token=phone), partial(answered, phone.place))

    def _hand_over(self, notification: Notification, told: Callable[[str | None], object]) -> None:
        """Give it to the provider; ``told`` gets None when nothing is left to do.

        A provider never sees ``first``: a phone has its own platform, and a user without a login has none.
        """
        if notification.platform == FIRST:
            phone = notification.push_token
            notification = replace(notification, platform=phone.platform if phone else "")

        def sent(refused: Refused | None) -> None:
            phone = notification.push_token
            if refused is None:
                self.counters.sent += 1
            elif refused.is_token_dead and phone is not None:
                if refused.dead_since is None or phone.at <= refused.dead_since:
                    self.counters.retired += 1
                    self._retire(phone)
            else:
                self.counters.failed += 1
                told(refused.reason)
                return
            told(None)

        self._notifications.send(notification, sent)

    def stop(self) -> None:
        """Tell nobody any more. The tasks are unfinished: whoever comes next does them."""
        for waiting in self._waiting.values():
            waiting.timer.cancel()
        self._waiting.clear()
