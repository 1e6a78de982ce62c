"""FCM: Google's provider, over its HTTP v1 API with access tokens for a service account."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from pixiu.backends.phones.answers import Verdict, fcm_verdict, retry_after_ms
from pixiu.backends.phones.credentials import FcmAccount
from pixiu.backends.phones.http import HttpConnection, checked_url
from pixiu.backends.phones.messages import fcm_payload
from pixiu.backends.phones.sender import Sender
from pixiu.model.errors import Unavailable
from pixiu.ports.notifications import Refused

if TYPE_CHECKING:
    from pixiu.backends.phones.http import HttpAnswer
    from pixiu.config.phones import PhoneSettings
    from pixiu.ports.clock import Clock
    from pixiu.ports.notifications import Notification, Told

__all__ = ["FcmNotifications"]

_GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_EARLY_MS = 60_000
"""A new access token is asked for this long before the old one ends."""
_CONNECTIONS_MAX = 8


class FcmNotifications:
    """``Notifications`` for phones with a token of FCM."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock, settings: PhoneSettings) -> None:
        self._clock = clock
        self._settings = settings
        self._account = account = FcmAccount.read(settings.fcm_account_file)
        url = checked_url(settings.fcm_url, "phones.fcm_url")
        self._url = f"{url}/v1/projects/{quote(account.project, safe='')}/messages:send"
        self._token_url = checked_url(account.token_url, "token_uri in phones.fcm_account_file")
        self._access = ""
        self._access_until = 0
        self._asking = asyncio.Lock()
        self._http = HttpConnection(settings, connections_max=_CONNECTIONS_MAX)
        self._sender = Sender(loop, "FCM", settings, self._perform)

    def send(self, notification: Notification, done: Told) -> None:
        """As soon as there is room."""
        self._sender.send(notification, done)

    async def close(self) -> None:
        """Give up what is under way."""
        await self._sender.close()
        await self._http.close()

    async def _perform(self, notification: Notification) -> Verdict:
        try:
            access = await self._access_token()
            if isinstance(access, Verdict):
                return access
            verdict = await self._ask(notification, access)
            if not verdict.renews:
                return verdict
            access = await self._access_token(refused=access)
            if isinstance(access, Verdict):
                return access
            verdict = await self._ask(notification, access)
        except Unavailable as error:
            return Verdict(Refused(f"FCM: {error}"), is_down=True)
        return verdict._replace(is_misconfigured=True) if verdict.renews else verdict

    async def _ask(self, notification: Notification, access: str) -> Verdict:
        content = fcm_payload(notification, self._settings.no_text, expire_ms=self._settings.expire_ms)
        headers = {"authorization": f"Bearer {access}", "content-type": "application/json"}
        answer = await self._http.post(self._url, content, headers)
        return fcm_verdict(answer.status, answer.body, pause_ms=retry_after_ms(answer.retry_after, self._now()))

    async def _access_token(self, *, refused: str = "") -> str | Verdict:
        """The one we have, unless it has ended or was refused; else a new one, asked for once for all who need it."""
        async with self._asking:
            if self._access and self._access != refused and self._now() < self._access_until:
                return self._access
            form = urlencode({"grant_type": _GRANT, "assertion": self._account.assertion(self._now())}).encode()
            headers = {"content-type": "application/x-www-form-urlencoded"}
            answer = await self._http.post(self._token_url, form, headers)
            token, lives_ms = _grant(answer)
            if not token:
                return self._no_access(answer)
            self._access, self._access_until = token, self._now() + max(lives_ms - _EARLY_MS, 0)
            return token

    def _no_access(self, answer: HttpAnswer) -> Verdict:
        reason = f"no access token for FCM: status {answer.status}"
        if answer.status == 429 or answer.status >= 500:
            pause_ms = retry_after_ms(answer.retry_after, self._now())
            return Verdict(Refused(reason), is_down=True, pause_ms=pause_ms)
        # Everyone would be told the same: nobody else is to ask at once.
        return Verdict(Refused(f"{reason}: check phones.fcm_account_file"), is_down=True, is_misconfigured=True)

    def _now(self) -> int:
        return self._clock.now_ms()


def _grant(answer: HttpAnswer) -> tuple[str, int]:
    """The access token of an answer, and for how long it is good; none if it was refused."""
    if answer.status != 200:
        return "", 0
    try:
        content = json.loads(answer.body)
        token, seconds = content["access_token"], content["expires_in"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return "", 0
    if type(token) is not str or type(seconds) is not int or not token.isascii() or not token.isprintable():
        return "", 0
    return token, seconds * 1000
