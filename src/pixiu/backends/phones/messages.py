"""What is sent to a phone: a few words, a badge, and where to look. Nothing else of a message leaves the node.

A notification's text is empty for what is encrypted or no text, and cut to ``horn.text_max``; here it is cut once more
if the whole would be larger than a provider takes.
"""

from __future__ import annotations

import json
import uuid
from bisect import bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.ports.notifications import Notification

__all__ = ["PAYLOAD_BYTES_MAX", "apns_headers", "apns_payload", "fcm_payload"]

PAYLOAD_BYTES_MAX = 4096
"""Both providers refuse more."""

_ALERT_NOW = "10"
_SECOND_MS = 1000
_NAMESPACE = uuid.UUID("8a0f4d0e-6f2b-5c39-9d5c-7f1f0f6f7069")


def apns_headers(notification: Notification, *, topic: str, bearer: str, now_ms: int, expire_ms: int) -> dict[str, str]:
    """The header fields of a request to APNs."""
    phone = notification.push_token
    assert phone is not None
    name = f"{notification.message_id}/{phone.user}/{phone.place}"
    return {
        "authorization": f"bearer {bearer}",
        "apns-id": str(uuid.uuid5(_NAMESPACE, name)),  # the same when it is tried again
        "apns-topic": phone.topic or topic,
        "apns-push-type": "alert",
        "apns-priority": _ALERT_NOW,
        "apns-expiration": str((now_ms + expire_ms) // _SECOND_MS if expire_ms else 0),
        "apns-collapse-id": notification.conversation,
    }


def apns_payload(notification: Notification, no_text: str) -> bytes:
    """The body of a request to APNs. The app's own extension may change what is shown, or decrypt it."""

    def build(text: str) -> bytes:
        aps: dict[str, object] = {
            "alert": {"title": notification.sender_name or notification.sender, "body": text},
            "badge": notification.badge,
            "sound": "default",
            "thread-id": notification.conversation,
            "mutable-content": 1,
        }
        return _encoded({"aps": aps, "pixiu": _where(notification)})

    return _fitted(notification.text or no_text, build)


def fcm_payload(notification: Notification, no_text: str, *, expire_ms: int) -> bytes:
    """The body of a request to FCM."""
    phone = notification.push_token
    assert phone is not None
    token = phone.token

    def build(text: str) -> bytes:
        message: dict[str, object] = {
            "notification": {"title": notification.sender_name or notification.sender, "body": text},
            "data": _where(notification),
            "android": {
                "collapse_key": notification.conversation,
                "priority": "HIGH",
                "ttl": f"{expire_ms // _SECOND_MS}s",
                "notification": {"tag": notification.conversation, "notification_count": notification.badge},
            },
        }
        return _encoded({"message": {"token": token, **message}})

    return _fitted(notification.text or no_text, build, PAYLOAD_BYTES_MAX + len(token.encode()))


def _where(notification: Notification) -> dict[str, str]:
    return {
        "user": notification.user,
        "conversation": notification.conversation,
        "message_id": str(notification.message_id),
        "sender": notification.sender,
    }


def _fitted(text: str, build: Callable[[str], bytes], bytes_max: int = PAYLOAD_BYTES_MAX) -> bytes:
    """With as much of the text as there is room for."""
    content = build(text)
    if len(content) <= bytes_max:
        return content
    text = text[:bytes_max]
    # How long a character is depends on how it is written: ask.
    count = bisect_right(range(1, len(text) + 1), bytes_max, key=lambda size: len(build(text[:size] + "…")))
    return build(text[:count] + "…")


def _encoded(content: dict[str, object]) -> bytes:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")
