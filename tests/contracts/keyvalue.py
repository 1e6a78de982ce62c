"""What every ``KeyValue`` must do. A backend's tests inherit from ``KeyValueContract`` and say how to open one."""

import random
from abc import ABC, abstractmethod

from pixiu.ports.keyvalue import KeyValue

EVERYTHING = b"", b"\xff" * 40


class KeyValueContract(ABC):
    """The contract, as tests. ``open_store`` opens the same content each time; ``store`` is the first opening."""

    @abstractmethod
    def open_store(self) -> KeyValue:
        """The same content each time."""

    def test_what_was_put_is_got(self) -> None:
        store = self.open_store()
        store.write([(b"a", b"1"), (b"b", b""), (b"", b"empty key")])
        assert store.get(b"a") == b"1"
        assert store.get(b"b") == b""
        assert store.get(b"") == b"empty key"
        assert store.get(b"c") is None
        store.close()

    def test_a_scan_is_ordered_by_bytes_and_leaves_its_end_out(self) -> None:
        store = self.open_store()
        keys = [b"a", b"a\x00", b"a\xff", b"b", b"b\x00", b"\x00", b"\xfe\xff"]
        store.write([(key, key) for key in keys])
        assert list(store.scan(b"a", b"b")) == [(key, key) for key in (b"a", b"a\x00", b"a\xff")]
        assert [key for key, _ in store.scan(*EVERYTHING)] == sorted(keys)
        assert list(store.scan(b"c", b"c")) == []
        assert list(store.scan(b"z", b"a")) == []
        store.close()

    def test_a_scan_back_gives_the_same_pairs_last_one_first(self) -> None:
        store = self.open_store()
        keys = [b"a", b"a\x00", b"a\xff", b"b", b"b\x00", b"\x00", b"\xfe\xff"]
        store.write([(key, key) for key in keys])
        assert [key for key, _ in store.scan_back(b"a", b"b")] == [b"a\xff", b"a\x00", b"a"]
        assert [key for key, _ in store.scan_back(b"a\x01", b"b\x01")] == [b"b\x00", b"b", b"a\xff"]
        assert [key for key, _ in store.scan_back(*EVERYTHING)] == sorted(keys, reverse=True)
        assert list(store.scan_back(b"c", b"c")) == []
        assert list(store.scan_back(b"z", b"a")) == []
        assert list(store.scan_back(b"a\x01", b"a\x02")) == []
        store.close()

    def test_a_page_from_either_end_is_read_without_the_rest(self) -> None:
        store = self.open_store()
        store.write([(b"%05d" % number, b"x") for number in range(2000)])
        forward, backward = store.scan(b"00500", b"01500"), store.scan_back(b"00500", b"01500")
        assert [next(forward)[0], next(forward)[0]] == [b"00500", b"00501"]
        assert [next(backward)[0], next(backward)[0]] == [b"01499", b"01498"]
        store.close()

    def test_many_keys_are_got_at_once_each_in_its_place(self) -> None:
        store = self.open_store()
        store.write([(b"a", b"1"), (b"b", b""), (b"c", b"3")])
        assert store.get_many([b"c", b"no", b"a", b"b", b"a"]) == [b"3", None, b"1", b"", b"1"]
        assert store.get_many([]) == []
        store.close()

    def test_deletes_come_before_puts_of_the_same_batch(self) -> None:
        store = self.open_store()
        store.write([(b"a", b"1"), (b"b", b"2")])
        store.write([(b"a", b"new")], [b"a", b"b", b"never was"])
        assert list(store.scan(*EVERYTHING)) == [(b"a", b"new")]
        store.close()

    def test_the_last_put_of_a_key_holds(self) -> None:
        store = self.open_store()
        store.write([(b"a", b"1"), (b"a", b"2")])
        assert store.get(b"a") == b"2"
        store.write([])
        assert store.get(b"a") == b"2"
        store.close()

    def test_a_store_may_change_while_it_is_scanned(self) -> None:
        store = self.open_store()
        store.write([(b"%03d" % number, b"x") for number in range(300)])
        seen = []
        for key, _ in store.scan(b"", b"\xff"):
            seen.append(key)
            store.write([(key + b"+", b"y")], [b"%03d" % (int(key[:3]) + 150)] if b"+" not in key else [])
            assert len(seen) < 1000, "a scan must end"
        assert seen == sorted(seen)
        assert {key for key in seen if b"+" not in key} >= {b"%03d" % number for number in range(150)}
        store.close()

    def test_a_dump_is_one_moment(self) -> None:
        store = self.open_store()
        before = [(b"%03d" % number, b"%d" % number) for number in range(200)]
        store.write(before)
        dump = store.dump()
        first = next(dump)
        store.write([(b"000", b"changed"), (b"999", b"late")], [b"100"])
        assert [first, *dump] == before
        store.close()

    def test_content_outlives_the_process(self) -> None:
        store = self.open_store()
        store.write([(b"a", b"1"), (b"b", b"2")])
        store.write([], [b"a"])
        store.flush()
        store.write([(b"c", b"3")])
        store.close()
        again = self.open_store()
        assert list(again.scan(*EVERYTHING)) == [(b"b", b"2"), (b"c", b"3")]
        again.close()

    def test_large_values(self) -> None:
        store = self.open_store()
        value = bytes(range(256)) * 4096
        store.write([(b"large", value)])
        assert store.get(b"large") == value
        store.close()

    def test_it_does_what_a_dict_does(self) -> None:
        rng = random.Random(11)
        store = self.open_store()
        model: dict[bytes, bytes] = {}
        for step in range(400):
            keys = [bytes(rng.choices(b"abc\x00\xff", k=rng.randint(0, 4))) for _ in range(rng.randint(0, 6))]
            puts = [(key, b"%d" % rng.randint(0, 99)) for key in keys]
            deletes = [bytes(rng.choices(b"abc\x00\xff", k=rng.randint(0, 3))) for _ in range(rng.randint(0, 3))]
            store.write(puts, deletes)
            for key in deletes:
                model.pop(key, None)
            model.update(puts)
            start, end = sorted(bytes(rng.choices(b"abc\x00\xff", k=2)) for _ in range(2))
            expected = sorted(i for i in model.items() if start <= i[0] < end)
            assert list(store.scan(start, end)) == expected, step
            assert list(store.scan_back(start, end)) == expected[::-1], step
            assert store.get_many(keys) == [model.get(key) for key in keys], step
            if rng.random() < 0.05:
                store.flush()
        assert list(store.dump()) == sorted(model.items())
        store.close()
