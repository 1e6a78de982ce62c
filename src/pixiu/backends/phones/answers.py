"""What the providers' answers mean, as their documents say it.

A token is retired only when the provider says that this phone is gone. What is wrong with the account, the app or the
environment is a mistake in the settings: it would refuse every token alike, and none of them is to blame.
"""

from __future__ import annotations

import json
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

from pixiu.ports.notifications import Refused

__all__ = ["Verdict", "apns_verdict", "fcm_verdict", "retry_after_ms"]

PAUSE_MS_MAX = 600_000
"""A provider is asked again after this, whatever it says."""
QUOTA_PAUSE_MS = 60_000
"""After too many requests, where the answer does not say for how long."""

_ADVICE = {
    "InvalidProviderToken": "check phones.apns_key_file, apns_key_id and apns_team_id",
    "MissingProviderToken": "check phones.apns_key_file",
    "BadTopic": "check phones.apns_topic",
    "MissingTopic": "check phones.apns_topic",
    "TopicDisallowed": "check phones.apns_topic",
    "DeviceTokenNotForTopic": "check phones.apns_topic: the phone has another app",
    "BadEnvironmentKeyInToken": "check phones.apns_url: the key is for the other environment",
    "SENDER_ID_MISMATCH": "check phones.fcm_account_file: the phone has an app of another project",
    "THIRD_PARTY_AUTH_ERROR": "check the APNs key in the Firebase project",
    "PERMISSION_DENIED": "check phones.fcm_account_file: the account may not send",
    "NOT_FOUND": "check phones.fcm_account_file: there is no such project",
}


class Verdict(NamedTuple):
    """What to do after an answer."""

    refused: Refused | None = None
    renews: bool = False
    """The credential is the problem: try once more with a new one."""
    is_down: bool = False
    """The provider asks everyone to wait, or is not there."""
    pause_ms: int = 0
    """For how long; 0: it does not say."""
    is_misconfigured: bool = False
    """Only an operator can help."""


def apns_verdict(status: int, body: bytes, *, pause_ms: int = 0) -> Verdict:
    """Of an answer of APNs: ``{"reason": …, "timestamp": …}`` with a status."""
    if status == 200:
        return Verdict()
    answer = _object(body)
    word = str(answer.get("reason") or "")
    reason = f"APNs answered with status {status} {word}".rstrip()
    match status, word:
        case (410, _) | (400, "BadDeviceToken"):
            since = answer.get("timestamp")
            return Verdict(Refused(reason, is_token_dead=True, dead_since=since if type(since) is int else None))
        case 403, "ExpiredProviderToken":
            return Verdict(Refused(f"{reason}: check the clock of this machine"), renews=True)
        case 429, "TooManyProviderTokenUpdates":
            return Verdict(Refused(reason), is_down=True, pause_ms=pause_ms or QUOTA_PAUSE_MS)
        case 429, _:
            return Verdict(Refused(reason))  # too many for this one phone
        case (403, _) | (400 | 404 | 405, _):
            advice = _ADVICE.get(word)
            return Verdict(Refused(f"{reason}: {advice}" if advice else reason), is_misconfigured=True)
        case _ if status >= 500:
            return Verdict(Refused(reason), is_down=True, pause_ms=pause_ms)
    return Verdict(Refused(reason))


def fcm_verdict(status: int, body: bytes, *, pause_ms: int = 0) -> Verdict:
    """Of an answer of FCM: ``{"error": {"status": …, "details": […]}}`` with a status."""
    if status == 200:
        return Verdict()
    error = _object(body).get("error")
    error = error if isinstance(error, dict) else {}
    details = [each for each in error.get("details") or () if isinstance(each, dict)]
    code = next((str(each["errorCode"]) for each in details if each.get("errorCode")), "")
    word = code or str(error.get("status") or "")
    reason = f"FCM answered with status {status} {word}".rstrip()
    if code == "UNREGISTERED" or (status == 400 and word == "INVALID_ARGUMENT" and _blames_token(details)):
        return Verdict(Refused(reason, is_token_dead=True))
    if status == 401 and code != "THIRD_PARTY_AUTH_ERROR":
        return Verdict(Refused(f"{reason}: check phones.fcm_account_file"), renews=True)
    if status == 429:
        return Verdict(Refused(reason), is_down=True, pause_ms=pause_ms or QUOTA_PAUSE_MS)
    if status >= 500:
        return Verdict(Refused(reason), is_down=True, pause_ms=pause_ms)
    advice = _ADVICE.get(word)
    return Verdict(Refused(f"{reason}: {advice}" if advice else reason), is_misconfigured=True)


def _blames_token(details: list[dict[str, Any]]) -> bool:
    """Is it the token that is not valid? If a field is named, it must be that one."""
    fields = [
        str(violation.get("field"))
        for each in details
        for violation in each.get("fieldViolations") or ()
        if isinstance(violation, dict)
    ]
    return not fields or "message.token" in fields


def retry_after_ms(value: str | None, now_ms: int) -> int:
    """What a Retry-After says, as seconds or as a date; 0 if it says nothing that makes sense."""
    if not value:
        return 0
    if value.strip().isascii() and value.strip().isdigit():
        return min(int(value.strip()[:9]) * 1000, PAUSE_MS_MAX)
    try:
        wait_ms = int(parsedate_to_datetime(value).timestamp() * 1000) - now_ms
    except (TypeError, ValueError, OverflowError):
        return 0
    return min(max(wait_ms, 0), PAUSE_MS_MAX)


def _object(body: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return answer if isinstance(answer, dict) else {}
