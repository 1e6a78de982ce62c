"""A node in full work, killed again and again between append and delivery.

Every accepted message is shown by every device it was meant for, once and in order, and the books balance.
"""

import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pixiu.config.engines import EMBEDDED
from tests.crash.messaging_child import GROUP, PLATFORMS, USERS, Facts

pytestmark = [pytest.mark.crash, pytest.mark.feature("P06", "R20", "T6", "B20")]

ROOT = Path(__file__).resolve().parents[2]


def child(data: Path, facts: Path, mode: str, seed: int, log: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tests.crash.messaging_child", str(data), str(facts), mode, str(seed), log]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stderr is not None
    line = process.stdout.readline()
    assert line == "ready\n", line + process.stderr.read()
    return process


def kill_again_and_again(tmp_path: Path, kills: int, seed: int, log: str = EMBEDDED) -> dict[str, Any]:
    rng = random.Random(seed)
    data, folder = tmp_path / "data", tmp_path / "facts"
    folder.mkdir()
    for number in range(kills):
        process = child(data, folder, "load", seed * 10_000 + number, log)
        time.sleep(rng.random() * 0.25)
        process.kill()
        process.communicate(timeout=30)
    process = child(data, folder, "settle", seed, log)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    result: dict[str, Any] = json.loads(out)
    check(Facts(folder), result)
    return result


def check(facts: Facts, result: dict[str, Any]) -> None:
    accepted: dict[tuple[str, str], str] = {}
    for user, send_id, message_id in facts.read("accepted") + facts.read("repeated"):
        assert accepted.setdefault((user, send_id), message_id) == message_id, "one send_id, two messages"
    assert len(set(accepted.values())) == len(accepted), "two sends, one message"
    where = {(user, send_id): (action, target) for user, send_id, action, target in facts.read("attempted")}
    for number in range(USERS):
        user = f"u{number}"
        meant = sorted(
            int(message_id)
            for (sender, send_id), message_id in accepted.items()
            if user in (sender, where[sender, send_id][1]) or where[sender, send_id][1] == GROUP
        )
        is_meant = set(meant)
        for platform in PLATFORMS:
            shown = [int(line[1]) for line in facts.read(f"shown.{user}.{platform}")]
            assert len(set(shown)) == len(shown), f"{user} on {platform} was shown something twice"
            ours = [message_id for message_id in shown if message_id in is_meant]
            assert ours == meant, f"{user} on {platform}: {len(ours)} of {len(meant)} shown, or out of order"
    report = result["report"]
    assert report["balanced"] and report["waiting"] == 0, report
    read: dict[str, int] = {}
    for user, other, through in facts.read("read"):
        key = f"{user} {other}"
        read[key] = max(read.get(key, 0), int(through))
    for key, unread in result["unread"].items():
        user, other = key.split()
        said = [
            int(message_id)
            for (sender, send_id), message_id in accepted.items()
            if sender == other != user and where[sender, send_id] == ("send", user)
        ]
        assert unread == sum(message_id > read[key] for message_id in said), key


def test_a_fact_that_was_cut_off_by_a_kill_is_none_and_spoils_no_other(tmp_path: Path) -> None:
    (tmp_path / "shown").write_text("1 11\n2 2")
    facts = Facts(tmp_path)
    assert facts.read("shown") == [["1", "11"]]
    facts.add("shown", "2 22")
    facts.add("shown", "3 33")
    assert Facts(tmp_path).read("shown") == [["1", "11"], ["2", "22"], ["3", "33"]]
    assert facts.read("nothing") == []


@pytest.mark.timeout(600)
def test_forty_kills_lose_double_and_reorder_nothing(tmp_path: Path) -> None:
    result = kill_again_and_again(tmp_path, 40, seed=1)
    assert result["report"]["accepted"] > 100


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 42))
def test_two_thousand_kills_lose_double_and_reorder_nothing(tmp_path: Path, seed: int) -> None:
    kill_again_and_again(tmp_path, 50, seed=seed)
