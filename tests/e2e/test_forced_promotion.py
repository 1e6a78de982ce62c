"""A node that another one has fenced is promoted by force, and people go on."""

import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from pixiu.machines.queue_wire.requests import encode_follow
from pixiu.queue.client.keys import show_key_blocking
from pixiu.runtime.datadir import find_server, read_node_key
from tests.e2e.test_surfaces import Served
from tests.servers import wait_for


def fence(served: Served, *, epochs: int) -> str:
    """What a peer does that has seen a later epoch. Returns the refusal."""
    holder = find_server(served.data)
    assert holder is not None and holder.address is not None
    host, _, port = holder.address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as peer:
        show_key_blocking(peer, read_node_key(served.data))
        peer.sendall(encode_follow(b"peer", last_event_id=0, last_epoch=0, highest_epoch=epochs))
        return peer.recv(4096).decode(errors="replace")


def promote(data: Path) -> None:
    command = [sys.executable, "-m", "pixiu", "queue", "promote", "--force", "--data", str(data)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


def texts(served: Served) -> list[str]:
    return [each["text"] for each in served.act(served.token("bob"), "history", **{"with": "alice"})["messages"]]


@pytest.mark.feature("QE5")
def test_a_fenced_node_that_is_promoted_by_force_serves_again(tmp_path: Path) -> None:
    served = Served(tmp_path / "data")
    served.start()
    try:
        served.act(served.token("alice"), "send", to="bob", text="before", send_id="1")
        for round_number in range(2):
            assert "fenced" in fence(served, epochs=5_000 * (round_number + 1))
            wait_for(lambda: not served.is_ready(), what="/readyz to say that it does not lead")
            promote(served.data)
            wait_for(served.is_ready, what="the promoted node to be ready", timeout_s=20)
            served.act(served.token("alice"), "send", to="bob", text=f"after {round_number}")
            wait_for(lambda: texts(served)[0] == f"after {round_number}", what="the message")  # noqa: B023
        assert texts(served) == ["after 1", "after 0", "before"]
        served.stop()
        served.start()
        served.act(served.token("alice"), "send", to="bob", text="after a restart")
        wait_for(lambda: texts(served)[0] == "after a restart", what="the message")
        admin = {"Authorization": f"Bearer {served.token('root', '--admin')}"}
        audit = httpx.get(f"{served.url}/v1/admin/audit", headers=admin, timeout=30)
        assert audit.json()["balanced"], audit.text
    finally:
        served.stop(kill=True)
