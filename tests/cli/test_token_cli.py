"""``pixiu token``, ``pixiu push`` and ``pixiu dead-letters``, as people run them."""

import asyncio
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import pixiu
from pixiu.api.server import HttpServer
from pixiu.config import CarrierSettings, HornSettings, Settings
from pixiu.config.security import SecuritySettings
from pixiu.model.errors import Unauthenticated
from pixiu.ports.authentication import Identity
from pixiu.runtime.clock import SystemClock
from pixiu.runtime.datadir import DataDirectory
from pixiu.runtime.keys import Keyring
from pixiu.runtime.tokens import Tokens
from tests.api.world import World, open_world

UNREACHABLE = Settings(
    horn=HornSettings(provider="webhook", webhook_url="http://127.0.0.1:9/", collapse_ms=0),
    carrier=CarrierSettings(task_retries_max=0),
)
"""Every notification becomes a dead letter."""


def run(*arguments: str | Path, text: str | None = None, **environ: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "pixiu", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environ, input=text)


def verified(data: Path, token: str) -> Identity:
    clock = SystemClock()
    return Tokens(Keyring(data, clock), clock, SecuritySettings()).verify(token)


@contextmanager
def served(data: Path, settings: Settings | None = None) -> Iterator[tuple[World, str]]:
    """A node with its HTTP server, in a thread of its own."""
    ready, found, ended = threading.Event(), [], []

    async def serve() -> None:
        async with open_world(data, settings=settings) as world:
            sock = socket.create_server(("127.0.0.1", 0))
            server = HttpServer(world.api, sock)
            await server.start()
            stop = asyncio.Event()
            ended.append((asyncio.get_running_loop(), stop))
            found.append((world, f"http://127.0.0.1:{sock.getsockname()[1]}"))
            ready.set()
            await stop.wait()
            await server.stop()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert ready.wait(30)
    try:
        yield found[0]
    finally:
        loop, stop = ended[0]
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    DataDirectory.open(path).close()
    Keyring(path, SystemClock()).create("EdDSA")
    return path


def test_it_prints_the_token_alone(data: Path) -> None:
    result = run("token", "alice", "--data", data)
    assert (result.returncode, result.stderr) == (0, "")
    assert len(result.stdout.splitlines()) == 1
    identity = verified(data, result.stdout.strip())
    assert (identity.user, identity.platform, identity.device, identity.is_admin) == ("alice", "web", "", False)
    day_ms = identity.expires_at - SystemClock().now_ms()
    assert 23 * 3_600_000 < day_ms <= 24 * 3_600_000


def test_platform_device_admin_and_time_are_in_it(data: Path) -> None:
    options = ("--platform", "ios", "--device", "p1", "--admin", "--expires", "1h30m")
    identity = verified(data, run("token", "alice", *options, "--data", data).stdout.strip())
    assert (identity.platform, identity.device, identity.is_admin) == ("ios", "p1", True)
    assert 5_300_000 < identity.expires_at - SystemClock().now_ms() <= 5_400_000


def test_without_a_key_there_is_no_token_and_nothing_is_made(tmp_path: Path) -> None:
    DataDirectory.open(tmp_path / "data").close()
    result = run("token", "alice", "--data", tmp_path / "data")
    assert (result.returncode, result.stdout) == (1, "")
    assert "pixiu token --new-key" in result.stderr
    assert not (tmp_path / "data" / "keys").exists()
    result = run("token", "alice", "--data", tmp_path / "nothing")
    assert (result.returncode, (tmp_path / "nothing").exists()) == (1, False)


