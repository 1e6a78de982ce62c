"""``pixiu queue``, as a person or a script uses it, against a real queue."""

import io
import json
import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer

from pixiu.cli.main import main
from pixiu.cli.queue.asking import parse_duration_ms, parse_headers
from pixiu.cli.queue.output import bytes_text, print_facts
from pixiu.queue.client import publish_once
from tests.servers import QueueProcess, free_port, wait_for


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    error: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Ran]


@pytest.fixture(scope="module")
def queue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueueProcess]:
    with QueueProcess(tmp_path_factory.mktemp("queue") / "data") as process:
        yield process


@pytest.fixture
def run_plain(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command in this process, as the console script does."""

    def run(*arguments: str) -> Ran:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(["queue", *arguments])
        out, error = capsys.readouterr()
        return Ran(int(ended.value.code or 0), out, error)

    return run


@pytest.fixture
def run(run_plain: Run, queue: QueueProcess) -> Run:
    return lambda *arguments: run_plain(*arguments, "--url", queue.address)


@pytest.fixture
def topic(request: pytest.FixtureRequest, run: Run) -> str:
    name = str(request.node.name)[:100]
    assert run("create", name).code == 0
    return name


class TestTopics:
    def test_create_list_info_delete(self, run: Run) -> None:
        created = run("create", "fruit", "--lifetime", "1h")
        assert (created.code, created.error) == (0, "")
        assert created.out.startswith("created topic fruit (event ")
        assert [line.split("\t")[0] for line in run("topics").lines].count("fruit") == 1
        listed = {value["topic"]: value for value in map(json.loads, run("list", "--json").lines)}
        info = run("info", "fruit", "--json").json
        assert info == {**listed["fruit"], "messages": 0, "bytes": 0, "last_event_id": 0}
        run("pub", "fruit", "apple", "pear", "fig")
        held = run("info", "fruit", "--json").json
        assert (held["messages"], held["bytes"] > 100, held["last_event_id"] > info["create_event_id"]) == (
            3,
            True,
            True,
        )
        assert "messages\t3" in run("info", "fruit").lines
        assert info["expires_at_ms"] - info["created_at_ms"] == pytest.approx(3_600_000, abs=5000)
        assert run("info", "fruit").lines[0] == "topic\tfruit"
        assert run("delete", "fruit", "--json").json["topic"] == "fruit"
        assert "fruit" not in run("topics").out

    def test_errors_are_one_line_that_says_what_to_do(self, run: Run, topic: str) -> None:
        assert run("create", topic) == Ran(1, "", f"pixiu: topic {topic} exists already\n")
        nobody = run("pub", "nosuch", "x")
        create = "create it with: pixiu queue create nosuch (pixiu queue topics lists all)"
        assert nobody.error == f"pixiu: there is no topic nosuch; {create}\n"
        assert run("info", "nosuch").code == run("sub", "nosuch").code == run("delete", "nosuch").code == 1
        assert run("create", "a b").error.startswith("pixiu: a topic's name has 1 to 128 bytes")
        assert "--data" in run("create", "pixiu.mine").error
        refused = run("delete", "pixiu.main")
        assert (refused.code, "cannot be deleted" in refused.error, "--data" in refused.error) == (1, True, False)
        short = run("create", "short", "--lifetime", "5s")
        assert short.code == 2
        assert "more than 10s" in short.error


class TestWhere:
    def test_a_file_is_no_data_directory(self, run_plain: Run, tmp_path: Path) -> None:
        (tmp_path / "file").write_bytes(b"")
        ran = run_plain("serve", "--data", str(tmp_path / "file"), "--port", "0")
        assert (ran.code, "it is not a directory" in ran.error) == (1, True)

    def test_nobody_there(self, run_plain: Run) -> None:
        port = free_port()
        ran = run_plain("topics", "--port", str(port))
        assert ran == Ran(1, "", f"pixiu: no queue at 127.0.0.1:{port}; start one with: pixiu serve\n")

    def test_the_data_directory_names_the_server_and_gives_the_key(self, run_plain: Run, queue: QueueProcess) -> None:
        data = str(queue.data)
        assert run_plain("create", "pixiu.cli", "--data", data).code == 0
        assert run_plain("pub", "pixiu.cli", "x", "--data", data).code == 0
        assert run_plain("sub", "pixiu.cli", "--count", "1", "--json", "--data", data).json["body"] == "x"

    def test_a_held_pixiu_data_here_is_found(
        self, run_plain: Run, queue: QueueProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "pixiu-data").symlink_to(queue.data)
        monkeypatch.chdir(tmp_path)
        assert run_plain("create", "found-here").code == 0

    def test_a_data_directory_without_a_server_says_so(self, run_plain: Run, tmp_path: Path) -> None:
        ran = run_plain("topics", "--data", str(tmp_path))
        assert ran.code == 1
        assert "start one with: pixiu serve --data" in ran.error

    def test_two_places_at_once_and_nonsense_are_usage_errors(self, run_plain: Run) -> None:
        assert run_plain("topics", "--port", "1", "--url", "a:1").code == 2
        assert run_plain("topics", "--url", "a:b").code == 2
        assert run_plain("nosuch").code == 2


def hears_interrupts() -> None:
    """Also where this suite runs in the background of a shell, which ignores them for it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class TestPubAndSub:
    def test_messages_headers_and_json(self, run: Run, topic: str) -> None:
        assert run("pub", topic, "héllo", "--header", "k=v=w").out.startswith("published event ")
        both = run("pub", topic, "a", "b", "--json").json
        assert both["count"] == 2
        assert both["last_event_id"] == both["first_event_id"] + 1
        rows = [json.loads(line) for line in run("sub", topic, "--count", "3", "--json").lines]
        assert [row["body"] for row in rows] == ["héllo", "a", "b"]
        assert rows[0]["headers"] == {"k": "v=w"}
        line = run("sub", topic, "--count", "1").out
        assert line.startswith(f"{rows[0]['event_id']}  2")
        assert line.endswith("Z k=v=w  héllo\n")

    def test_without_follow_it_ends_where_the_topic_does(self, run: Run, topic: str) -> None:
        run("pub", topic, "a", "b")
        assert len(run("sub", topic).lines) == 2

    def test_nothing_at_all_is_an_error_that_says_what_to_give(
        self, run: Run, topic: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\n\n")))
        ran = run("pub", topic)
        assert (ran.code, "good morning" in ran.error) == (2, True)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\none\ntwo\n")))
        assert run("pub", topic, "--json").json["count"] == 2
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
        assert run("pub", topic, "-").code == 0, "who names stdin may have none"

    def test_lines_from_stdin_and_from_a_file(
        self, run: Run, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lines = b"".join(b"line %d\n" % number for number in range(2500))
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines)))
        assert run("pub", topic, "-", "--json").json["count"] == 2500
        path = tmp_path / "lines"
        path.write_bytes(b"one\r\n\ntwo")
        assert run("pub", topic, "--file", str(path), "--count", "2", "--json").json["count"] == 4
        bodies = [json.loads(line)["body"] for line in run("sub", topic, "--count", "2504", "--json").lines]
        assert bodies == [f"line {number}" for number in range(2500)] + ["one", "two"] * 2

    def test_a_key_is_stored_once(self, run: Run, topic: str) -> None:
        first = run("pub", topic, "x", "--key", "k1", "--json").json
        assert run("pub", topic, "x", "--key", "k1", "--json").json == first | {"repeat": True}
        assert run("pub", topic, "x", "--key", "k1").out.startswith("was there already, as event ")
        row = run("sub", topic, "--count", "1", "--json").json
        assert row["message_id"] == first["message_id"]
        assert f" id={first['message_id']} pixiu.key=k1  x" in run("sub", topic, "--count", "1").out
        assert run("pub", topic, "x", "y", "--key", "k1").code == 2

    def test_where_to_start(self, run: Run, topic: str) -> None:
        first = run("pub", topic, "a", "b", "c", "--json").json["first_event_id"]
        assert json.loads(run("sub", topic, "--after", str(first), "--count", "1", "--json").out)["body"] == "b"
        assert run("sub", topic, "--from-start", "--count", "1", "--json").json["body"] == "a"
        assert run("sub", topic, "--since", "1h", "--count", "1", "--json").json["body"] == "a"
        assert len(run("sub", topic, "--since", "2000-01-01T00:00").lines) == 3
        assert run("sub", topic, "--from-start", "--from-now").code == 2
        assert run("sub", topic, "--since", "yesterday-ish").code == 2
        assert run("sub", topic, "--stored").code == 2

    def test_a_stored_position_goes_on_where_it_was(self, run: Run, topic: str) -> None:
        ids = run("pub", topic, *"abcdef", "--json").json
        stored = ("sub", topic, "--name", "g1", "--stored", "--json")
        texts = [[json.loads(line)["body"] for line in run(*stored, "--count", count).lines] for count in ("2", "3")]
        assert texts == [["a", "b"], ["c", "d", "e"]]
        row = run("positions", topic, "--json").json
        assert row == {"subscriber": "g1", "event_id": ids["first_event_id"] + 4, "live": False}
        assert run("positions", topic).out == f"g1\t{row['event_id']}\tno\n"
        assert run("positions", topic, "--forget", "g1").out == ""

    def test_bytes_that_are_no_text_are_still_shown(self, run: Run, topic: str, queue: QueueProcess) -> None:
        publish_once(queue.address, topic, b"\xff\x00", headers={"raw": b"\xfe"})
        publish_once(queue.address, topic, b"two\nlines")
        assert json.loads(run("sub", topic, "--count", "1", "--json").out)["body_base64"] == "/wA="
        lines = run("sub", topic, "--count", "2").lines
        assert lines[0].endswith("raw=0xfe  0xff00")
        assert lines[1].endswith("two\\nlines")

    def test_follow_waits_for_more_until_interrupted(self, queue: QueueProcess, topic: str) -> None:
        command = [sys.executable, "-m", "pixiu", "queue", "sub", topic, "--from-now", "--json"]
        with subprocess.Popen(
            [*command, "--name", "watcher", "--url", queue.address],
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=hears_interrupts,
        ) as process:
            lines: list[str] = []
            assert process.stdout is not None
            reader = threading.Thread(target=lambda out=process.stdout: lines.extend(out), daemon=True)
            reader.start()
            # Publish until one arrives: the subscription begins somewhere in between.
            wait_for(lambda: bool(publish_once(queue.address, topic, b"tick") and lines), timeout_s=30)
            try:
                process.send_signal(signal.SIGINT)
                assert process.wait(10) == 130
            finally:
                process.kill()
            reader.join(5)
        assert json.loads(lines[0])["body"] == "tick"


