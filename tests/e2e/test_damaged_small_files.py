"""One flipped bit in a small file of the data directory: the node starts from the second copy, or names a remedy."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import httpx

from pixiu.runtime.datadir import find_server, read_identity, read_node_key
from tests.e2e.test_forced_promotion import fence, texts
from tests.e2e.test_surfaces import Served
from tests.servers import wait_for


def flip_one_bit(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def serve_until_it_ends(data: Path) -> str:
    """What ``pixiu serve`` says that cannot start."""
    command = [sys.executable, "-m", "pixiu", "serve", "--dev", "--no-pipeline", "--data", str(data)]
    command += ["--port", "0", "--queue-port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1, done.stderr
    return done.stderr


def say(served: Served, text: str) -> None:
    served.act(served.token("alice"), "send", to="bob", text=text)
    wait_for(lambda: texts(served)[0] == text, what="the message")


def leader_digit(data: Path) -> int:
    """The place of the last digit of the leader's name in the control record."""
    found = re.search(rb"node-[0-9a-f]{8}", (data / "control").read_bytes())
    assert found is not None
    return found.end() - 1


def test_one_flipped_bit_in_node_key_or_control_does_not_stop_a_node(tmp_path: Path) -> None:
    served = Served(tmp_path / "data")
    served.start()
    try:
        say(served, "before")
        key = read_node_key(served.data)
        served.stop()
        places = {"node.key": 5, "control": leader_digit(served.data), "node.id": 12}
        for name, at in places.items():
            flip_one_bit(served.data / name, at)
        served.start()
        assert read_node_key(served.data) == key
        say(served, "after")
        log = served.log.read_text(encoding="utf-8")
        assert log.count("damaged_file_replaced") == len(places)
    finally:
        served.stop(kill=True)


def test_when_both_copies_are_damaged_the_message_names_a_remedy_that_works(tmp_path: Path) -> None:
    served = Served(tmp_path / "data")
    served.start()
    try:
        say(served, "before")
        served.stop()
        places = {"node.key": 5, "control": leader_digit(served.data)}
        for name, at in places.items():
            for copy in (name, f"{name}.copy"):
                flip_one_bit(served.data / copy, at)
        for name in places:
            told = serve_until_it_ends(served.data)
            assert f"{name}.copy" in told and "remove" in told, told
            for copy in (name, f"{name}.copy"):
                (served.data / copy).unlink()
        served.start()
        say(served, "after")
        assert texts(served) == ["after", "before"]
    finally:
        served.stop(kill=True)


def leader_of(data: Path) -> str:
    """Who leads, by the control record."""
    return str(json.loads((data / "control").read_text(encoding="utf-8").splitlines()[0])["leader"])


def test_replacing_node_key_keeps_the_name_of_the_node(tmp_path: Path) -> None:
    served = Served(tmp_path / "data")
    served.start()
    try:
        say(served, "before")
        served.stop()
        key, name, names = read_node_key(served.data), leader_of(served.data), read_identity(served.data)
        assert name == names.name
        for copy in ("node.key", "node.key.copy"):
            (served.data / copy).unlink()
        served.start()
        say(served, "with the new key")
        assert read_node_key(served.data) != key
        assert (leader_of(served.data), read_identity(served.data)) == (name, names)
        key = "5" * 64
        served.stop()
        for copy in ("node.key", "node.key.copy"):  # one that an operator has chosen
            (served.data / copy).write_text(key + "\n", encoding="utf-8")
        served.start()
        say(served, "with a chosen key")
        assert (read_node_key(served.data), leader_of(served.data), read_identity(served.data)) == (key, name, names)
        assert "fenced" not in served.log.read_text(encoding="utf-8")
    finally:
        served.stop(kill=True)


def test_an_older_copy_of_control_that_a_crash_left_is_never_used(tmp_path: Path) -> None:
    served = Served(tmp_path / "data")

    def start_fenced() -> None:
        served.launch()
        wait_for(lambda: find_server(served.data) is not None, what="the server to run", timeout_s=60)
        wait_for(lambda: is_alive(served.url), what="the server to answer", timeout_s=60)

    served.start()
    try:
        say(served, "before")
        leads = (served.data / "control.copy").read_bytes()
        assert "fenced" in fence(served, epochs=5_000)
        wait_for(lambda: not served.is_ready(), what="/readyz to say that it does not lead")
        served.stop(kill=True)
        assert (served.data / "control.copy").read_bytes() != leads
        (served.data / "control.copy").write_bytes(leads)  # as a crash between the two writes leaves it
        start_fenced()
        served.stop()
        flip_one_bit(served.data / "control", 5)
        start_fenced()
        time.sleep(2)  # a node that may lead is ready by now
        assert not served.is_ready(), "it was fenced: another node leads"
    finally:
        served.stop(kill=True)


def is_alive(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz", timeout=1).status_code in (200, 503)
    except httpx.HTTPError:
        return False
