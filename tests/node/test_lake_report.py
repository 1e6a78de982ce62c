"""The report for the console: kept while nothing changes, made ahead, and rather old than late."""

import os
import sys
from pathlib import Path

import pytest

from pixiu.node.admin import lake_report
from pixiu.node.admin.lake_report import KEPT_US, STALE_US, LakeReport
from pixiu.runtime.clock import SystemClock

SCRIPT = """
import pathlib, sys
asked = pathlib.Path(sys.argv[1]) / "asked"
count = int(asked.read_text()) + 1 if asked.exists() else 1
asked.write_text(str(count))
print('{"count": %d}' % count)
"""


class Ahead(SystemClock):
    """A clock that can be put forward."""

    ahead_us = 0

    def monotonic_us(self) -> int:
        return super().monotonic_us() + self.ahead_us


@pytest.fixture
def clock() -> Ahead:
    return Ahead()


@pytest.fixture
def report(tmp_path: Path, clock: Ahead, monkeypatch: pytest.MonkeyPatch) -> LakeReport:
    command = [sys.executable, "-S", "-c", SCRIPT, str(tmp_path)]
    monkeypatch.setattr(lake_report, "own_command", lambda *words: command)
    return LakeReport(tmp_path, clock)


def commit(root: Path, at: int) -> None:
    """As a run of the pipeline changes a table."""
    folder = root / "pipeline" / "lake" / "messages" / "_delta_log"
    folder.mkdir(parents=True, exist_ok=True)
    os.utime(folder, (at, at))


async def test_without_tables_there_is_nothing_to_make(report: LakeReport) -> None:
    assert report.warm() is None
    assert await report.read() == {"empty": True}


async def test_one_is_made_ahead_and_whoever_asks_meanwhile_gets_the_same(tmp_path: Path, report: LakeReport) -> None:
    commit(tmp_path, 1)
    making = report.warm()
    assert making is not None and report.warm() is making, "one at a time"
    assert await report.read() == {"count": 1}
    assert report.warm() is None
    assert await report.read() == {"count": 1}


async def test_an_old_one_is_shown_while_the_next_is_made_but_not_for_long(
    tmp_path: Path, report: LakeReport, clock: Ahead
) -> None:
    commit(tmp_path, 1)
    assert await report.read() == {"count": 1}
    commit(tmp_path, 2)
    assert await report.read() == {"count": 1}, "within seconds nobody asks again"
    clock.ahead_us = KEPT_US
    assert await report.read() == {"count": 1, "is_outdated": True}
    making = report.warm()
    assert making is not None
    await making
    assert await report.read() == {"count": 2}
    clock.ahead_us += STALE_US
    assert await report.read() == {"count": 3}
