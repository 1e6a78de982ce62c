"""Push tokens: what a provider calls the phone of a user."""

from typing import NamedTuple

__all__ = ["PROVIDERS", "PUSH_TOKENS_MAX", "PushToken"]

PROVIDERS = ("apns", "fcm", "webhook")

PUSH_TOKENS_MAX = 16
"""Push tokens of one user. One more takes the place of the oldest, wherever the log is read: so it is no setting."""


class PushToken(NamedTuple):
    """One installation of an app that can be told of what waits. There is one for each device of a user."""

    user: int
    platform: str
    device: str
    provider: str
    token: str
    topic: str = ""
    """Which app, where the provider's account has several."""
    at: int = 0
    """When it was registered last, in milliseconds since the epoch."""
    event_id: int = 0

    @property
    def place(self) -> str:
        """Which of the user's devices it is, as a notification task names it."""
        return f"{self.platform}/{self.device}"
