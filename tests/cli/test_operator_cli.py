"""``pixiu top``, ``pixiu audit`` and ``pixiu doctor``, as operators run them."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from textual.widgets import DataTable, Label

from pixiu.cli import checks
from pixiu.cli.checks import Check, java_version
from pixiu.cli.samples import RATES, sample_of
from pixiu.cli.topscreen import TopScreen
from pixiu.config import HttpSettings, QueueSettings, Settings
from pixiu.model.errors import Unavailable
from pixiu.runtime.port_holder import port_holder
from tests.cli.test_token_cli import served
from tests.e2e.test_surfaces import Served


def run(*arguments: str | Path, **environ: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "pixiu", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, env=os.environ | environ, stdin=subprocess.DEVNULL
    )


@pytest.fixture
def node(tmp_path: Path) -> Any:
    server = Served(tmp_path / "data")
    server.start()
    yield server
    server.stop()


def reading(**counters: int) -> dict[str, Any]:
    """What a server says of itself."""
    hop = {"counts": [0, 0, 0, 0], "sum": 0.0}
    return {
        "version": "1", "at": 1, "started_at": 1000, "uptime_ms": 10_000, "connections": 3, "connections_max": 10,
        "sessions": 2, "rooms": 1, "room_sessions": 2, "lanes": [{"name": "inboxes", "event_id": "5", "lag": 4}],
        "counters": dict.fromkeys(RATES, 0) | counters,
        "hops": {"bounds": [0.001, 0.002, 0.004], "accept": hop, "apply": hop, "deliver": hop, "ack": hop},
        "process": {"pid": 1, "rss_bytes": 2**20, "cpu_seconds": 1.0, "open_files": 3, "open_files_max": 9},
        "hot_rooms": [{"room": "lobby", "deliveries": 9.5, "messages": 1.0, "bytes": 5.0, "members": 7, "users": 7}],
        "topics": [{
            "name": "orders", "at": 1, "expires_at": 0, "is_reserved": False, "bytes": 2048, "last_event_id": "9",
            "subscribers": [{"name": "billing", "event_id": "7", "lag": 2, "is_live": True}],
        }],
        "queue": {"journal_bytes": 4096}, "problems": [],
        "stores": {"stores_bytes": 1, "queue_store_bytes": 2, "free_bytes": 3},
    }  # fmt: skip


def test_a_sample_is_the_difference_of_two_readings() -> None:
    before, now = reading(accepted=100), reading(accepted=150, delivered=20)
    now["uptime_ms"] += 2000
    now["process"] = now["process"] | {"cpu_seconds": 2.0}
    now["hops"] = now["hops"] | {"accept": {"counts": [10, 0, 0, 0], "sum": 0.005}}
    sample = sample_of(before, now)
    assert (sample["rates"]["accepted"], sample["rates"]["delivered"], sample["cpu"]) == (25.0, 10.0, 0.5)
    assert sample["hops"]["accept"] == {"p50": 0.5, "p90": 0.9, "p99": 0.99, "count": 10}
    assert sample["hops"]["ack"] == {"p50": None, "p90": None, "p99": None, "count": 0}
    # A server that was started anew has counted from its own start.
    now["started_at"], now["uptime_ms"] = 9999, 1000
    assert sample_of(before, now)["rates"]["accepted"] == 150.0


async def test_the_screen_shows_rates_rooms_and_lags_and_quits_with_q() -> None:
    readings = [reading(accepted=1000)]
    readings[0]["uptime_ms"] += 1000
    answers: list[Any] = [readings[0]]

    def read() -> dict[str, Any]:
        if isinstance(answers[0], Exception):
            raise answers[0]
        return dict(answers[0])

    screen = TopScreen("http://pixiu.test", read, reading(), interval_ms=30)

    async def until(selector: str, text: str) -> None:
        async with asyncio.timeout(20):
            while text not in str(screen.query_one(selector, Label).render()):
                await pilot.pause(0.02)

    async with screen.run_test(size=(120, 40)) as pilot:
        await until("#accepted .value", "1,000")
        rooms, topics = (screen.query_one(f"#{name} DataTable", DataTable) for name in ("rooms", "topics"))
        assert rooms.get_row_at(0)[:2] == ["lobby", "10"]
        assert topics.get_row_at(0) == ["orders", "2.0 KiB", "billing", "2"]
        answers[0] = Unavailable("no answer from http://pixiu.test")
        await until("#state", "no answer from")
        answers[0] = reading(accepted=2000) | {"problems": ["inboxes: down"]}
        await until("#state", "inboxes: down")
        await pilot.press("q")
        async with asyncio.timeout(10):
            while screen.is_running:
                await pilot.pause(0.02)
    assert screen.return_code == 0


def test_top_prints_what_a_server_does(node: Served) -> None:
    alice = node.token("alice")
    node.act(alice, "send", to="bob", text="x")
    printed = run("top", "--data", node.data, "--once", "--interval", "200ms")
    assert printed.returncode == 0, printed.stderr
    assert printed.stdout.startswith("accepted 0/s  delivered 0/s")
    sample = json.loads(run("top", "--data", node.data, "--once", "--json", "--interval", "200ms").stdout)
    assert sample["rates"].keys() >= {"accepted", "delivered", "acked", "room_messages"}
    assert sample["hops"].keys() == {"accept", "apply", "deliver", "ack"}
    assert sample["process"]["rss_bytes"] > 2**20
    user = run("top", "--url", node.url, "--token", alice, "--once")
    assert (user.returncode, "for admins" in user.stderr) == (1, True)
    for wrong in (("--interval", "1ms"), ("--url", node.url, "--data", str(node.data))):
        assert run("top", *wrong, "--once").returncode == 2


def without_cut(report: dict[str, Any]) -> dict[str, Any]:
    """The log goes on: logins and restarts are records too."""
    return {name: value for name, value in report.items() if name != "cut"}


def test_audit_gives_the_same_by_url_by_served_directory_and_of_a_stopped_one(node: Served) -> None:
    alice, admin = node.token("alice"), node.token("ops", "--admin")
    for number in range(3):
        node.act(alice, "send", to="bob", text=str(number))
    by_url = run("audit", "--url", node.url, "--token", admin, "--json")
    by_data = run("audit", "--data", node.data, "--json")
    assert (by_url.returncode, by_data.returncode) == (0, 0), by_url.stderr + by_data.stderr
    report = json.loads(by_url.stdout)
    assert (report["accepted"], report["intended"], report["waiting"], report["balanced"]) == (3, 6, 6, True)
    assert without_cut(json.loads(by_data.stdout)) == without_cut(report)
    later = json.loads(run("audit", "--url", node.url, "--token", admin, "--json", "--from", str(2**41)).stdout)
    assert later["accepted"] == 0
    shown = run("audit", "--data", node.data)
    assert shown.stdout.splitlines()[-1].startswith("balanced (log through event ")
    assert run("audit", "--url", node.url, "--token", alice).returncode == 1
    assert run("audit", "--url", node.url, "--data", node.data).returncode == 2
    reversed_window = run("audit", "--data", node.data, "--from", "2026-11-17", "--to", "2026-11-16")
    assert (reversed_window.returncode, "--from must be before --to" in reversed_window.stderr) == (2, True)
    node.stop()
    stopped = json.loads(run("audit", "--data", node.data, "--json").stdout)
    node.start()
    assert without_cut(stopped) == without_cut(report)


def test_explain_asks_the_server_of_a_directory_or_an_address(node: Served) -> None:
    alice, admin = node.token("alice"), node.token("ops", "--admin")
    message_id = node.act(alice, "send", to="bob", text="explain me")["message_id"]
    by_url = run("explain", message_id, "--url", node.url, "--token", admin, "--json")
    assert by_url.returncode == 0, by_url.stderr
    found = json.loads(by_url.stdout)
    assert (found["message_id"], found["from"], found["to"], found["inboxes"]) == (message_id, "alice", "bob", [])
    assert [hop["hop"] for hop in found["hops"]] == ["write", "flush", "store"]
    shown = run("explain", message_id, "--data", node.data)
    assert (shown.returncode, "from alice to bob" in shown.stdout) == (0, True)
    unknown = run("explain", "12345", "--data", node.data)
    assert (unknown.returncode, unknown.stderr) == (1, "pixiu: there is no message 12345 in the log\n")
    assert run("explain", message_id, "--url", node.url, "--token", alice).returncode == 1
    assert run("explain", message_id, "--url", node.url, "--data", node.data).returncode == 2
    assert run("explain", "twelve", "--data", node.data).returncode == 2
    ghost = run("search", "lunch", "--user", "ghost", "--data", node.data)
    assert (ghost.returncode, ghost.stderr) == (1, "pixiu: there is no user 'ghost'\n")


def test_audit_says_what_to_do_with_a_node_inside_a_program(tmp_path: Path) -> None:
    with served(tmp_path):
        refused = run("audit", "--data", tmp_path)
    assert (refused.returncode, "node.audit()" in refused.stderr) == (1, True)
    nothing = run("audit", "--data", tmp_path / "elsewhere")
    assert (nothing.returncode, "--url" in nothing.stderr) == (1, True)


def found(settings: Settings, data: Path) -> dict[str, Check]:
    return {check.name: check for check in checks.all_checks(settings, data)}


def free_ports() -> Settings:
    return Settings(http=HttpSettings(port=0), queue=QueueSettings(port=0))


def test_doctor_finds_a_fit_machine_fit_and_prints_it(tmp_path: Path) -> None:
    ports = {"PIXIU_HTTP__PORT": "0", "PIXIU_QUEUE__PORT": "0"}
    done = run("doctor", "--data", tmp_path / "data", "--json", **ports)
    report = json.loads(done.stdout)
    assert (done.returncode, report["ok"]) == (0, True), report
    names = {check["name"] for check in report["checks"]}
    assert names >= {"python", "java", "open files", "memory", "clock", "loopback", "disk", "flush", "package uvloop"}
    assert not (tmp_path / "data").exists()  # it has only looked
    plain = run("doctor", "--data", tmp_path / "data", **ports).stdout.splitlines()
    assert plain[0].startswith("ok\tpython\t")
    assert plain[-1].endswith("0 to fix")


def test_doctor_names_who_holds_a_port(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"pid {os.getpid()} " in str(port_holder(port))
        check = found(Settings(http=HttpSettings(port=port), queue=QueueSettings(port=0)), tmp_path)[
            f"port {port} (http)"
        ]
        assert (check.state, f"pid {os.getpid()}" in check.text, "--port" in check.advice) == ("fail", True, True)
        done = run("doctor", "--data", tmp_path, PIXIU_HTTP__PORT=str(port), PIXIU_QUEUE__PORT="0")
        assert done.returncode == 1
    assert port_holder(port) is None


def test_doctor_knows_the_server_of_a_data_directory(node: Served) -> None:
    checked = found(Settings(http=HttpSettings(port=node.port), queue=QueueSettings(port=0)), node.data)
    assert "this data directory" in checked[f"port {node.port} (http)"].text
    assert checked["lock"].text.startswith("held by pid ")
    assert checked["server"].text.startswith("ready at ")
    assert checked["permissions"].state == "ok"
    (node.data / "node.key").chmod(0o644)
    assert found(free_ports(), node.data)["permissions"].advice.startswith("chmod 600 ")


def test_doctor_refuses_what_a_server_would_refuse(tmp_path: Path) -> None:
    foreign, newer, file = tmp_path / "foreign", tmp_path / "newer", tmp_path / "file"
    broken, keyless = tmp_path / "broken", tmp_path / "keyless"
    for folder in (foreign, newer, broken, keyless):
        folder.mkdir()
        (folder / "FORMAT").write_text('{"format": 1}')
    (foreign / "FORMAT").unlink()
    (broken / "FORMAT").write_text("garbage")
    (keyless / "node.key").write_text("garbage")
    (foreign / "photo.jpg").touch()
    (newer / "FORMAT").write_text('{"format": 99}')
    file.touch()
    for data, text in (
        (foreign, "not one of Pixiu's"),
        (newer, "format 99"),
        (broken, "FORMAT is damaged"),
        (file, "not a directory"),
    ):
        check = found(free_ports(), data)["data directory"]
        assert (check.state, text in check.text, bool(check.advice)) == ("fail", True, True)
    check = found(free_ports(), keyless)["data directory"]
    assert (check.state, "node.key is damaged" in check.text) == ("fail", True) and "remove both copies" in check.advice


def test_doctor_sees_a_clock_that_was_set_back(tmp_path: Path) -> None:
    journal = tmp_path / "queue" / "journal"
    journal.mkdir(parents=True)
    (journal / "1.log").touch()
    os.utime(journal / "1.log", (time.time() + 3600, time.time() + 3600))
    assert found(free_ports(), tmp_path)["clock"].state == "warn"


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ('openjdk version "17.0.15" 2025', 17),
        ('java version "1.8.0_292"', 8),
        ('openjdk version "21"', 21),
        ("no", None),
    ],
)
def test_java_versions(text: str, number: int | None) -> None:
    assert java_version(text) == number


def test_doctor_says_who_needs_java_where_it_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    check = found(free_ports(), tmp_path)["java"]
    assert (check.state, "Spark" in check.advice, "apt install" in check.advice) == ("warn", True, True)
