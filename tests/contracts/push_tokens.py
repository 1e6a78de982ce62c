"""What every ``PushTokens`` must do."""

import pytest

from pixiu.model.push_token import PushToken
from pixiu.ports.push_tokens import PushTokens
from tests.contracts.stores import StoresCase


class PushTokensContract(StoresCase):
    """Tokens by user and device, and who has one."""

    @property
    def tokens(self) -> PushTokens:
        return self.stores().push_tokens

    def test_nobody_has_one_at_first(self) -> None:
        assert self.tokens.of(1) == []
        assert self.tokens.holder("apns", "t") is None
        assert self.tokens.remove(1, "ios", "phone") is False

    def test_a_token_is_kept_with_all_that_belongs_to_it(self) -> None:
        token = PushToken(2**48 + 7, "ios", "貔貅 1", "apns", "a" * 4096, "app.example", 1_700_000_000_000, 2**61)
        self.tokens.put(token)
        assert self.tokens.of(token.user) == [token]
        self.settle()
        assert self.tokens.of(token.user) == [token]
        assert self.tokens.holder("apns", "a" * 4096) == token
        assert self.tokens.holder("fcm", "a" * 4096) is None

    def test_the_first_one_is_at_the_front_and_a_device_has_one(self) -> None:
        self.tokens.put(PushToken(1, "ios", "b", "apns", "t1", event_id=1))
        self.tokens.put(PushToken(1, "ios", "a", "apns", "t2", event_id=2))
        self.settle()
        self.tokens.put(PushToken(1, "android", "a", "fcm", "t3", event_id=3))
        self.tokens.put(PushToken(2, "ios", "b", "apns", "t4", event_id=4))
        self.tokens.put(PushToken(1, "ios", "b", "apns", "t5", event_id=5))
        self.settle()
        assert [each.token for each in self.tokens.of(1)] == ["t2", "t3", "t5"]
        assert [each.token for each in self.tokens.of(2)] == ["t4"]
        assert self.tokens.holder("apns", "t1") is None
        assert self.tokens.holder("apns", "t5") == PushToken(1, "ios", "b", "apns", "t5", event_id=5)

    def test_what_is_removed_is_gone_and_the_rest_stays(self) -> None:
        for event_id, device in enumerate(("a", "b", "c"), 1):
            self.tokens.put(PushToken(1, "ios", device, "apns", f"t{device}", event_id=event_id))
        self.settle()
        assert self.tokens.remove(1, "ios", "b") is True
        assert self.tokens.remove(1, "ios", "b") is False
        self.settle()
        assert [each.device for each in self.tokens.of(1)] == ["a", "c"]
        assert self.tokens.holder("apns", "tb") is None
        for device in ("a", "c"):
            assert self.tokens.remove(1, "ios", device) is True
        self.settle()
        assert self.tokens.of(1) == []
        assert self.tokens.holder("apns", "ta") is None

    @pytest.mark.parametrize("is_settled", [True, False])
    def test_a_token_moves_to_another_device(self, is_settled: bool) -> None:
        self.tokens.put(PushToken(1, "ios", "a", "apns", "t", event_id=1))
        if is_settled:
            self.settle()
        self.tokens.remove(1, "ios", "a")
        moved = PushToken(2, "ios", "a", "apns", "t", event_id=2)
        self.tokens.put(moved)
        self.settle()
        assert self.tokens.of(1) == []
        assert self.tokens.holder("apns", "t") == moved
