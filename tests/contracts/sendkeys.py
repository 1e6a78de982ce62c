"""What every ``SendKeys`` must do."""

from pixiu.ports.sendkeys import SendKeys, Sent
from tests.contracts.stores import StoresCase


class SendKeysContract(StoresCase):
    """The first send under a key holds."""

    @property
    def keys(self) -> SendKeys:
        return self.stores().keys

    def test_a_key_gives_what_was_sent_under_it(self) -> None:
        assert self.keys.get(b"1/a") is None
        self.keys.put(b"1/a", Sent(2**62, 7, 1_700_000_000_000))
        assert self.keys.get(b"1/a") == Sent(2**62, 7, 1_700_000_000_000)
        self.settle()
        assert self.keys.get(b"1/a") == Sent(2**62, 7, 1_700_000_000_000)

    def test_the_first_one_stays(self) -> None:
        self.keys.put(b"k", Sent(1, 1, 1))
        self.keys.put(b"k", Sent(2, 2, 2))
        self.settle()
        self.keys.put(b"k", Sent(3, 3, 3))
        assert self.keys.get(b"k") == Sent(1, 1, 1)
        self.settle()
        assert self.keys.get(b"k") == Sent(1, 1, 1)

    def test_the_first_one_stays_also_when_its_key_was_asked_for(self) -> None:
        assert self.keys.get(b"k") is None
        self.keys.put(b"k", Sent(1, 1, 1))
        self.keys.put(b"k", Sent(2, 2, 2))
        assert self.keys.get(b"k") == Sent(1, 1, 1)
        self.settle()
        self.keys.put(b"k", Sent(3, 3, 3))
        assert self.keys.get(b"k") == Sent(1, 1, 1)

    def test_keys_are_any_bytes(self) -> None:
        keys = [b"", b"\x00", b"\xff" * 80, b"a", b"a\x00", b"a\xff"]
        for number, key in enumerate(keys):
            self.keys.put(key, Sent(number, 0, -number))
        self.settle()
        assert [self.keys.get(key) for key in keys] == [Sent(number, 0, -number) for number in range(len(keys))]
        assert self.keys.get(b"a\x01") is None
