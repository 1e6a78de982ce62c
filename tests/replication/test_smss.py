"""From smss to Pixiu: the import of a stopped server's data, and following a running leader. Event ids stay."""

from __future__ import annotations

import json
import random
import time
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from typing import TYPE_CHECKING, Any

import pytest

from pixiu.cli.main import main
from pixiu.config import Settings
from pixiu.model.errors import PixiuError
from pixiu.node.smss_import import import_smss
from pixiu.queue.client import BlockingClient
from tests.servers import QueueProcess, wait_for
from tests.smss import SmssData, SmssLeader, message
from tests.wire.bytes_by_hand import ACK_GO_ON, replica, sub
from tests.wire.raw import Raw

if TYPE_CHECKING:
    from pathlib import Path

DAY_MS = 86_400_000
FAST = ["--set", "replication.reconnect_ms=50"]


def pixiu(*words: str) -> tuple[int, str, str]:
    out, error = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(error), pytest.raises(SystemExit) as ended:
        main(list(words))
    return int(ended.value.code or 0), out.getvalue(), error.getvalue()


def filled(smss: SmssData) -> dict[str, list[tuple[int, int, bytes]]]:
    """Everything that an smss log can hold. Returns what subscribers of each topic get: event id, time, message."""
    expected: dict[str, list[tuple[int, int, bytes]]] = {"order": [], "short": [], "again": []}

    def publish(topic: str, *messages: bytes, **options: Any) -> None:
        first = smss.publish(topic, *messages, **options)
        expected[topic] += [(first + at, smss.now_ms, each) for at, each in enumerate(messages)]

    smss.create("order")
    smss.create("short", int(time.time() * 1000) + DAY_MS)
    smss.create("gone")
    publish("order", message(b"hello", k="v"), message(b"world!"))
    smss.publish("gone", message(b"forgotten"))
    smss.burn(3)
    publish("short", message(b"", only="headers"))
    fired = smss.delay("order", message(b"late"), smss.now_ms + 1500)
    smss.delay("order", message(b"much later"), int(time.time() * 1000) + DAY_MS)
    smss.delete("gone")
    smss.restart()
    at = smss.fire(fired)
    expected["order"].append((at, smss.now_ms, message(b"late")))
    smss.create("again")
    smss.publish("again", message(b"of the topic before"))
    smss.delete("again")
    smss.create("again")
    publish("again", *(message(b"%d" % number) for number in range(300)))
    publish("order", message(b"\x00\xff" * 1000), is_written_to_topic=False)  # smss was killed in between
    return expected


def read_all(queue: QueueProcess, topic: str, count: int) -> list[tuple[int, int, bytes]]:
    found: list[tuple[int, int, bytes]] = []
    with Raw(queue.host, queue.port) as raw:
        raw.send(sub(topic.encode(), batch=255))
        while len(found) < count:
            found += [(item.event_id, item.time, item.message) for item in raw.push()]
            raw.send(ACK_GO_ON)
        raw.quiet()
    return found


def check_equal(queue: QueueProcess, smss: SmssData, expected: dict[str, list[tuple[int, int, bytes]]]) -> None:
    with BlockingClient(queue.address, patience_s=5) as client:
        found = {topic.name: topic for topic in client.topics()}
        assert found.keys() == smss.topics.keys()
        for name, row in smss.topics.items():
            assert (found[name].create_event_id, found[name].expires_at_ms) == (row["event"], row["expires"])
        assert [each.topic for each in client.delays()] == ["order"]
    for topic, messages in expected.items():
        assert read_all(queue, topic, len(messages)) == messages


@pytest.fixture
def smss(tmp_path: Path) -> SmssData:
    return SmssData(tmp_path / "smss")


