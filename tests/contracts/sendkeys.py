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

    def test_many_are_looked_for_at_once_and_only_those_that_were_used_are_found(self) -> None:
        one, other, third = (user.to_bytes(8, "big") + b"/a" for user in (1, 2, 3))
        assert self.keys.find([one, other]) == {}
        assert self.keys.find([]) == {}
        self.keys.put(one, Sent(1, 1, 1))
        self.settle()
        self.keys.put(other, Sent(2, 2, 2))
        assert self.keys.find([third, other, one]) == {one: Sent(1, 1, 1), other: Sent(2, 2, 2)}
        for key in (one, other, third):
            self.keys.put(key, Sent(3, 3, 3))
        assert self.keys.find([one, other, third]) == {one: Sent(1, 1, 1), other: Sent(2, 2, 2), third: Sent(3, 3, 3)}

    def test_keys_are_any_bytes(self) -> None:
        keys = [b"", b"\x00", b"\xff" * 80, b"a", b"a\x00", b"a\xff"]
        for number, key in enumerate(keys):
            self.keys.put(key, Sent(number, 0, -number))
        self.settle()
        assert [self.keys.get(key) for key in keys] == [Sent(number, 0, -number) for number in range(len(keys))]
        assert self.keys.get(b"a\x01") is None

    def test_a_users_sends_come_in_pages(self) -> None:
        one, other = (7).to_bytes(8, "big"), (8).to_bytes(8, "big")
        mine = {one + b"%03d" % number: Sent(number, number, number) for number in range(250)}
        for key, sent in [*mine.items(), (other + b"x", Sent(1, 1, 1)), (b"\xffgroup:tea", Sent(2, 2, 2))]:
            self.keys.put(key, sent)
        self.stores().commit({})
        found: list[tuple[bytes, Sent]] = []
        after: bytes | None = b""
        while after is not None:
            page = self.keys.page(7, after, 100)
            found += page.sent
            after = page.after
        assert sorted(found) == sorted(mine.items())
        assert self.keys.page(9, b"", 100) == ([], None)

    def test_a_send_is_forgotten_if_it_is_old_enough(self) -> None:
        old, new, fresh = (7).to_bytes(8, "big") + b"old", (7).to_bytes(8, "big") + b"new", b"\0" * 8 + b"fresh"
        self.keys.put(old, Sent(10, 1, 1))
        self.keys.put(new, Sent(20, 2, 2))
        self.stores().commit({})
        self.keys.put(fresh, Sent(11, 3, 3))
        for _ in range(2):  # twice is once
            for key in (old, new, fresh, b"\0" * 8 + b"never"):
                self.keys.drop(key, 15)
            for _ in range(2):
                assert [self.keys.get(key) for key in (old, new, fresh)] == [None, Sent(20, 2, 2), None]
                assert [key for key, _ in self.keys.page(7, b"", 10).sent] == [new]
                self.settle()

    def test_a_key_that_was_forgotten_may_be_used_again(self) -> None:
        key = (7).to_bytes(8, "big") + b"again"
        for first, is_settled in ((10, False), (20, True), (30, False)):
            self.keys.put(key, Sent(first, first, 1))
            if is_settled:
                self.settle()
            self.keys.drop(key, first)
            self.keys.put(key, Sent(first + 5, 2, 2))
            self.keys.drop(key, first)
            assert self.keys.get(key) == Sent(first + 5, 2, 2)
            self.settle()
            assert self.keys.get(key) == Sent(first + 5, 2, 2)
            self.keys.drop(key, first + 5)
        self.settle()
        assert self.keys.get(key) is None
