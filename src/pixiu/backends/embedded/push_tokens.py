"""``PushTokens`` on the overlay: a row per user, since all of them are asked for together, and one per token."""

from hashlib import sha256

import msgspec

from pixiu.backends.embedded.layout import PUSH_HOLDER, PUSH_TOKENS, key1, number
from pixiu.backends.embedded.overlay import Overlay
from pixiu.model.push_token import PushToken

__all__ = ["EmbeddedPushTokens"]

_encode = msgspec.json.encode
_decode = msgspec.json.Decoder(list[tuple[str, str, str, str, str, int, int]]).decode


class EmbeddedPushTokens:
    """Rows are read when someone is away and a phone is told: nothing is kept in memory."""

    def __init__(self, overlay: Overlay) -> None:
        self._overlay = overlay

    def of(self, user: int) -> list[PushToken]:
        """A user's push tokens, the one that was registered first at the front."""
        value = self._overlay.get(key1(PUSH_TOKENS, user))
        return [] if value is None else [PushToken(user, *row) for row in _decode(value)]

    def holder(self, provider: str, token: str) -> PushToken | None:
        """The one device that has this token."""
        value = self._overlay.get(_holder(provider, token))
        if value is None:
            return None
        tokens = self.of(int.from_bytes(value, "big"))
        return next((each for each in tokens if (each.provider, each.token) == (provider, token)), None)

    def put(self, push_token: PushToken) -> None:
        """Register it for its device, in place of what the device had."""
        self.remove(push_token.user, push_token.platform, push_token.device)
        tokens = sorted([*self.of(push_token.user), push_token], key=lambda each: each.event_id)
        self._save(push_token.user, tokens)
        self._overlay.put(_holder(push_token.provider, push_token.token), number.pack(push_token.user))

    def remove(self, user: int, platform: str, device: str) -> bool:
        """Forget a device's token."""
        tokens = self.of(user)
        left = [each for each in tokens if (each.platform, each.device) != (platform, device)]
        if len(left) == len(tokens):
            return False
        for gone in tokens:
            if gone not in left:
                self._overlay.delete(_holder(gone.provider, gone.token))
        self._save(user, left)
        return True

    def _save(self, user: int, tokens: list[PushToken]) -> None:
        key = key1(PUSH_TOKENS, user)
        if tokens:
            self._overlay.put(key, _encode([each[1:] for each in tokens]))
        else:
            self._overlay.delete(key)


def _holder(provider: str, token: str) -> bytes:
    """Tokens may be long; a key need not be."""
    return PUSH_HOLDER + sha256(f"{provider}\0{token}".encode()).digest()