def test_import_keeps_topics_messages_delays_and_event_ids(smss: SmssData, tmp_path: Path) -> None:
    expected = filled(smss)
    data = tmp_path / "data"
    code, out, error = pixiu("queue", "import", str(smss.root), "--data", str(data), "--json")
    assert (code, error) == (0, "")
    report = json.loads(out)
    assert (report["topics"], report["delayed"], report["skipped"]) == (3, 1, 0)
    assert (report["first_event_id"], report["last_event_id"]) == (1, smss.last_event_id)
    assert (report["without_create"], report["cut_off"]) == ([], "")
    with QueueProcess(data) as queue:
        check_equal(queue, smss, expected)
        # The next event comes after smss's last one, and a subscriber of smss goes on where it was.
        with BlockingClient(queue.address) as client:
            assert client.publish("order", b"new") > smss.last_event_id
        with Raw(queue.host, queue.port) as raw:
            raw.send(sub(b"order", expected["order"][-1][0], who=b"old", batch=10))
            assert [item.body for item in raw.push()] == [b"new"]
        queue.stop()
        queue.start()
        check = read_all(queue, "again", 300)
        assert check == expected["again"]
    assert pixiu("queue", "verify", "--data", str(data))[0] == 0


def test_import_takes_older_messages_from_topic_files(smss: SmssData, tmp_path: Path) -> None:
    """Retention removed the binlog's beginning; a quiet topic's file still has what is older."""
    smss.create("quiet")
    old = smss.publish("quiet", message(b"old"), message(b"older than the binlog"))
    old_ms = smss.now_ms
    smss.create("empty")
    smss.restart()
    new = smss.publish("quiet", message(b"new"))
    smss.create("young")
    smss.retain()
    data = tmp_path / "data"
    code, out, _ = pixiu("queue", "import", str(smss.root), "--data", str(data), "--json")
    report = json.loads(out)
    assert (code, report["messages"], report["topics"]) == (0, 3, 3)
    assert sorted(report["without_create"]) == ["empty", "quiet"]
    with QueueProcess(data) as queue:
        assert read_all(queue, "quiet", 3) == [
            (old, old_ms, message(b"old")),
            (old + 1, old_ms, message(b"older than the binlog")),
            (new, smss.now_ms - 1, message(b"new")),
        ]
        queue.kill()
        queue.start()
        assert len(read_all(queue, "quiet", 3)) == 3
        queue.stop()
    assert pixiu("queue", "verify", "--data", str(data))[0] == 0


def test_import_leaves_out_a_torn_last_record_and_messages_that_would_break_clients(
    smss: SmssData, tmp_path: Path
) -> None:
    smss.create("order")
    lie = (5).to_bytes(4, "little") + (9).to_bytes(4, "little") + b"hello"
    smss.publish("order", lie)
    kept = smss.publish("order", message(b"kept"))
    smss.publish("order", message(b"torn"))
    path = smss.root / "binlog" / "0.log"
    path.write_bytes(path.read_bytes()[:-3])
    data = tmp_path / "data"
    code, out, _ = pixiu("queue", "import", str(smss.root), "--data", str(data), "--json")
    report = json.loads(out)
    assert (code, report["messages"], report["skipped"], report["last_event_id"]) == (0, 1, 1, kept)
    assert report["cut_off"].startswith(str(path))
    with QueueProcess(data) as queue:
        assert [each[0] for each in read_all(queue, "order", 1)] == [kept]


def test_import_refuses_in_one_line_and_leaves_nothing_behind(smss: SmssData, tmp_path: Path) -> None:
    data = tmp_path / "data"

    def refused(words: str, *more: str, source: Path = smss.root, code: int = 1) -> None:
        found, _, error = pixiu("queue", "import", str(source), "--data", str(data), *more)
        assert (found, words in error, "Traceback" in error) == (code, True, False), error
        assert not (data / "queue").exists() and not (data / "importing" / "queue").exists()

    refused("no folder binlog", source=tmp_path)
    refused("nothing to import")
    smss.create("order")
    smss.publish("order", message(b"x" * 5000))
    refused("--set queue.payload_bytes_max=5008", "--set", "queue.payload_bytes_max=4096")
    smss.restart()
    smss.publish("order", message(b"more"))
    path = smss.root / "binlog" / "0.log"
    whole = path.read_bytes()
    path.write_bytes(whole[:-3])
    refused(f"{path} byte ")
    path.write_bytes(whole[:40] + b"\xff\xff\xff\xff" + whole[44:])
    refused(str(path))
    path.write_bytes(whole)
    smss.create("pixiu.mine")
    refused("names that begin with pixiu. are Pixiu's own")
    other = SmssData(tmp_path / "other")
    other.create("order")
    assert pixiu("queue", "import", str(other.root), "--data", str(data))[0] == 0
    code, _, error = pixiu("queue", "import", str(other.root), "--data", str(data))
    assert (code, "has a log already" in error) == (1, True)


