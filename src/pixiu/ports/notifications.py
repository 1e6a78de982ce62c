"""Third-party push: what a phone shows while its owner is away."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from pixiu.model.push_token import PushToken

__all__ = ["Notification", "Notifications", "Refused", "Told"]


@dataclass(frozen=True, slots=True)
class Notification:
    """One notification for one platform of one user; with a push token, for one phone."""

    user: str
    platform: str
    message_id: int
    conversation: str
    """The collapse key: a newer notification of a conversation replaces the older one."""
    sender: str
    text: str
    badge: int
    push_token: PushToken | None = None
    sender_name: str = ""
    """What people call the sender."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Why a provider did not take a notification. It is tried again, unless the token is dead."""

    reason: str
    is_token_dead: bool = False
    """The provider knows the phone no more: the token is to be retired."""
    dead_since: int | None = None
    """When it was seen to be dead, in milliseconds since the epoch: a token registered later lives."""


Told = Callable[[Refused | None], None]
"""Called once: None when the notification was taken."""


class Notifications(Protocol):
    """A provider."""

    def send(self, notification: Notification, done: Told) -> None:
        """Hand it over; never blocks."""
        ...
