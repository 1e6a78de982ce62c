"""The command line: exit codes, one line per error, no traceback unless asked for."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from pixiu import __version__
from pixiu.cli import main as command_line
from pixiu.cli.banner import Doors, print_banner
from pixiu.cli.serve import parse_address, run_server
from pixiu.config import Settings
from pixiu.model.errors import ConfigError, CorruptData, PixiuError
from pixiu.node import Running
from tests.servers import wait_for


def run(*arguments: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "pixiu", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, env=environ)


def test_the_version() -> None:
    result = run("--version")
    assert (result.returncode, result.stdout) == (0, f"pixiu {__version__}\n")


def test_help_lists_the_verbs() -> None:
    result = run("--help")
    assert result.returncode == 0
    for verb in command_line.VERBS:
        assert f"\n  {verb} " in result.stdout


@pytest.mark.parametrize("arguments", [["nonsense"], ["serve", "--nonsense"], ["serve", "--port", "x"]])
def test_wrong_usage_is_2(arguments: list[str]) -> None:
    result = run(*arguments)
    assert result.returncode == 2
    assert result.stderr.startswith("Usage: ")


def test_a_verb_that_is_spelled_wrong_is_told_the_right_one(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        command_line.main(["queu", "topics"])
    assert caught.value.code == 2
    assert "No such command 'queu'. Did you mean 'queue'?" in capsys.readouterr().err


def test_wrong_settings_are_2_and_one_line() -> None:
    result = run("serve", PIXIU_JOURNAL__FLSH="none")
    assert (result.returncode, result.stderr) == (
        2,
        "pixiu: unknown setting journal.flsh; did you mean flush?\n",
    )


def test_a_traceback_only_where_it_is_asked_for() -> None:
    assert "Traceback" in run("serve", "--flush", "maybe", PIXIU_DEBUG="1").stderr
    assert "Traceback" not in run("serve", "--flush", "maybe").stderr


def test_development_is_for_loopback_only(tmp_path: Path) -> None:
    result = run("serve", "--dev", "--data", str(tmp_path), "--set", "queue.host=0.0.0.0")
    assert result.returncode == 2
    assert "queue.host is 0.0.0.0, and --dev is for loopback only" in result.stderr


@pytest.mark.parametrize(
    "error, code, text",
    [
        (PixiuError("it failed"), 1, "pixiu: it failed\n"),
        (CorruptData("bad block"), 1, "pixiu: bad block\n"),
        (ConfigError("queue.port is wrong"), 2, "pixiu: queue.port is wrong\n"),
        (ValueError("a bug"), 1, "pixiu: ValueError: a bug (PIXIU_DEBUG=1 shows where)\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_errors_become_exit_codes(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    text: str,
) -> None:
    def fail(**options: object) -> None:
        raise error

    monkeypatch.setattr(command_line, "app", fail)
    monkeypatch.delenv("PIXIU_DEBUG", raising=False)
    with pytest.raises(SystemExit) as caught:
        command_line.main([])
    assert caught.value.code == code
    assert capsys.readouterr().err == text


@pytest.mark.parametrize(
    "text, address",
    [("localhost:12301", ("localhost", 12301)), ("[::1]:1", ("::1", 1)), ("h:65535", ("h", 65535))],
)
def test_an_address_is_a_host_and_a_port(text: str, address: tuple[str, int]) -> None:
    assert parse_address("--follow", text) == address


@pytest.mark.parametrize("text", ["", "host", "host:", ":1", "host:0", "host:65536", "host:x", "host:-1"])
def test_a_wrong_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--follow must be HOST:PORT"):
        parse_address("--follow", text)


def test_the_banner_has_ready_to_paste_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    print_banner(Running("127.0.0.1:12301", "127.0.0.1:8400", None, tmp_path / "pixiu-data"))
    lines = capsys.readouterr().out.splitlines()
    assert "queue listening on 127.0.0.1:12301" in lines
    assert "data in ./pixiu-data" in lines
    assert any(line.endswith("queue create hello") for line in lines)
    assert "Open http://127.0.0.1:8400 in two windows and chat." in lines
    print_banner(Running("127.0.0.1:12301", "127.0.0.1:8400", None, tmp_path / "pixiu-data"), leads=False)
    said = capsys.readouterr().out
    assert "two windows" not in said
    assert "queue status" in said and "queue create" not in said, "a follower takes nothing in"
    print_banner(Running("127.0.0.1:7", None, None, Path("/elsewhere/data")))
    lines = capsys.readouterr().out.splitlines()
    assert "data in /elsewhere/data" in lines
    assert any(line.endswith("queue sub hello --port 7") for line in lines)
    assert not any("curl" in line for line in lines)


def test_a_server_that_takes_nothing_says_so_where_it_would_invite(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    full = ("disk is full: 3 MiB free, 256 MiB are kept in reserve (journal.free_bytes_min)",)
    print_banner(Running("127.0.0.1:12301", "127.0.0.1:8400", None, tmp_path, full))
    out = capsys.readouterr().out
    assert f"NOTHING CAN BE SENT: {full[0]}" in out and "two windows" not in out


def test_an_event_to_begin_with_goes_with_a_leader(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="goes with --follow"):
        run_server(Settings(), data=tmp_path / "data", dev=False, http=False, follow_event=5)
    assert not (tmp_path / "data").exists()


def test_without_dev_the_banner_says_how_to_make_a_key_and_users(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    running = Running("127.0.0.1:12301", "127.0.0.1:8400", None, tmp_path)
    print_banner(running, doors=Doors(is_dev=False))
    said = capsys.readouterr().out
    assert f"token --new-key --data {tmp_path}" in said
    assert "/v1/actions/create_user" in said
    assert "two windows" not in said and "WARNING" not in said
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "1.json").touch()
    print_banner(running, doors=Doors(is_dev=False))
    assert "--new-key" not in capsys.readouterr().out


def test_whoever_listens_for_the_network_without_tls_is_warned(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    running = Running("127.0.0.1:12301", "0.0.0.0:8488", None, tmp_path)
    print_banner(running, doors=Doors(is_dev=False))
    said = capsys.readouterr().out
    assert "without TLS" in said
    assert "http://0.0.0.0" not in said and "http://127.0.0.1:8488/v1" in said
    print_banner(running, doors=Doors(is_dev=False, has_tls=True))
    said = capsys.readouterr().out
    assert "WARNING" not in said
    assert "https://" in said


@pytest.mark.parametrize("gateways", ["0", "1"])
def test_a_port_that_was_picked_is_told(tmp_path: Path, gateways: str) -> None:
    options = ["--port", "0", "--queue-port", "0", "--no-pipeline", "--gateways", gateways]
    command = [sys.executable, "-m", "pixiu", "serve", "--dev", "--data", str(tmp_path / "data"), *options]
    for as_json in ([], ["--json"]):
        more = ["--set", "gateway.tcp_port=0", *as_json]
        with subprocess.Popen([*command, *more], stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            if as_json:
                found = json.loads(server.stdout.readline())
                assert found["data"] == str(tmp_path / "data") and found["grpc"] is None and found["problems"] == []
            else:
                lines = iter(server.stdout.readline, "\n")
                found = dict(line.split(" listening on ") for line in lines if "listening" in line)
            for name in ("queue", "http", "tcp"):
                host, _, port = found[name].strip().partition(":")
                socket.create_connection((host, int(port)), timeout=5).close()
            server.terminate()
            assert server.stdout.read() == "" or not as_json


def test_ctrl_c_while_it_loads_ends_it_in_silence(tmp_path: Path) -> None:
    """Whatever it loads last waits for ever here, so that the signal comes in the midst of it."""
    (tmp_path / "typer.py").write_text(
        "import pathlib, sys, time\npathlib.Path(sys.argv[-1]).touch()\ntime.sleep(60)\n"
    )
    begun = tmp_path / "begun"
    environ = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    command = [sys.executable, "-m", "pixiu", "queue", str(begun)]
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        wait_for(begun.exists, what="it to load", timeout_s=30)
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        assert (process.stdout.read(), process.wait(10)) == (b"", -signal.SIGINT)