@pytest.mark.parametrize("count", [12, pytest.param(1000, marks=[pytest.mark.long, pytest.mark.timeout(900)])])
def test_import_of_damaged_files_succeeds_or_names_the_problem(tmp_path: Path, count: int) -> None:
    """Single changed bytes and cut ends, anywhere: an import never ends in a traceback."""
    smss = SmssData(tmp_path / "smss")
    smss.create("quiet")
    smss.publish("quiet", message(b"older"))
    smss.restart()
    smss.create("order")
    smss.publish("order", message(b"hello", k="v"), message(b"world!"))
    smss.delay("order", message(b"late"), smss.now_ms)
    smss.retain()
    files = [path for path in smss.root.rglob("*.log") if path.stat().st_size]
    chance = random.Random(17)
    outcomes = set()
    for number in range(count):
        path = chance.choice(files)
        whole = path.read_bytes()
        at = chance.randrange(len(whole))
        mutated = whole[:at] + bytes([chance.choice(b"\x00\t\n9a\xff")]) + whole[at + 1 :]
        path.write_bytes(whole[:at] if number % 4 == 0 else mutated)
        try:
            import_smss(smss.root, tmp_path / f"data-{number}", Settings(), lambda _size: None)
            outcomes.add("imported")
        except PixiuError:
            outcomes.add("refused")
        path.write_bytes(whole)
    assert outcomes == {"imported", "refused"}


def status_of(queue: QueueProcess) -> dict[str, Any]:
    with BlockingClient(queue.address, patience_s=5) as client:
        return client.status()


def caught_up(queue: QueueProcess, smss: SmssData) -> None:
    wait_for(lambda: status_of(queue)["last_event_id"] == smss.last_event_id, what="the follower to have all")


def test_follow_copies_a_running_smss_and_goes_on_after_cuts_and_kills(smss: SmssData, tmp_path: Path) -> None:
    expected = filled(smss)
    with SmssLeader(smss) as leader:
        leader.cut_after = 200  # inside the third record
        with QueueProcess(tmp_path / "data", args=["--follow", leader.address, *FAST]) as queue:
            caught_up(queue, smss)
            check_equal(queue, smss, expected)
            assert len(leader.asked) == 2 and leader.asked[0] == 0 < leader.asked[1]
            with Raw(queue.host, queue.port) as raw:
                assert raw.refused(replica(0)) == "don't support action"
            with BlockingClient(queue.address, patience_s=0) as client, pytest.raises(Exception, match="just master"):
                client.publish("order", b"not here")
            for number in range(5):
                first = smss.publish("order", message(b"a%d" % number), message(b"b%d" % number))
                expected["order"] += [
                    (first, smss.now_ms, message(b"a%d" % number)), (first + 1, smss.now_ms, message(b"b%d" % number))
                ]  # fmt: skip
                if number % 2:
                    leader.cut()
                else:
                    caught_up(queue, smss)
                    queue.kill()
                    smss.burn(2)
                    queue.start()
            caught_up(queue, smss)
            check_equal(queue, smss, expected)
            wait_for(lambda: not status_of(queue)["problem"], what="no problem")
            found = status_of(queue)
            assert (found["role"], found["leader"], found["problem"]) == ("follower", leader.address, "")
            # Cutover: stop, start without --follow. It leads, with later event ids.
            queue.stop()
            queue.args = []
            queue.start()
            with BlockingClient(queue.address, patience_s=5) as client:
                assert client.publish("order", b"led by Pixiu") > smss.last_event_id
            # From here on the logs differ: following again would mix them.
            queue.stop()
            queue.args = ["--follow", leader.address]
            with pytest.raises(AssertionError, match="a log of Pixiu's own"):
                queue.start()