class TestDelays:
    def test_delay_list_cancel(self, run: Run, topic: str) -> None:
        text = run("delay", topic, "later", "--after", "1h").out
        event_id = text.split()[3].rstrip(";")
        assert text.endswith(f"pixiu queue cancel {event_id}\n")
        rows = {row["event_id"]: row for row in map(json.loads, run("delays", "--json").lines)}
        assert rows[int(event_id)]["topic"] == topic
        assert any(line.startswith(f"{event_id}\t{topic}\t") for line in run("delays").lines)
        assert run("cancel", event_id).code == 0
        again = run("cancel", event_id)
        assert again == Ran(1, "", f"pixiu: no delayed message has event {event_id}: it was published already?\n")
        assert run("delay", topic, "x", "--after", "10ms").code == 2


class TestBench:
    def test_it_measures_and_leaves_nothing_behind(self, run: Run) -> None:
        before = run("topics").out
        result = run("bench", "--count", "300", "--connections", "3", "--in-flight", "4", "--json").json
        assert result["count"] == 300
        assert result["publish_per_s"] > 0
        assert result["subscribe_per_s"] > 0
        assert 0 < result["p50_ms"] <= result["p99_ms"] <= result["max_ms"]
        assert "messages/s" in run("bench", "--count", "50").out
        assert run("topics").out == before


