"""The notification provider that the settings ask for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pixiu.roles.horn.providers import LoggedNotifications, NoNotifications
from pixiu.runtime.webhook import WebhookNotifications

if TYPE_CHECKING:
    from pixiu.backends.phones.notifications import Closable
    from pixiu.config import Settings
    from pixiu.ports.clock import Clock
    from pixiu.ports.notifications import Notifications
    from pixiu.ports.scheduler import Scheduler

__all__ = ["make_notifications"]


def make_notifications(settings: Settings, clock: Clock, scheduler: Scheduler) -> tuple[Notifications, Closable | None]:
    """The provider of ``horn.provider``, and the same object if the caller has to close it.

    Raises ``ConfigError`` for settings of the provider that cannot be used.
    """
    horn = settings.horn
    if horn.provider == "log":
        return LoggedNotifications(scheduler), None
    if horn.provider == "none":
        return NoNotifications(scheduler), None
    loop, webhook = asyncio.get_running_loop(), None
    if horn.provider == "webhook" or horn.webhook_url:
        webhook = WebhookNotifications(loop, horn.webhook_url, timeout_ms=horn.webhook_timeout_ms)
    if horn.provider == "phones":
        from pixiu.backends.phones.notifications import PhoneNotifications  # its cryptography takes 7 MB

        phones = PhoneNotifications(clock, settings.phones, webhook)
        return phones, phones
    assert webhook is not None
    return webhook, webhook