def test_the_way_back_an_smss_follower_reads_what_pixiu_has_led(smss: SmssData, tmp_path: Path) -> None:
    """Pixiu serves smss's replica command: here to a second Pixiu, which follows it as it would follow smss."""
    expected = filled(smss)
    assert pixiu("queue", "import", str(smss.root), "--data", str(tmp_path / "data"))[0] == 0
    with QueueProcess(tmp_path / "data", args=["--set", "replication.smss_followers=true"]) as queue:
        with BlockingClient(queue.address, patience_s=5) as client:
            client.append("order", b"with a key", key="k-1")
            client.create_topic("by-pixiu")
            last = client.publish("by-pixiu", b"hello")
        address = f"smss://{queue.host}:{queue.port}"
        with QueueProcess(tmp_path / "back", args=["--follow", address, *FAST]) as back:
            wait_for(lambda: status_of(back)["last_event_id"] == last, what="the follower to have all")
            for topic in ("again", "short", "by-pixiu"):
                count = len(expected.get(topic, [()]))
                assert read_all(back, topic, count) == read_all(queue, topic, count)
            assert len(read_all(back, "order", len(expected["order"]) + 1)) == len(expected["order"]) + 1


def test_follow_takes_topics_from_before_the_leaders_journal(smss: SmssData, tmp_path: Path) -> None:
    expires_at = int(time.time() * 1000) + DAY_MS
    created = smss.create("quiet", expires_at)
    smss.publish("quiet", message(b"removed by retention"))
    smss.restart()
    new = smss.publish("quiet", message(b"new"))
    smss.retain()
    with (
        SmssLeader(smss) as leader,
        QueueProcess(tmp_path / "data", args=["--follow", leader.address, *FAST]) as queue,
    ):
        caught_up(queue, smss)
        assert read_all(queue, "quiet", 1) == [(new, smss.now_ms, message(b"new"))]
        with BlockingClient(queue.address) as client:
            info = client.topic_info("quiet")
        assert (info.create_event_id, info.expires_at_ms) == (created, expires_at)


def test_follow_says_what_is_wrong_and_what_to_do(smss: SmssData, tmp_path: Path) -> None:
    smss.create("order")
    smss.publish("order", message(b"one"))

    def problem(queue: QueueProcess, words: str) -> None:
        wait_for(lambda: words in status_of(queue)["problem"], what=f"{words!r} in {status_of(queue)['problem']!r}")

    with SmssLeader(smss) as leader:
        with QueueProcess(tmp_path / "data", args=["--follow", leader.address, *FAST]) as queue:
            caught_up(queue, smss)
            leader.is_follower = True
            leader.cut()
            problem(queue, "it is an smss slave: follow its master")
            leader.is_follower = False
            smss.publish("order", message(b"two"))
            caught_up(queue, smss)
            wait_for(lambda: not status_of(queue)["problem"], what="no problem")
            # The master was set back: its ids mean other messages now.
            smss.records[:] = smss.records[:1]
            leader.cut()
            problem(queue, "smss answers 'EOF'")
        reserved = SmssData(tmp_path / "reserved")
        reserved.create("pixiu.mine")
        with (
            SmssLeader(reserved) as other,
            QueueProcess(tmp_path / "other", args=["--follow", other.address, *FAST]) as queue,
        ):
            problem(queue, "names that begin with pixiu. are Pixiu's own")
            assert status_of(queue)["state"] == "stopped"
    code, _, error = pixiu("serve", "--follow", "smss://127.0.0.1:1", "--data", str(tmp_path / "serve"))
    assert (code, "use pixiu queue serve" in error) == (2, True)
