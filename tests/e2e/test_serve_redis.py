"""``pixiu serve --set store=redis://…`` as a user runs it, with Redis going and coming back."""

import json
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.e2e.test_serve import Served, serving
from tests.engines import ValkeyProcess
from tests.servers import wait_for

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
