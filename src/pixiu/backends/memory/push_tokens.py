"""``PushTokens`` on dicts."""

from operator import attrgetter

from pixiu.model.push_token import PushToken

__all__ = ["MemoryPushTokens"]


class MemoryPushTokens:
    """Per user: tokens by device."""

    def __init__(self) -> None:
        self._tokens: dict[int, dict[tuple[str, str], PushToken]] = {}
        self._holders: dict[tuple[str, str], PushToken] = {}

    def of(self, user: int) -> list[PushToken]:
        """A user's push tokens, the one that was registered first at the front."""
        return sorted(self._tokens.get(user, {}).values(), key=attrgetter("event_id"))

    def holder(self, provider: str, token: str) -> PushToken | None:
        """The one device that has this token."""
        return self._holders.get((provider, token))

    def put(self, push_token: PushToken) -> None:
        """Register it for its device, in place of what the device had."""
        user, platform, device, provider, token, *_ = push_token
        self.remove(user, platform, device)
        self._tokens.setdefault(user, {})[platform, device] = push_token
        self._holders[provider, token] = push_token

    def remove(self, user: int, platform: str, device: str) -> bool:
        """Forget a device's token."""
        found = self._tokens.get(user, {}).pop((platform, device), None)
        if found is None:
            return False
        del self._holders[found.provider, found.token]
        return True
