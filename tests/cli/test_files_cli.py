"""``pixiu queue dump | tail | verify``, ``pixiu backup`` and ``pixiu restore``, on real queues and their files."""

import asyncio
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pixiu.cli.journal_check import journal_checks
from pixiu.cli.main import main
from pixiu.node.embedded import EmbeddedNode
from pixiu.queue.client import BlockingClient
from pixiu.runtime.backup import MANIFEST
from tests.servers import QueueProcess

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command in this process: its exit code, output and errors."""

    def run_one(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        out, error = capsys.readouterr()
        return int(ended.value.code or 0), out, error

    return run_one


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of a queue that ran for a while and was stopped."""
    data = tmp_path_factory.mktemp("stopped") / "data"
    with QueueProcess(data, args=["--set", "journal.segment_bytes=4096"]) as queue:
        _fill(queue)
    return data


def _fill(queue: QueueProcess, prefix: str = "m") -> None:
    with BlockingClient(queue.address) as client:
        for topic in ("order", "other"):
            client.create_topic(topic)
        for number in range(60):
            client.publish("order", f"{prefix}{number}".encode() + b"." * 100, headers={"n": str(number)})
        client.publish("other", b"\xff\x00 not text")
        client.delay("order", b"later", after=600_000)


def _bodies(queue: QueueProcess, topic: str, count: int) -> list[bytes]:
    found: list[bytes] = []
    with BlockingClient(queue.address) as client:
        for delivery in client.subscribe(topic, batch=255):
            found.append(delivery.body)
            if len(found) == count:
                break
    return found


def _copy(source: Path, target: Path) -> Path:
    import shutil

    return Path(shutil.copytree(source, target))


def _flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x10
    path.write_bytes(bytes(data))


def test_dump_prints_every_record_in_order(run: Run, stopped: Path) -> None:
    code, out, _ = run("queue", "dump", "--data", str(stopped), "--json")
    records: list[dict[str, Any]] = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [record["event_id"] for record in records] == sorted(record["event_id"] for record in records)
    assert sum(len(record["messages"]) for record in records if record["kind"] == "publish") == 61
    assert [record["kind"] for record in records].count("create") == 2
    assert any(row["body"].startswith("base64:") for record in records for row in record["messages"])


def test_dump_begins_behind_an_event_and_keeps_to_a_topic(run: Run, stopped: Path) -> None:
    _, out, _ = run("queue", "dump", "--data", str(stopped), "--after", "60", "--topic", "order", "--json")
    records = [json.loads(line) for line in out.splitlines()]
    assert records and all(record["event_id"] > 60 and record["topic"] == "order" for record in records)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_tail_prints_only_the_newest(run: Run, stopped: Path, count: int) -> None:
    _, every, _ = run("queue", "dump", "--data", str(stopped), "--json")
    lines = every.splitlines()
    _, out, _ = run("queue", "tail", "-n", str(count), "--data", str(stopped), "--json")
    assert out.splitlines() == lines[len(lines) - count :]


def test_a_folder_without_a_queue_is_named_in_the_error(run: Run, tmp_path: Path) -> None:
    for command in (("queue", "dump"), ("queue", "verify"), ("queue", "tail")):
        code, _, error = run(*command, "--data", str(tmp_path))
        assert code == 1
        assert "there is no queue in" in error


def test_verify_finds_a_sound_queue_sound(run: Run, stopped: Path) -> None:
    code, out, _ = run("queue", "verify", "--data", str(stopped), "--json")
    report = json.loads(out)
    assert (code, report["sound"], report["faults"]) == (0, True, [])
    assert report["journal_messages"] == report["topic_messages"] == 61
    assert report["segments"] > 1


