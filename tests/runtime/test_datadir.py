"""The data directory: formats, the lock, the key."""

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from pixiu.model.errors import CorruptData, NotFound, PixiuError
from pixiu.runtime.datadir import (
    FORMAT,
    DataDirectory,
    DataDirectoryInUse,
    FormatRefused,
    Holder,
    Progress,
    Report,
    find_server,
    read_node_key,
)

HOLD = """
import sys
from hashlib import sha256
from pathlib import Path
from pixiu.runtime.datadir import DataDirectory
directory = DataDirectory.open(Path(sys.argv[1]))
directory.announce(address="127.0.0.1:12301", http="127.0.0.1:8400")
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """Another process that holds the directory ``tmp_path / "data"``."""
    command = [sys.executable, "-c", HOLD, str(tmp_path / "data")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_new_directory_is_made_with_format_key_and_lock(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "data"
    with DataDirectory.open(path) as directory:
        assert json.loads((path / "FORMAT").read_text()) == {"format": FORMAT}
        assert directory.key == (path / "node.key").read_text().splitlines()[0] == read_node_key(path)
        assert len(bytes.fromhex(directory.key)) == 32
        for name in ("node.key", "node.key.copy"):
            assert stat.S_IMODE((path / name).stat().st_mode) == 0o600
        names = ["FORMAT", "LOCK", "ballast", "node.id", "node.id.copy", "node.key", "node.key.copy"]
        assert sorted(entry.name for entry in path.iterdir()) == names


def test_the_key_stays_the_same_and_differs_between_nodes(tmp_path: Path) -> None:
    keys = []
    for name in ("a", "a", "b"):
        with DataDirectory.open(tmp_path / name) as directory:
            keys.append(directory.key)
    assert keys[0] == keys[1] != keys[2]


def test_a_held_directory_is_refused_with_pid_and_address(tmp_path: Path, holder: "subprocess.Popen[str]") -> None:
    with pytest.raises(DataDirectoryInUse) as caught:
        DataDirectory.open(tmp_path / "data")
    assert str(caught.value) == (
        f"data directory {tmp_path / 'data'} is in use by pid {holder.pid} (127.0.0.1:12301 and 127.0.0.1:8400); "
        "stop it, or name another with --data"
    )


def test_other_commands_find_the_server(tmp_path: Path, holder: "subprocess.Popen[str]") -> None:
    found = find_server(tmp_path / "data")
    assert found is not None
    assert (found.pid, found.address, found.http) == (holder.pid, "127.0.0.1:12301", "127.0.0.1:8400")
    assert found.started_at is not None


def test_a_lock_left_by_a_killed_process_holds_nobody_up(tmp_path: Path, holder: "subprocess.Popen[str]") -> None:
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    assert json.loads((tmp_path / "data" / "LOCK").read_text())["pid"] == holder.pid
    assert find_server(tmp_path / "data") is None
    DataDirectory.open(tmp_path / "data").close()


def test_looking_for_a_server_never_keeps_one_from_starting(tmp_path: Path) -> None:
    """A look takes a shared lock for a moment; an open in that moment waits for it."""
    DataDirectory.open(tmp_path).close()
    looking = "import sys, pathlib\nfrom pixiu.runtime.datadir import find_server\n"
    looking += "print(flush=True)\nwhile True: find_server(pathlib.Path(sys.argv[1]))"
    command = [sys.executable, "-c", looking, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            for _ in range(100):
                DataDirectory.open(tmp_path).close()
        finally:
            process.kill()


def test_nobody_serves_what_is_not_there_or_was_closed(tmp_path: Path) -> None:
    assert find_server(tmp_path / "none") is None
    directory = DataDirectory.open(tmp_path)
    assert find_server(tmp_path) == Holder(os.getpid())
    directory.close()
    directory.close()
    assert find_server(tmp_path) is None


def test_a_newer_format_is_refused_and_left_alone(tmp_path: Path) -> None:
    DataDirectory.open(tmp_path).close()
    (tmp_path / "FORMAT").write_text('{"format": 7}')
    with pytest.raises(FormatRefused, match=r"format 7, written by a newer version; .* up to format 1"):
        DataDirectory.open(tmp_path)
    assert (tmp_path / "FORMAT").read_text() == '{"format": 7}'
    assert find_server(tmp_path) is None


def test_an_older_format_is_upgraded_step_by_step_with_progress(tmp_path: Path) -> None:
    DataDirectory.open(tmp_path, format_version=1).close()
    seen: list[Progress] = []

    def to_two(path: Path, report: Report) -> None:
        report(1, 2)
        (path / "two").touch()

    def to_three(path: Path, report: Report) -> None:
        assert json.loads((path / "FORMAT").read_text()) == {"format": 2}
        (path / "two").rename(path / "three")

    DataDirectory.open(tmp_path, format_version=3, upgrades={1: to_two, 2: to_three}, progress=seen.append).close()
    assert (tmp_path / "three").exists()
    assert json.loads((tmp_path / "FORMAT").read_text()) == {"format": 3}
    assert seen == [
        Progress(1, 2, 0, 1),
        Progress(1, 2, 1, 2),
        Progress(1, 2, 1, 1),
        Progress(2, 3, 0, 1),
        Progress(2, 3, 1, 1),
    ]


def test_an_upgrade_that_fails_keeps_what_is_done_and_goes_on_next_time(tmp_path: Path) -> None:
    DataDirectory.open(tmp_path, format_version=1).close()
    done: list[int] = []

    def fails_once(path: Path, report: Report) -> None:
        done.append(2)
        if done == [1, 2]:
            raise OSError(28, "No space left on device")

    upgrades = {1: lambda path, report: done.append(1), 2: fails_once}
    with pytest.raises(PixiuError, match="No space left"):
        DataDirectory.open(tmp_path, format_version=3, upgrades=upgrades)
    assert json.loads((tmp_path / "FORMAT").read_text()) == {"format": 2}
    DataDirectory.open(tmp_path, format_version=3, upgrades=upgrades).close()
    assert done == [1, 2, 2]


def test_an_upgrade_without_a_step_changes_nothing(tmp_path: Path) -> None:
    DataDirectory.open(tmp_path, format_version=1).close()
    ran: list[int] = []
    with pytest.raises(FormatRefused, match="no upgrade from 2 to 3"):
        DataDirectory.open(tmp_path, format_version=3, upgrades={1: lambda path, report: ran.append(1)})
    assert not ran


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"format": "1"}', b'{"format": -1}', b'{"form": 1}', b"\xff\xfe"])
def test_a_format_that_makes_no_sense_is_reported(tmp_path: Path, text: bytes) -> None:
    DataDirectory.open(tmp_path).close()
    (tmp_path / "FORMAT").write_bytes(text)
    with pytest.raises(CorruptData, match=r"FORMAT is damaged: .*echo '\{\"format\": 1\}' > ") as caught:
        DataDirectory.open(tmp_path)
    assert caught.value.path == str(tmp_path / "FORMAT")


def test_what_is_advised_for_a_damaged_format_helps(tmp_path: Path) -> None:
    data = tmp_path / "data of mine"
    DataDirectory.open(data).close()
    (data / "FORMAT").write_text("garbage")
    with pytest.raises(CorruptData) as caught:
        DataDirectory.open(data)
    command = str(caught.value).partition("write it again: ")[2].partition(". Then")[0]
    subprocess.run(["sh", "-c", command], check=True)
    DataDirectory.open(data).close()


def test_missing_format_is_reported_with_a_command_that_restores_it(tmp_path: Path) -> None:
    data = tmp_path / "data of mine"
    with DataDirectory.open(data) as directory:
        key = directory.key
    (data / "queue").mkdir()
    (data / "FORMAT").unlink()
    with pytest.raises(CorruptData, match="FORMAT is missing, and the rest of a data directory is there") as caught:
        DataDirectory.open(data)
    assert caught.value.path == str(data / "FORMAT")
    command = str(caught.value).partition("write it again: ")[2].partition(". Then")[0]
    subprocess.run(["sh", "-c", command], check=True)
    with DataDirectory.open(data) as directory:
        assert directory.key == key


def test_somebody_elses_directory_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "thesis.odt").touch()
    with pytest.raises(FormatRefused, match=r"not empty \(it has thesis\.odt\)"):
        DataDirectory.open(tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.odt"]


def test_a_creation_cut_short_is_completed(tmp_path: Path) -> None:
    (tmp_path / "LOCK").touch()
    (tmp_path / "FORMAT.new").write_text('{"for')
    DataDirectory.open(tmp_path).close()
    assert json.loads((tmp_path / "FORMAT").read_text()) == {"format": FORMAT}


def test_a_directory_that_cannot_be_made_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PixiuError, match=r"cannot use the data directory .*: "):
        DataDirectory.open(tmp_path / "file" / "data")


def test_a_missing_or_damaged_key_is_reported(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"no node\.key"):
        read_node_key(tmp_path)
    for text in (b"", b"short", b"\xff" * 64, b"G" * 64):
        (tmp_path / "node.key").write_bytes(text)
        with pytest.raises(CorruptData, match=r"node\.key is damaged .* remove both copies"):
            read_node_key(tmp_path)


def flip_one_bit(path: Path, at: int = 5) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("name", ["node.key", "node.key.copy", "node.id", "node.id.copy"])
@pytest.mark.parametrize("damage", ["flip", "remove", "cut"])
def test_a_damaged_copy_is_replaced_by_the_other(tmp_path: Path, name: str, damage: str) -> None:
    with DataDirectory.open(tmp_path) as directory:
        before = directory.key, directory.identity
    whole = (tmp_path / name).read_bytes()
    for at in range(0, len(whole), 7):
        if damage == "flip":
            flip_one_bit(tmp_path / name, at)
        elif damage == "cut":
            (tmp_path / name).write_bytes(whole[:at])
        else:
            (tmp_path / name).unlink()
        assert read_node_key(tmp_path) == before[0]
        with DataDirectory.open(tmp_path) as directory:
            assert (directory.key, directory.identity) == before
        assert (tmp_path / name).read_bytes() == whole


def test_when_both_copies_are_damaged_the_named_remedy_works(tmp_path: Path) -> None:
    with DataDirectory.open(tmp_path) as directory:
        key, identity = directory.key, directory.identity
    for name in ("node.id", "node.key"):
        for copy in (name, f"{name}.copy"):
            flip_one_bit(tmp_path / copy)
        with pytest.raises(CorruptData, match="remove both copies") as caught:
            DataDirectory.open(tmp_path)
        command = str(caught.value).split("rm -f ")[1].split(". ")[0]
        subprocess.run(f"rm -f {command}", shell=True, check=True)
        with DataDirectory.open(tmp_path) as directory:
            assert directory.identity == identity
            assert (directory.key == key) is (name == "node.id")


def test_the_files_of_an_earlier_version_are_read_and_sealed(tmp_path: Path) -> None:
    DataDirectory.open(tmp_path).close()
    key = "0123456789abcdef" * 4
    for path in tmp_path.glob("node.*"):
        path.unlink()
    (tmp_path / "node.key").write_text(key + "\n")
    assert read_node_key(tmp_path) == key
    with DataDirectory.open(tmp_path) as directory:
        assert directory.key == key
        assert directory.name == f"node-{sha256(key.encode()).hexdigest()[:8]}", "the name that it had"
    assert "# crc32 " in (tmp_path / "node.key").read_text()
