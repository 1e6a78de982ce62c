"""Third-party push: what a phone shows while its owner is away."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

__all__ = ["Notification", "Notifications"]


@dataclass(frozen=True, slots=True)
class Notification:
    """One notification for one platform of one user."""

    user: str
    platform: str
    message_id: int
    conversation: str
    """The collapse key: a newer notification of a conversation replaces the older one."""
    sender: str
    text: str
    badge: int


class Notifications(Protocol):
    """A provider. Calls back once: None when it was taken, else why not (it is tried again)."""

    def send(self, notification: Notification, done: Callable[[str | None], None]) -> None:
        """Hand it over; never blocks."""
        ...
