"""Push tokens by user and device, and by the token itself."""

from typing import Protocol

from pixiu.model.push_token import PushToken

__all__ = ["PushTokens"]


class PushTokens(Protocol):
    """Where phones can be told. Implementations pass ``tests/contracts/push_tokens.py``."""

    def of(self, user: int) -> list[PushToken]:
        """A user's push tokens, the one that was registered first at the front."""
        ...

    def holder(self, provider: str, token: str) -> PushToken | None:
        """The one device that has this token."""
        ...

    def put(self, push_token: PushToken) -> None:
        """Register it for its device, in place of what the device had. Nobody else may hold this token."""
        ...

    def remove(self, user: int, platform: str, device: str) -> bool:
        """Forget a device's token. False: it had none."""
        ...
