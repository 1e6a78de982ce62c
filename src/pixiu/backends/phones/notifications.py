"""Phones of every provider, each told through its own."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from pixiu.backends.phones.apns import ApnsNotifications
from pixiu.backends.phones.fcm import FcmNotifications
from pixiu.model.errors import ConfigError
from pixiu.ports.notifications import Notifications, Refused

if TYPE_CHECKING:
    from pixiu.config.phones import PhoneSettings
    from pixiu.ports.clock import Clock
    from pixiu.ports.notifications import Notification, Told

__all__ = ["Closable", "PhoneNotifications"]


class Closable(Notifications, Protocol):
    """A provider with connections."""

    async def close(self) -> None:
        """Give up what is under way, and tell nobody."""
        ...


class PhoneNotifications:
    """``Notifications`` by the provider that a phone has registered with."""

    def __init__(self, clock: Clock, settings: PhoneSettings, webhook: Closable | None = None) -> None:
        loop = asyncio.get_running_loop()
        self._loop = loop
        self._providers: dict[str, Closable] = {}
        if settings.apns_key_file:
            self._providers["apns"] = ApnsNotifications(loop, clock, settings)
        if settings.fcm_account_file:
            self._providers["fcm"] = FcmNotifications(loop, clock, settings)
        if webhook is not None:
            self._providers["webhook"] = webhook
        if not self._providers:
            raise ConfigError(
                'horn.provider = "phones" needs phones.apns_key_file, phones.fcm_account_file or horn.webhook_url'
            )

    def send(self, notification: Notification, done: Told) -> None:
        """Hand it to the phone's provider."""
        phone = notification.push_token
        provider = self._providers.get(phone.provider) if phone is not None else None
        if provider is None:
            name = phone.provider if phone is not None else "none"
            self._loop.call_soon(done, Refused(f"the settings have no provider {name}"))
        else:
            provider.send(notification, done)

    async def close(self) -> None:
        """Give up what is under way, and tell nobody."""
        for provider in self._providers.values():
            await provider.close()
