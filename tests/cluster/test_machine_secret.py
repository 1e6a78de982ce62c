"""Processes on loopback without a secret file share one that other users of the machine cannot read."""

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pixiu.model.errors import ConfigError
from pixiu.node.processes.cluster_secrets import queue_key, queue_keys
from pixiu.runtime.machine_secret import MACHINE_SECRET, machine_secret


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def test_one_users_processes_share_a_secret_that_others_cannot_read(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: machine_secret(), range(32)))
    assert len(found) == 1
    assert [each.name for each in (state / "pixiu").iterdir()] == ["loopback.secret"]
    assert stat.S_IMODE((state / MACHINE_SECRET).stat().st_mode) == 0o600
    assert {queue_key("", "127.0.0.1")} == found
    assert queue_keys("", "10.0.0.1") == ()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "of another user"))
    assert machine_secret() not in found


def test_a_secret_that_others_can_read_is_refused_with_what_to_do(state: Path) -> None:
    machine_secret()
    (state / MACHINE_SECRET).chmod(0o644)
    with pytest.raises(ConfigError, match="--secret-file"):
        machine_secret()


def test_without_a_place_for_it_a_secret_file_is_asked_for(state: Path) -> None:
    state.write_text("a file")
    with pytest.raises(ConfigError, match="--secret-file"):
        machine_secret()
