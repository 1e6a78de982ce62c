"""``pixiu serve --set store=redis://…`` as a user runs it, with Redis going and coming back."""

import json
import subprocess
import sys
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.test_serve import Served, serving
from tests.engines import ValkeyProcess
from tests.servers import wait_for

PUSH_CHAT = Path(__file__).resolve().parent.parent.parent / "examples" / "push_chat.py"

pytestmark = [pytest.mark.engines, pytest.mark.serial]


def pixiu(*words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "pixiu", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def act(served: Served, token: str, action: str, **params: str) -> dict[str, object]:
    host, port = served.address("http")
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(
        f"http://{host}:{port}/v1/actions/{action}", json.dumps(params).encode(), headers, method="POST"
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        return dict(json.loads(answer.read()))


@pytest.mark.feature("P28")
def test_readiness_tells_when_redis_is_down_and_nothing_is_lost(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with ValkeyProcess(tmp_path / "valkey") as redis:
        with serving(data, "--dev", "--set", f"store={redis.url}") as served:
            token = pixiu("token", "1", "--data", str(data)).stdout.strip()
            for number in range(3):
                act(served, token, "send", to="2", text=str(number), send_id=str(number))
            assert served.get("/readyz")[0] == 200
            redis.stop()
            wait_for(lambda: served.get("/readyz")[0] == 503, what="not ready, though nobody asks")
            assert "Redis at 127.0.0.1" in served.get("/readyz")[1]
            redis.start()
            wait_for(lambda: served.get("/readyz")[0] == 200, what="ready again")
            act(served, token, "send", to="2", text="3", send_id="3")
            report = json.loads(pixiu("audit", "--data", str(data), "--json").stdout)
            assert (report["balanced"], report["accepted"]) == (True, 4)
        for command in ("audit", "rebuild", "audit"):
            done = pixiu(command, "--data", str(data), "--json")
            assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["waiting"] == report["waiting"]
    done = pixiu("audit", "--data", str(data), "--json")
    assert done.returncode == 1 and "is down" in done.stderr, done.stderr


@pytest.mark.feature("P29", "P03", "P23")
def test_a_chat_that_only_pushes_shows_everything_on_two_platforms(tmp_path: Path) -> None:
    """``examples/push_chat.py`` three times: one speaks, the other reads on two platforms, one of them late."""
    data = tmp_path / "data"
    with ExitStack() as stack:
        redis = stack.enter_context(ValkeyProcess(tmp_path / "valkey"))
        served = stack.enter_context(serving(data, "--dev", "--set", f"store={redis.url}", seconds_max=90))
        url = "http://{}:{}".format(*served.address("http"))
        admin = pixiu("token", "chat", "--admin", "--data", str(data)).stdout.strip()

        def chat(name: str, platform: str, peer: str) -> "subprocess.Popen[str]":
            token = pixiu("token", name, "--platform", platform, "--data", str(data)).stdout.strip()
            command = [sys.executable, str(PUSH_CHAT), url, admin, name, token, peer]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            stack.enter_context(process)
            stack.callback(process.kill)
            assert process.stdout is not None and process.stdout.readline() == f"{name} is online\n"
            return process

        bob = {platform: chat("2", platform, "1") for platform in ("ios", "web")}
        ada = chat("1", "web", "2")
        shown = ada.communicate("hello\nare you there?\n", timeout=30)[0].splitlines()
        assert shown == ["1: hello", "1: are you there?"], "who speaks reads it, too"
        answered = bob["ios"].communicate("yes\n", timeout=30)[0].splitlines()
        assert answered == [*shown, "2: yes"]
        assert bob["web"].communicate("", timeout=30)[0].splitlines() == [*shown, "2: yes"]
        waiting = redis.told("ZRANGE", "msg/u:1/p:web/oms", 0, -1)
        assert len(waiting) == 1, "what was said when nobody read waits in Redis"
        again = chat("1", "web", "2")
        assert again.communicate("", timeout=30)[0].splitlines() == ["2: yes"]
        wait_for(lambda: not redis.told("EXISTS", "msg/u:1/p:web/oms"), what="everything acked")
