"""APNs: Apple's provider, over HTTP/2 with a token that we sign ourselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.backends.phones.answers import Verdict, apns_verdict, retry_after_ms
from pixiu.backends.phones.credentials import ApnsCredential
from pixiu.backends.phones.http import HttpConnection, checked_url
from pixiu.backends.phones.messages import apns_headers, apns_payload
from pixiu.backends.phones.sender import Sender
from pixiu.model.errors import Unavailable
from pixiu.ports.notifications import Refused

if TYPE_CHECKING:
    import asyncio

    from pixiu.config.phones import PhoneSettings
    from pixiu.ports.clock import Clock
    from pixiu.ports.notifications import Notification, Told

__all__ = ["ApnsNotifications"]


class ApnsNotifications:
    """``Notifications`` for phones with a token of APNs. All of them go over one connection."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock, settings: PhoneSettings) -> None:
        self._clock = clock
        self._settings = settings
        self._url = checked_url(settings.apns_url, "phones.apns_url")
        self._credential = ApnsCredential(settings, clock)
        self._http = HttpConnection(settings)
        self._sender = Sender(loop, "APNs", settings, self._perform)

    def send(self, notification: Notification, done: Told) -> None:
        """As soon as there is room."""
        self._sender.send(notification, done)

    async def close(self) -> None:
        """Give up what is under way."""
        await self._sender.close()
        await self._http.close()

    async def _perform(self, notification: Notification) -> Verdict:
        bearer = self._credential.current()
        verdict = await self._ask(notification, bearer)
        if not verdict.renews:
            return verdict
        if self._credential.renew(bearer):
            verdict = await self._ask(notification, self._credential.current())
        return verdict._replace(is_misconfigured=True) if verdict.renews else verdict

    async def _ask(self, notification: Notification, bearer: str) -> Verdict:
        phone, settings, now = notification.push_token, self._settings, self._clock.now_ms()
        assert phone is not None
        headers = apns_headers(
            notification, topic=settings.apns_topic, bearer=bearer, now_ms=now, expire_ms=settings.expire_ms
        )
        content = apns_payload(notification, settings.no_text)
        try:
            answer = await self._http.post(f"{self._url}/3/device/{phone.token}", content, headers)
        except Unavailable as error:
            return Verdict(Refused(f"APNs: {error}"), is_down=True)
        return apns_verdict(answer.status, answer.body, pause_ms=retry_after_ms(answer.retry_after, now))
