"""Providers that need nothing but this process."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pixiu.ports.notifications import Notification, Told
    from pixiu.ports.scheduler import Scheduler

__all__ = ["LoggedNotifications", "NoNotifications"]

log = logging.getLogger(__name__)


class NoNotifications:
    """Takes everything and tells nobody."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def send(self, notification: Notification, done: Told) -> None:
        """Nothing to do."""
        self._scheduler.soon(lambda: done(None))


class LoggedNotifications:
    """Writes a line of the log for each. What was said stays out of it."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def send(self, notification: Notification, done: Told) -> None:
        """Log it."""
        log.info(
            "notification",
            extra={
                "user": notification.user,
                "platform": notification.platform,
                "message_id": notification.message_id,
                "conversation": notification.conversation,
                "sender": notification.sender,
                "badge": notification.badge,
            },
        )
        self._scheduler.soon(lambda: done(None))
