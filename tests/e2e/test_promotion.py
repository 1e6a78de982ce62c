"""A follower that is promoted is a whole node: people go on where they were."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from pixiu.runtime.datadir import find_server
from tests.e2e.test_surfaces import Served
from tests.servers import wait_for


def queue_address(served: Served) -> str:
    holder = find_server(served.data)
    assert holder is not None and holder.address is not None
    return str(holder.address)


def queue(*words: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "pixiu", "queue", *words, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def end_of(address: str) -> int:
    return int(queue("status", "--url", address)["last_event_id"])


def has_messaging(served: Served) -> bool:
    try:
        return httpx.get(f"{served.url}/openapi.json").status_code == 200 and served.is_ready()
    except httpx.HTTPError:
        return False


def test_people_go_on_at_the_one_that_was_promoted(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("sixteen characters or more\n", encoding="utf-8")
    secret.chmod(0o600)
    wanted = ["--set", f"replication.secret_file={secret}"]
    first = Served(tmp_path / "first", more=wanted)
    first.start()
    leader = queue_address(first)
    second = Served(tmp_path / "second", more=["--follow", leader, *wanted])
    try:
        said = first.act(first.token("alice"), "send", to="bob", text="before", send_id="1")
        second.start()
        address = queue_address(second)
        wait_for(lambda: end_of(address) >= end_of(leader), what="the copy", timeout_s=20)
        first.stop(kill=True)
        assert httpx.get(f"{second.url}/openapi.json").status_code == 404, "a follower has no messaging"
        with pytest.raises(AssertionError, match=r"requires a key for this: .* --secret-file FILE"):
            queue("promote", "--force", "--url", address)
        queue("promote", "--force", "--url", address, "--secret-file", str(secret))
        wait_for(lambda: has_messaging(second), what="messaging at the promoted one", timeout_s=20)
        token = second.token("alice")
        again = second.act(token, "send", to="bob", text="before", send_id="1")
        assert again == said, "the send is known there"
        second.act(token, "send", to="bob", text="after", send_id="2")
        shown = second.act(second.token("bob"), "history", **{"with": "alice"})["messages"]
        assert [each["text"] for each in shown] == ["after", "before"]
        assert queue_address(second) == address
    finally:
        first.stop(kill=True)
        second.stop(kill=True)