def test_keys_are_rotated(tmp_path: Path) -> None:
    data = tmp_path / "data"
    first = run("token", "--new-key", "--data", data).stdout.strip()
    old = run("token", "alice", "--data", data).stdout.strip()
    second = run("token", "--new-key", "--data", data, PIXIU_SECURITY__TOKEN_ALGORITHM="HS256").stdout.strip()
    new = run("token", "alice", "--data", data).stdout.strip()
    assert verified(data, old).user == verified(data, new).user == "alice"
    listed = run("token", "--keys", "--data", data).stdout.splitlines()
    rows = json.loads(run("token", "--keys", "--json", "--data", data).stdout)
    assert [row["key"] for row in rows] == [line.split("\t")[0] for line in listed]
    told = json.loads(run("token", "alice", "--json", "--data", data).stdout)
    assert verified(data, told["token"]).user == told["user"] == "alice"
    assert [line.split("\t")[:2] for line in listed] == [[first, "EdDSA"], [second, "HS256"]]
    assert run("token", "--retire", first, "--data", data).returncode == 0
    with pytest.raises(pixiu.model.errors.Unauthenticated):
        verified(data, old)
    assert verified(data, new)
    assert run("token", "--retire", first, "--data", data).returncode == 1
    # The directory is one that a server can start on.
    DataDirectory.open(data).close()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 2, "name a USER"),
        (["alice", "--expires", "soon"], 2, "is not a duration"),
        (["alice", "--expires", "10ms"], 2, "at least 1s"),
        (["alice", "--platform", "first"], 1, "platform must not be 'first'"),
        (["x" * 65], 1, "user may have 64 bytes"),
    ],
)
def test_wrong_usage(data: Path, arguments: list[str], code: int, words: str) -> None:
    result = run("token", *arguments, "--data", data)
    assert (result.returncode, result.stdout) == (code, "")
    assert words in result.stderr


@pytest.mark.feature("P23")
def test_push_over_http(data: Path, tmp_path: Path) -> None:
    with served(data) as (world, url):
        result = run("push", "alice", "bob", "--text", "one", "--text", "two", "--url", url, "--data", data)
        assert (result.returncode, result.stderr) == (0, "")
        ids = result.stdout.split()
        assert len(ids) == 2
        request = {"uids": ["bob"], "msg_bodies": [{"text": "x"}], "msg_options": 7}
        token = world.tokens.issue(Identity("backend", is_admin=True))
        pushed = run(
            "push",
            "--request",
            "-",
            "--url",
            url,
            "--json",
            "--send-id",
            "p",
            text=json.dumps(request),
            PIXIU_TOKEN=token,
        )
        again = run("push", "bob", "--text", "x", "--url", url, "--json", "--send-id", "p", "--token", token)
        assert json.loads(pushed.stdout) == json.loads(again.stdout)
        user = world.tokens.issue(Identity("alice"))
        refused = run("push", "bob", "--text", "x", "--url", url, "--token", user)
        assert (refused.returncode, "for admins" in refused.stderr) == (1, True)
        for option in ("--platforms", "--without"):
            slip = run("push", "bob", "--text", "x", "--url", url, "--data", data, option, " ,")
            assert (slip.returncode, f"{option} names no platform" in slip.stderr) == (2, True)
        nobody = run("push", "zoe", "--text", "x", "--url", url, "--data", data)
        assert (nobody.returncode, nobody.stderr) == (1, "pixiu: there is no user 'zoe'\n")


def test_a_token_of_this_node_is_not_sent_to_strangers(tmp_path: Path, data: Path) -> None:
    for arguments, code, words in (
        (["bob", "--text", "x", "--url", "https://elsewhere.example"], 2, "give --token"),
        (["bob", "--text", "x", "--url", "ftp://x"], 2, "http://"),
        (["bob"], 2, "--text"),
        (["bob", "--text", "x", "--request", "f"], 2, "say it once"),
        (["bob", "--text", "x", "--url", "http://127.0.0.1:9", "--data", str(data)], 1, "no answer"),
        (["bob", "--text", "x", "--data", str(tmp_path)], 1, "there is no token"),
    ):
        result = run("push", *arguments)
        assert (result.returncode, words in result.stderr) == (code, True), result.stderr


