"""``PushTokens``: a value per user, since all of them are asked for together, and one per token."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec

from pixiu.model.push_token import PushToken

if TYPE_CHECKING:
    from pixiu.backends.redis.layout import Keys
    from pixiu.backends.redis.overlay import Overlay

__all__ = ["RedisPushTokens"]

_encode = msgspec.json.encode
_decode = msgspec.json.Decoder(list[tuple[str, str, str, str, str, int, int]]).decode


class RedisPushTokens:
    """They are read when someone is away and a phone is told: nothing is kept in memory."""

    def __init__(self, overlay: Overlay, keys: Keys) -> None:
        self._overlay = overlay
        self._keys = keys

    def of(self, user: int) -> list[PushToken]:
        """A user's push tokens, the one that was registered first at the front."""
        value = self._overlay.get(self._keys.push_tokens % user)
        return [] if value is None else [PushToken(user, *row) for row in _decode(value)]

    def holder(self, provider: str, token: str) -> PushToken | None:
        """The one device that has this token."""
        value = self._overlay.get(self._holder(provider, token))
        if value is None:
            return None
        tokens = self.of(int(value))
        return next((each for each in tokens if (each.provider, each.token) == (provider, token)), None)

    def put(self, push_token: PushToken) -> None:
        """Register it for its device, in place of what the device had."""
        self._overlay.check_room()
        self.remove(push_token.user, push_token.platform, push_token.device)
        tokens = sorted([*self.of(push_token.user), push_token], key=lambda each: each.event_id)
        self._save(push_token.user, tokens)
        self._overlay.put(self._holder(push_token.provider, push_token.token), push_token.user)

    def remove(self, user: int, platform: str, device: str) -> bool:
        """Forget a device's token."""
        tokens = self.of(user)
        left = [each for each in tokens if (each.platform, each.device) != (platform, device)]
        if len(left) == len(tokens):
            return False
        for gone in tokens:
            if gone not in left:
                self._overlay.put(self._holder(gone.provider, gone.token), None)
        self._save(user, left)
        return True

    def _save(self, user: int, tokens: list[PushToken]) -> None:
        value = _encode([each[1:] for each in tokens]) if tokens else None
        self._overlay.put(self._keys.push_tokens % user, value)

    def _holder(self, provider: str, token: str) -> str:
        """Tokens may be long; a key need not be."""
        return self._keys.push_holder % sha256(f"{provider}\0{token}".encode()).hexdigest()
