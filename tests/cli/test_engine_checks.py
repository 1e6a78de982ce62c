"""``pixiu doctor`` on Redis: what it finds, and what it says to change."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pixiu.cli.redis_checks import redis_findings
from tests.engines import ValkeyProcess

GOOD = {
    "maxmemory": "1000000",
    "maxmemory-policy": "noeviction",
    "appendonly": "yes",
    "appendfsync": "everysec",
    "min-replicas-to-write": "0",
}
INFO = {"redis_version": "7.2.4", "valkey_version": "8.1.0", "role": "master", "used_memory": "1000"}


def states(info: dict[str, str], **settings: str) -> dict[str, str]:
    found = GOOD | {name.replace("_", "-"): value for name, value in settings.items()}
    return {name: state for name, state, _, advice in redis_findings("redis", INFO | info, found) if advice}


def test_nothing_is_said_of_a_server_that_loses_nothing() -> None:
    assert states({}) == {}


@pytest.mark.parametrize(
    ("info", "settings", "expected"),
    [
        ({"valkey_version": "6.0.9"}, {}, {"redis": "fail"}),
        ({"valkey_version": "6.2.1"}, {}, {"redis": "warn"}),
        ({}, {"maxmemory_policy": "allkeys-lru"}, {"redis eviction": "fail"}),
        ({}, {"maxmemory_policy": "volatile-ttl"}, {"redis eviction": "fail"}),
        ({}, {"maxmemory": "0"}, {"redis memory": "warn"}),
        ({"used_memory": "950000"}, {}, {"redis memory": "warn"}),
        ({}, {"appendonly": "no"}, {"redis appendonly": "warn"}),
        ({}, {"appendfsync": "no"}, {"redis appendonly": "warn"}),
    ],
)
def test_what_loses_data_is_named(info: dict[str, str], settings: dict[str, str], expected: dict[str, str]) -> None:
    assert states(info, **settings) == expected


def test_the_doctor_asks_the_server_that_the_settings_name(tmp_path: Path) -> None:
    def asked(url: str) -> dict[str, str]:
        command = [sys.executable, "-m", "pixiu", "doctor", "--data", str(tmp_path / "data"), "--set", f"store={url}"]
        done = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=60, check=False)
        return {row["name"]: row["state"] for row in json.loads(done.stdout)["checks"] if "redis" in row["name"]}

    with ValkeyProcess(tmp_path / "valkey", "--maxmemory-policy", "allkeys-lru", "--maxmemory", "100mb") as server:
        assert asked(server.url) == {
            "redis": "ok",
            "redis eviction": "fail",
            "redis memory": "ok",
            "redis appendonly": "warn",
        }
    assert asked(server.url) == {"redis": "fail"}