def wait_for(condition: Callable[[], bool]) -> None:
    for _ in range(400):
        if condition():
            return
        threading.Event().wait(0.025)
    raise AssertionError("waited in vain")


@pytest.mark.feature("P11")
def test_dead_letters_of_a_running_node_and_of_one_that_stands_still(data: Path) -> None:
    async def lose_one() -> None:
        async with pixiu.Node.embedded(data, settings=UNREACHABLE) as node:
            for user in ("alice", "bob"):
                await node.create_user(user)
            await (await node.connect("bob", platform="ios")).leave()
            await node.send("alice", to="bob", text="hello")
            for _ in range(400):
                if node.messaging.carrier.counters.dead_letters:
                    return
                await asyncio.sleep(0.025)
            raise AssertionError("no dead letter")

    asyncio.run(lose_one())
    (line,) = run("dead-letters", "list", "--data", data, "--json").stdout.splitlines()
    letter = json.loads(line)
    assert (letter["what"], letter["platforms"]) == ("notify", ["ios"])
    with served(data, UNREACHABLE) as (_, url):
        where = ("--url", url, "--token", run("token", "ops", "--admin", "--data", data).stdout.strip())
        listed = run("dead-letters", "list", *where).stdout
        assert listed.split("\t")[0] == letter["id"] and listed.split("\t")[3] == "bob"
        given = run("dead-letters", "replay", letter["id"], *where)
        assert (given.returncode, given.stdout) == (0, "gave 1 back\n")
        assert run("dead-letters", "replay", letter["id"], *where).returncode == 1
        wait_for(lambda: run("dead-letters", "list", *where).stdout.count("\n") == 1)
    (again,) = run("dead-letters", "list", "--data", data, "--json").stdout.splitlines()
    assert json.loads(again)["id"] != letter["id"]
    # With the provider of the default settings it gets through.
    gave = json.loads(run("dead-letters", "replay", "--all", "--json", "--data", data).stdout)
    assert len(gave["ids"]) == 1
    assert run("dead-letters", "list", "--data", data).stdout == ""


def test_dead_letters_need_a_place_and_a_choice(tmp_path: Path, data: Path) -> None:
    assert run("dead-letters", "list", "--data", tmp_path / "nothing").returncode == 1
    assert run("dead-letters", "list", "--data", data, "--url", "http://127.0.0.1:9").returncode == 2
    assert run("dead-letters", "replay", "--data", data).returncode == 2
    assert run("dead-letters", "replay", "7", "--all", "--data", data).returncode == 2


def test_the_folder_of_a_cluster_is_told_where_its_keys_are(tmp_path: Path) -> None:
    # Every command of a cluster takes that folder; a key made there would be one that no gateway has.
    (tmp_path / "cluster.json").write_text("{}", encoding="utf-8")
    for command in (["token", "alice"], ["token", "--new-key"], ["top", "--once"], ["chat", "alice", "--stay", "1"]):
        told = run(*command, "--data", tmp_path, text="")
        assert told.returncode == 2 and not told.stdout
        assert str(tmp_path / "nodes" / "gateway") in told.stderr and "pixiu cluster status" in told.stderr
    assert not (tmp_path / "keys").exists()


def test_key_of_a_clusters_gateways_can_be_rotated(tmp_path: Path) -> None:
    """Their folder has keys, a format of no data directory, and files of other processes beside them."""
    data = tmp_path / "gateway"
    old = Keyring(data_with(data), SystemClock()).create("EdDSA").kid
    token = run("token", "alice", "--data", data).stdout.strip()
    new = run("token", "--new-key", "--retire", old, "--data", data)
    assert new.returncode == 0, new.stderr
    assert [path.stem for path in (data / "keys").glob("*.json")] == [new.stdout.strip()]
    with pytest.raises(Unauthenticated):
        verified(data, token)


def data_with(folder: Path) -> Path:
    folder.mkdir()
    (folder / "run.json").write_text("{}")
    return folder
