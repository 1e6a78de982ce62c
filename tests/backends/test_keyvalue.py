"""Every key-value store against one contract, and what is each one's own."""

import random
import subprocess
from pathlib import Path

import pytest

from pixiu.backends.embedded.keyvalue import LARGE, RocksKeyValue
from pixiu.backends.memory.keyvalue import MemoryKeyValue
from pixiu.model.errors import Unavailable
from pixiu.ports.keyvalue import KeyValue
from pixiu.testing.keyvalue import SimulatedKeyValue, StoreContent
from tests.contracts.keyvalue import EVERYTHING, KeyValueContract


class TestMemory(KeyValueContract):
    @pytest.fixture(autouse=True)
    def prepare(self) -> None:
        self.kept = MemoryKeyValue()

    def open_store(self) -> KeyValue:
        return self.kept


class TestRocks(KeyValueContract):
    @pytest.fixture(autouse=True)
    def prepare(self, tmp_path: Path) -> None:
        self.folder = tmp_path / "state"

    def open_store(self) -> KeyValue:
        return RocksKeyValue(self.folder)

    def test_a_folder_is_held_by_one(self) -> None:
        store = self.open_store()
        with pytest.raises(Unavailable, match="cannot open the store"):
            self.open_store()
        store.close()
        self.open_store().close()

    def test_it_works_again_when_a_full_disk_has_room(self, tmp_path: Path) -> None:
        disk = tmp_path / "disk"
        disk.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(disk)]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            pytest.skip("no small disk here: may not mount a tmpfs")
        try:
            store = RocksKeyValue(disk / "state")
            store.write([(b"first", b"1")])
            filler = disk / "filler"
            with pytest.raises(OSError, match="No space left"), filler.open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(4096))
            kept = 0
            with pytest.raises(Unavailable, match="No space left"):
                while True:
                    store.write([(b"%05d" % kept, bytes(1000))])
                    kept += 1
            with pytest.raises(Unavailable):
                store.write([(b"refused", bytes(9000))])
            assert store.get(b"first") == b"1"
            filler.unlink()
            store.write([(b"after", b"2")])
            store.flush()
            store.close()
            again = RocksKeyValue(disk / "state")
            keys = [key for key, _ in again.scan(*EVERYTHING)]
            assert keys == [*(b"%05d" % number for number in range(kept)), b"after", b"first"]
            again.close()
        finally:
            subprocess.run(["umount", "--lazy", str(disk)], check=True)


class TestLargeRocks(KeyValueContract):
    """With bloom filters, and the bounds that the stores of messaging have."""

    @pytest.fixture(autouse=True)
    def prepare(self, tmp_path: Path) -> None:
        self.folder = tmp_path / "stores"

    def open_store(self) -> KeyValue:
        return RocksKeyValue(self.folder, options=LARGE)


class TestSimulated(KeyValueContract):
    @pytest.fixture(autouse=True)
    def prepare(self) -> None:
        self.content = StoreContent()

    def open_store(self) -> KeyValue:
        return SimulatedKeyValue(self.content)

    def test_a_lost_machine_keeps_some_first_batches_and_all_that_were_flushed(self) -> None:
        seen = set()
        for seed in range(200):
            content = StoreContent()
            store = SimulatedKeyValue(content)
            for number in range(10):
                store.write([(b"%d" % number, b"x"), (b"last", b"%d" % number)], [b"%d" % (number - 5)])
                if number == 3:
                    store.flush()
            content.crash(random.Random(seed))
            after = SimulatedKeyValue(content)
            last = int(after.get(b"last") or b"-1")
            seen.add(last)
            expected = {b"%d" % number for number in range(max(last - 4, 0), last + 1)} | {b"last"}
            assert {key for key, _ in after.scan(*EVERYTHING)} == expected
        assert seen == set(range(3, 10))
