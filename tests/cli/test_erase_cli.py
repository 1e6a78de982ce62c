"""``pixiu pipeline erase`` and ``pixiu queue redact``, as operators run them."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from pixiu.runtime.datadir import find_server
from tests.cli.test_operator_cli import run
from tests.e2e.test_surfaces import Served
from tests.node.test_erasure import MARK, found
from tests.servers import wait_for


@pytest.fixture
def node(tmp_path: Path) -> Any:
    server = Served(tmp_path / "data")
    server.start()
    yield server
    server.stop()


def talk(node: Served) -> None:
    alice, bob = node.token("alice"), node.token("bob")
    for number in range(5):
        node.act(alice, "send", to="bob", text=f"{MARK} {number}")
        node.act(bob, "send", to="alice", text=f"plain {number}")


def places(result: "subprocess.CompletedProcess[str]") -> dict[str, dict[str, Any]]:
    assert result.returncode == 0, result.stderr
    return {row["place"]: row for row in json.loads(result.stdout)["places"]}


@pytest.mark.feature("R20")
def test_a_server_that_runs_erases_goes_on_and_a_follower_is_redacted_by_its_own_copy(
    node: Served, tmp_path: Path
) -> None:
    talk(node)
    follower = tmp_path / "follower"
    holder = find_server(node.data)
    assert holder is not None and holder.address is not None
    follow = ["queue", "serve", "--data", str(follower), "--port", "0", "--follow", str(holder.address)]
    follow += ["--secret-file", str(node.data / "node.key")]
    process = subprocess.Popen(
        [sys.executable, "-m", "pixiu", *follow], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_for(lambda: bool(found(follower)), what="the follower to have it", timeout_s=20)
        refused = run("pipeline", "erase", "alice", "--url", node.url, "--token", node.token("bob"), "--yes")
        assert refused.returncode == 1, refused.stdout
        assert "for admins" in refused.stderr, refused.stderr
        done = places(run("pipeline", "erase", "alice", "--data", node.data, "--yes", "--json"))
        assert done["store bodies"]["found"] == done["store bodies"]["removed"]
        # Five messages, five notifications, the profile.
        assert (done["journal"]["found"], done["journal"]["remains"]) == (11, "")
        assert "redact is run on each" in done["followers"]["remains"] and done["backups"]["remains"]
        assert httpx.get(f"{node.url}/readyz").status_code == 200
        shown = node.act(node.token("bob"), "history", **{"with": "alice"})["messages"]
        assert [each.get("text", "recalled") for each in shown] == [
            each for number in (4, 3, 2, 1, 0) for each in (f"plain {number}", "recalled")
        ]
        assert found(node.data) == []
        erasure = json.loads(run("audit", "--data", node.data, "--json").stdout)
        assert erasure["balanced"]
        wait_for(lambda: b"\xf2\x01" in (follower / "queue/journal/00000000000000000001.log").read_bytes())
    finally:
        process.terminate()
        process.wait(20)
    assert found(follower)
    report = json.loads(run("queue", "redact", "--data", follower, "--json").stdout)
    assert (report["messages"], len(report["users"])) == (11, 1)
    assert found(follower) == []
    assert run("queue", "verify", "--data", follower).returncode == 0
    assert json.loads(run("queue", "redact", "--data", follower, "--json").stdout)["bytes"] == 0
    shown_rows = run("queue", "redact", "--data", node.data)
    assert "1 erased user," in shown_rows.stdout, shown_rows.stderr


def test_a_directory_that_nobody_serves_is_erased_after_a_question(node: Served) -> None:
    talk(node)
    node.stop()
    no = run("pipeline", "erase", "alice", "--data", node.data)
    assert no.returncode == 1 and found(node.data)
    missing = run("pipeline", "erase", "nobody", "--data", node.data, "--yes")
    assert (missing.returncode, "no user 'nobody'" in missing.stderr) == (1, True)
    assert run("pipeline", "erase", "alice", "--data", node.data, "--url", node.url).returncode == 2
    assert run("pipeline", "erase", "alice", "--data", node.data / "no", "--yes").returncode == 1
    yes = run("pipeline", "erase", "alice", "--data", node.data, "--yes", "--keep", "0s")
    assert yes.returncode == 0, yes.stderr
    assert yes.stdout.splitlines()[-1].startswith("erased alice (number ")
    assert found(node.data) == []
    node.start()
    refused = httpx.post(
        f"{node.url}/v1/actions/send",
        json={"to": "alice", "text": "x"},
        headers={"Authorization": f"Bearer {node.token('bob')}"},
    )
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "not_found")
    own = httpx.post(
        f"{node.url}/v1/actions/contacts", json={}, headers={"Authorization": f"Bearer {node.token('alice')}"}
    )
    assert own.status_code in (401, 404)