class TestServe:
    def test_it_says_where_it_listens_and_stops_when_told(self, tmp_path: Path) -> None:
        process = QueueProcess(tmp_path / "data", args=["--flush", "interval", "--set", "queue.connections_max=5"])
        with process as queue:
            assert sum(line.startswith("queue listening on 127.0.0.1:") for line in queue.lines) == 1
            assert queue.stop() == 0

    def test_wrong_settings_refuse_to_start(self, run_plain: Run, tmp_path: Path) -> None:
        data = ("--data", str(tmp_path / "data"))
        assert run_plain("serve", *data, "--flush", "sometimes").code == 2
        assert run_plain("serve", *data, "--set", "queue.prt=1").code == 2
        assert run_plain("serve", *data, "--follow", "nowhere").code == 2
        assert not (tmp_path / "data").exists()


def test_a_terminal_gets_a_table(queue: QueueProcess, topic: str) -> None:
    terminal, inner = pty.openpty()
    subprocess.run(
        [sys.executable, "-m", "pixiu", "queue", "topics", "--url", queue.address],
        stdout=inner,
        stderr=inner,
        timeout=30,
        check=True,
        env=dict(os.environ) | {"COLUMNS": "120", "TERM": "dumb"},
    )
    os.close(inner)
    shown = b""
    try:
        while piece := os.read(terminal, 65536):
            shown += piece
    except OSError:
        pass
    finally:
        os.close(terminal)
    text = shown.decode()
    assert text.split()[:4] == ["topic", "event", "created", "ends"]
    assert topic[:30] in text


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("500ms", 500), ("5s", 5000), ("1h30m", 5_400_000), ("2d", 172_800_000), ("1.5s", 1500), ("7", 7000)],
)
def test_durations(text: str, milliseconds: int) -> None:
    assert parse_duration_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["", "five", "5x", "s", "-1s", "1s2"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="write 500ms, 5s"):
        parse_duration_ms(text)


def test_headers_need_a_name_and_an_equals_sign() -> None:
    assert parse_headers(["a=b", "c="]) == {"a": "b", "c": ""}
    for wrong in ("a", "=b"):
        with pytest.raises(typer.BadParameter):
            parse_headers([wrong])


def test_sizes_read_well() -> None:
    assert [bytes_text(size) for size in (5, 2048, 3 * 2**20)] == ["5 B", "2.0 KiB", "3.0 MiB"]


def test_facts_have_no_head_and_nothing_blank(
    run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [line.split("\t")[0] for line in run("status").lines]
    assert "role" in names and "problem" not in names
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    print_facts([("topic", "a"), ("newest event", 7)])
    assert capsys.readouterr().out == "topic         a\nnewest event  7\n"
