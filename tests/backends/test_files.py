"""The machine's disk and the simulated one against one contract, and what the simulated one may lose."""

import random
from pathlib import Path

import pytest

from pixiu.ports.files import Files
from pixiu.runtime.files import SystemFiles
from pixiu.testing.disk import SimulatedDisk
from pixiu.testing.scheduler import Power, PowerCut
from tests.contracts.files import FilesContract


class TestSystem(FilesContract):
    @pytest.fixture(autouse=True)
    def prepare(self, tmp_path: Path) -> None:
        self.root = tmp_path

    def make_files(self) -> Files:
        return SystemFiles(self.root)


class TestSystemWithoutCache(TestSystem):
    def make_files(self) -> Files:
        return SystemFiles(self.root, no_cache=True)


class TestSimulated(FilesContract):
    def make_files(self) -> Files:
        return SimulatedDisk(random.Random(1))


def test_what_is_opened_for_reading_alone_takes_no_writes(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"kept")
    file = SystemFiles(tmp_path, read_only=True).open("file")
    assert file.read(0, 10) == b"kept"
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.write(b"lost", 0)
    file.close()
    assert (tmp_path / "file").read_bytes() == b"kept"


def disk_with(seed: int, *, flushed: bytes, more: bytes, block_bytes: int = 512) -> SimulatedDisk:
    """A flushed file with unflushed bytes behind."""
    disk = SimulatedDisk(random.Random(seed), block_bytes=block_bytes)
    file = disk.open("file", create=True)
    file.write(flushed, 0)
    file.flush()
    disk.flush_folder("")
    file.write(more, len(flushed))
    return disk


def test_flushed_bytes_survive_and_others_survive_in_part_or_not() -> None:
    flushed, more = b"F" * 700, bytes(1 + n % 255 for n in range(3000))
    outcomes = set()
    for seed in range(400):
        disk = disk_with(seed, flushed=flushed, more=more)
        disk.crash()
        content = disk.content("file")
        assert content[:700] == flushed
        rest = content[700:]
        for at, byte in enumerate(rest):
            assert byte in (0, more[at]), "neither what was written nor zeros"
        if len(rest) == 0:
            outcomes.add("lost")
        elif rest == more:
            outcomes.add("kept")
        elif rest == more[: len(rest)]:
            outcomes.add("cut")
        elif 0 in rest and rest.rstrip(b"\0") != more[: len(rest.rstrip(b"\0"))]:
            outcomes.add("hole")
    assert outcomes >= {"lost", "kept", "cut", "hole"}


def test_a_block_may_be_torn_at_any_byte() -> None:
    tears = set()
    for seed in range(3000):
        disk = disk_with(seed, flushed=b"", more=b"x" * 512)
        disk.crash()
        content = disk.content("file")
        if len(content) == 512:
            tears.add(len(content.rstrip(b"\0")))
    assert len(tears) > 50


def test_a_cut_may_be_undone_until_it_is_flushed() -> None:
    results = set()
    for seed in range(100):
        disk = disk_with(seed, flushed=b"A" * 100, more=b"")
        file = disk.open("file")
        file.truncate(10)
        file.write(b"B" * 5, 10)
        disk.crash()
        results.add(disk.content("file"))
    assert b"A" * 100 in results
    assert b"A" * 10 + b"B" * 5 in results
    for seed in range(50):
        disk = disk_with(seed, flushed=b"A" * 100, more=b"")
        file = disk.open("file")
        file.truncate(10)
        file.flush()
        disk.crash()
        assert disk.content("file") == b"A" * 10


def test_a_name_that_was_not_flushed_may_be_gone_with_all_below_it() -> None:
    results = set()
    for seed in range(200):
        disk = SimulatedDisk(random.Random(seed))
        disk.make_folder("a/b")
        file = disk.open("a/b/file", create=True)
        file.write(b"x", 0)
        file.flush()
        disk.flush_folder("a/b")
        disk.crash()
        results.add(tuple(disk.files()))
    assert results == {(), ("a/b/file",)}
    for seed in range(50):
        disk = SimulatedDisk(random.Random(seed))
        disk.make_folder("a/b")
        disk.open("a/b/file", create=True).flush()
        disk.flush_paths(["a/b", "a", ""])
        disk.crash()
        assert disk.files() == ["a/b/file"]


def test_a_removed_name_may_come_back_until_the_folder_is_flushed() -> None:
    results = set()
    for seed in range(100):
        disk = disk_with(seed, flushed=b"old", more=b"")
        disk.remove("file")
        disk.crash()
        results.add(tuple(disk.files()))
    assert results == {(), ("file",)}


def test_a_killed_process_loses_nothing() -> None:
    power = Power()
    disk = SimulatedDisk(random.Random(3), power=power)
    file = disk.open("file", create=True)
    power.cut_after = 1
    file.write(b"whole", 0)
    with pytest.raises(PowerCut):
        file.write(b"a long one that is cut somewhere", 5)
    power.cut_after = None
    content = disk.content("file")
    assert content.startswith(b"whole")
    assert b"wholea long one that is cut somewhere".startswith(content)


def test_a_full_disk_takes_what_fits() -> None:
    disk = SimulatedDisk(random.Random(3))
    disk.capacity = 10
    file = disk.open("file", create=True)
    file.write(b"12345678", 0)
    assert disk.free_bytes() == 2
    with pytest.raises(OSError, match="No space left"):
        file.write(b"abcdef", 8)
    file.truncate(8)
    file.write(b"ab", 8)
    file.write(b"AB", 0)
    assert file.read(0, 20) == b"AB345678ab"


def test_after_a_failed_flush_the_bytes_never_reach_the_disk() -> None:
    disk = disk_with(1, flushed=b"A" * 512, more=b"B" * 512)
    file = disk.open("file")
    other = disk.open("file")
    disk.fail_flush = lambda path: True
    with pytest.raises(OSError, match="Input/output"):
        file.flush()
    disk.fail_flush = lambda path: False
    with pytest.raises(OSError, match="Input/output"):
        other.flush()  # everyone who had it open is told, once
    other.flush()
    file.flush()
    assert file.read(512, 512) == b"B" * 512
    disk.crash()
    assert disk.content("file") == b"A" * 512 + bytes(512)
    fresh = disk_with(2, flushed=b"A" * 512, more=b"B" * 512)
    file = fresh.open("file")
    fresh.fail_flush = lambda path: True
    with pytest.raises(OSError, match="Input/output"):
        file.flush()
    fresh.fail_flush = lambda path: False
    file.write(b"B" * 512, 512)  # written again, it is dirty again
    file.flush()
    fresh.crash()
    assert fresh.content("file") == b"A" * 512 + b"B" * 512