def test_a_queue_on_a_disk_that_takes_nothing_can_be_read(run: Run, stopped: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(stopped, data)
    paths = [data, *data.rglob("*")]
    for path in paths:
        path.chmod(0o500 if path.is_dir() else 0o400)
    try:
        for command in ("dump", "tail", "verify"):
            code, out, error = run("queue", command, "--data", str(data))
            assert (code, error) == (0, ""), error
            assert out
    finally:
        for path in paths:
            path.chmod(0o700)


@pytest.mark.parametrize("name", ["CURRENT", "MANIFEST-*"])
@pytest.mark.parametrize("folder, command", [("queue/state", "queue verify --repair"), ("stores", "rebuild")])
def test_a_damaged_store_is_named_with_what_makes_it_again(
    run: Run, tmp_path: Path, name: str, folder: str, command: str
) -> None:
    data = tmp_path / "data"
    asyncio.run(_talk(data))
    next((data / folder).glob(name)).unlink()
    code, _, error = run("audit", "--data", str(data))
    assert (code, f"pixiu {command} --data {data}" in error) == (1, True), error
    code, _, error = run(*command.split(), "--data", str(data))
    assert code == 0, error
    code, out, error = run("audit", "--data", str(data))
    assert (code, "balanced" in out) == (0, True), error


@pytest.mark.parametrize("folder, command", [("queue/state", "queue verify --repair"), ("stores", "rebuild")])
def test_a_flipped_bit_in_a_store_is_reported_with_the_command_that_repairs_it(
    tmp_path: Path, folder: str, command: str
) -> None:
    data = tmp_path / "data"
    asyncio.run(_talk(data))

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-m", "pixiu", *arguments, "--data", str(data)]
        return subprocess.run(words, capture_output=True, text=True, check=False)

    assert run("audit").returncode == 0  # opening a store moves its write-ahead log into a table
    tables = list((data / folder).glob("*.sst"))
    assert tables
    for table in tables:
        _flip(table, 20)
    failed = run("audit")
    assert (failed.returncode, f"pixiu {command} --data {data}" in failed.stderr) == (1, True), failed
    repaired = run(*command.split())
    assert repaired.returncode == 0, repaired
    audited = run("audit")
    assert (audited.returncode, "balanced" in audited.stdout) == (0, True), audited


async def _talk(data: Path) -> None:
    async with EmbeddedNode(data) as node:
        for user in ("alice", "bob"):
            await node.create_user(user)
        await node.send("alice", to="bob", text="hello")


def test_verify_names_file_and_byte_of_damage_in_a_topic_and_repair_makes_it_again(
    run: Run, stopped: Path, tmp_path: Path
) -> None:
    data = _copy(stopped, tmp_path / "data")
    log = max(data.glob("queue/topics/*/*/*/*.log"), key=lambda path: path.stat().st_size)
    _flip(log, 50)
    code, out, _ = run("queue", "verify", "--data", str(data), "--json")
    report = json.loads(out)
    assert code == 1
    assert report["faults"][0]["file"] == str(log.relative_to(data))
    code, out, _ = run("queue", "verify", "--repair", "--data", str(data), "--json")
    assert (code, json.loads(out)["sound"]) == (0, True)
    with QueueProcess(data) as queue:
        assert [body.rstrip(b".") for body in _bodies(queue, "order", 60)] == [b"m%d" % n for n in range(60)]


def test_verify_names_damage_in_the_journal_and_cut_gives_up_what_follows(
    run: Run, stopped: Path, tmp_path: Path
) -> None:
    data = _copy(stopped, tmp_path / "data")
    segment = sorted(data.glob("queue/journal/*.log"))[1]
    _flip(segment, 5)  # the checksum itself: nothing can prove what was here
    code, out, _ = run("queue", "verify", "--data", str(data), "--json")
    report = json.loads(out)
    fault = report["faults"][0]
    assert code == 1
    assert (fault["file"], fault["position"]) == (str(segment.relative_to(data)), 0)
    first, last = report["journal_damage"]["event_id"], report["journal_damage"]["last_event_id"]
    assert first == int(segment.stem) and last - first > 20
    code, out, _ = run("queue", "verify", "--cut", "--data", str(data))
    assert code == 0
    assert f"gave up {last - first + 1} events, {first} to {last}" in out and "pixiu rebuild" in out
    with QueueProcess(data) as queue, BlockingClient(queue.address) as client:
        assert {topic.name for topic in client.topics()} == {"order", "other"}
        client.publish("order", b"goes on")


def test_doctor_reads_the_journal_and_says_how_far(stopped: Path, tmp_path: Path) -> None:
    data = _copy(stopped, tmp_path / "data")
    (whole,) = journal_checks(data)
    assert (whole.state, "every record" in whole.text) == ("ok", True)
    (part,) = journal_checks(data, seconds=0.0)
    assert (part.state, "was not looked at" in part.text) == ("ok", True)
    segment = sorted(data.glob("queue/journal/*.log"))[0]
    _flip(segment, 5)
    (damaged,) = journal_checks(data)
    assert (damaged.state, segment.name in damaged.text) == ("fail", True)
    assert f"pixiu queue verify --data {data}" in damaged.advice
    assert list(journal_checks(tmp_path / "nothing")) == []


def test_whoever_meets_damage_is_told_the_file_and_the_next_step(run: Run, stopped: Path, tmp_path: Path) -> None:
    data = _copy(stopped, tmp_path / "data")
    segment = sorted(data.glob("queue/journal/*.log"))[0]
    _flip(segment, 5)
    for command in (("audit",), ("rebuild",), ("explain", "1"), ("queue", "dump")):
        code, _, error = run(*command, "--data", str(data))
        assert (code, segment.name in error, "pixiu queue verify --data" in error) == (1, True, True), command


def _everything(data: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in data.glob("queue/[jt]*/**/*") if path.is_file()}


def test_repair_of_a_damaged_journal_changes_nothing_and_says_what_to_do(
    run: Run, stopped: Path, tmp_path: Path
) -> None:
    data = _copy(stopped, tmp_path / "data")
    _flip(sorted(data.glob("queue/journal/*.log"))[1], 5)
    before = _everything(data)
    _, out, _ = run("queue", "verify", "--data", str(data))
    assert "--repair" not in out
    for said in ("pixiu restore", "--follow", "--cut gives up", "pixiu rebuild must follow"):
        assert said in out
    code, _, error = run("queue", "verify", "--repair", "--data", str(data))
    assert code == 1
    assert "nothing was changed" in error and "--cut gives up" in error
    assert _everything(data) == before


def test_a_damaged_record_is_written_again_from_its_topic(run: Run, stopped: Path, tmp_path: Path) -> None:
    data = _copy(stopped, tmp_path / "data")
    segments = sorted(data.glob("queue/journal/*.log"))
    whole = {path: path.read_bytes() for path in segments}
    _flip(segments[0], 1)  # of a length
    for segment in segments[1:]:
        _flip(segment, 150)  # in the middle of a message
    _, out, _ = run("queue", "verify", "--data", str(data))
    assert "--repair writes it into the journal again" in out
    code, out, _ = run("queue", "verify", "--repair", "--data", str(data))
    assert (code, out.count("mended queue/journal/")) == (0, len(segments))
    assert {path: path.read_bytes() for path in segments} == whole


def test_a_journal_whose_beginning_is_gone_is_mended_too_and_never_cut_by_halves(
    run: Run, stopped: Path, tmp_path: Path
) -> None:
    data = _copy(stopped, tmp_path / "data")
    oldest, second = sorted(data.glob("queue/journal/*.log"))[:2]
    oldest.unlink()
    whole = second.read_bytes()
    _flip(second, 5)
    before = _everything(data)
    code, _, error = run("queue", "verify", "--cut", "--data", str(data))
    assert (code, "retention removed" in error, _everything(data) == before) == (1, True, True)
    second.write_bytes(whole)
    _flip(second, 150)
    code, out, _ = run("queue", "verify", "--repair", "--data", str(data))
    assert (code, "mended" in out, second.read_bytes() == whole) == (0, True, True)


def test_damage_that_looks_like_an_unfinished_write_is_told_from_one(run: Run, stopped: Path, tmp_path: Path) -> None:
    data = _copy(stopped, tmp_path / "data")
    segment = sorted(data.glob("queue/journal/*.log"))[-1]
    _flip(segment, 2)  # the length of the first record: it seems to go on beyond the end
    code, out, _ = run("queue", "verify", "--data", str(data), "--json")
    assert (code, json.loads(out)["faults"][0]["file"]) == (1, str(segment.relative_to(data)))


def test_mending_refuses_while_a_queue_runs(run: Run, tmp_path: Path) -> None:
    with QueueProcess(tmp_path / "data"):
        code, _, error = run("queue", "verify", "--repair", "--data", str(tmp_path / "data"))
    assert code == 1
    assert "stop it first" in error


@pytest.fixture(params=["running", "stopped"])
def backed_up(request: pytest.FixtureRequest, run: Run, stopped: Path, tmp_path: Path) -> Iterator[Path]:
    """A backup, made in both ways."""
    folder = tmp_path / "backup"
    data = _copy(stopped, tmp_path / "source")
    if request.param == "running":
        with QueueProcess(data):
            code, out, _ = run("backup", str(folder), "--data", str(data), "--json")
    else:
        code, out, _ = run("backup", str(folder), "--data", str(data), "--json")
    assert (code, json.loads(out)["verified"]) == (0, True)
    yield folder


def test_a_backup_restores_to_the_same_queue(run: Run, backed_up: Path, tmp_path: Path) -> None:
    data = tmp_path / "restored"
    code, out, _ = run("restore", str(backed_up), "--data", str(data))
    assert code == 0
    assert "every checksum right" in out
    with QueueProcess(data) as queue:
        assert [body.rstrip(b".") for body in _bodies(queue, "order", 60)] == [b"m%d" % n for n in range(60)]
        with BlockingClient(queue.address) as client:
            assert [delayed.topic for delayed in client.delays()] == ["order"]
            before = client.hello().last_event_id
            assert client.publish("order", b"next") == before + 1


def test_a_damaged_backup_is_refused_with_the_file_named(run: Run, backed_up: Path, tmp_path: Path) -> None:
    victim = next(backed_up.glob("queue/journal/*.log"))
    _flip(victim, 10)
    code, _, error = run("restore", str(backed_up), "--data", str(tmp_path / "restored"))
    assert code == 1
    assert victim.name in error
    assert "checksum" in error
    assert not (tmp_path / "restored" / "queue").exists()


def test_a_backup_of_a_damaged_queue_is_never_called_right(run: Run, stopped: Path, tmp_path: Path) -> None:
    data, folder = _copy(stopped, tmp_path / "data"), tmp_path / "backup"
    segment = sorted(data.glob("queue/journal/*.log"))[0]
    _flip(segment, segment.read_bytes().index(b"m5....") + 9)
    code, out, _ = run("backup", str(folder), "--data", str(data))
    assert code == 1
    assert "DAMAGED" in out and segment.name in out and "right" not in out
    code, out, _ = run("backup", str(tmp_path / "second"), "--data", str(data), "--json")
    report = json.loads(out)
    assert (code, report["verified"], report["faults"][0]["file"]) == (1, False, str(segment.relative_to(data)))
    code, _, error = run("restore", str(folder), "--data", str(tmp_path / "restored"))
    assert (code, "nothing was restored" in error, segment.name in error) == (1, True, True)
    assert not (tmp_path / "restored" / "queue").exists()
    code, out, _ = run("restore", str(folder), "--damaged", "--data", str(tmp_path / "restored"))
    assert (code, "DAMAGED" in out) == (1, True)
    code, out, _ = run("queue", "verify", "--repair", "--data", str(tmp_path / "restored"))
    assert (code, "nothing is damaged" in out) == (0, True)


def test_restore_overwrites_nothing_and_backup_wants_an_empty_folder(
    run: Run, backed_up: Path, stopped: Path, tmp_path: Path
) -> None:
    code, _, error = run("restore", str(backed_up), "--data", str(stopped))
    assert (code, "has a queue already" in error) == (1, True)
    code, _, error = run("backup", str(backed_up), "--data", str(stopped))
    assert (code, "is not empty" in error) == (1, True)
    code, _, error = run("backup", str(stopped / "copies" / "monday"), "--data", str(stopped))
    assert (code, "would be lost with it" in error) == (2, True)
    code, _, error = run("restore", str(tmp_path), "--data", str(tmp_path / "new"))
    assert (code, MANIFEST in error) == (1, True)


def test_a_backup_of_a_queue_under_load_is_a_whole_prefix(run: Run, tmp_path: Path) -> None:
    with QueueProcess(tmp_path / "data") as queue:
        stop = threading.Event()
        published: list[int] = []

        def publish() -> None:
            with BlockingClient(queue.address) as client:
                client.create_topic("load")
                while not stop.is_set():
                    published.append(client.publish("load", b"%d" % len(published)))

        thread = threading.Thread(target=publish)
        thread.start()
        try:
            while len(published) < 200:
                stop.wait(0.01)
            code, out, _ = run("backup", str(tmp_path / "backup"), "--data", str(tmp_path / "data"), "--json")
        finally:
            stop.set()
            thread.join()
    through = json.loads(out)["event_id"]
    code, _, _ = run("restore", str(tmp_path / "backup"), "--data", str(tmp_path / "restored"), "--json")
    assert code == 0
    kept = [event_id for event_id in published if event_id <= through]
    assert len(kept) >= 200
    with QueueProcess(tmp_path / "restored") as queue:
        assert _bodies(queue, "load", len(kept)) == [b"%d" % number for number in range(len(kept))]


def test_a_backup_from_what_is_no_address_is_refused_in_one_line(run: Run, tmp_path: Path) -> None:
    for address in ("foo", "foo:", "foo:x", ":1"):
        code, _, error = run("backup", str(tmp_path / "copy"), "--url", address)
        assert (code, error) == (2, f"pixiu: --url must be HOST:PORT, not {address!r}\n")
    assert not (tmp_path / "copy").exists()
