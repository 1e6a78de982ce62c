"""Log lines for people and for machines, rotated and sampled."""

import io
import json
import logging
import os
import re
import sys
import time
from pathlib import Path

import pytest

from pixiu.config import LogSettings
from pixiu.model.errors import ConfigError
from pixiu.model.sampler import Sampler
from pixiu.runtime.logging import HumanFormatter, RotatingFile, bind, configure_logging

log = logging.getLogger("pixiu.queue.storage.journal")


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_off_a_terminal_a_line_is_a_json_object(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    configure_logging(LogSettings())
    log.info("segment rolled", extra={"first_event_id": 17, "path": Path("a/b"), "level": "mine"})
    line = json.loads(stream.getvalue())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("time"))
    assert line == {
        "level": "info",
        "logger": "pixiu.queue.storage.journal",
        "event": "segment rolled",
        "first_event_id": 17,
        "path": "a/b",
        "level_": "mine",
    }


def test_on_a_terminal_a_line_is_for_people(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stdout", stream)
    configure_logging(LogSettings(path="stdout"))
    log.info("segment rolled", extra={"bytes": 5})
    log.warning("disk slow", extra={"why": "it is full"})
    first, second = stream.getvalue().splitlines()
    assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d{3} info     queue\.storage\.journal  segment rolled  bytes=5", first)
    assert second.startswith("\x1b[33m")
    assert 'disk slow  why="it is full"' in second


@pytest.mark.parametrize("form, first", [("human", "digit"), ("json", "{")])
def test_the_setting_wins_over_the_terminal(monkeypatch: pytest.MonkeyPatch, form: str, first: str) -> None:
    for stream in (Terminal(), io.StringIO()):
        monkeypatch.setattr(sys, "stderr", stream)
        configure_logging(LogSettings(format=form))  # type: ignore[arg-type]
        log.info("hello")
        character = stream.getvalue()[0]
        assert character == first or (first == "digit" and character.isdigit())


def test_a_level_below_the_setting_is_not_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    configure_logging(LogSettings(level="warning"))
    log.info("quiet")
    log.warning("loud")
    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == ["loud"]


def test_an_exception_is_part_of_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    configure_logging(LogSettings())
    try:
        raise ValueError("broken")
    except ValueError:
        log.exception("apply failed")
    (line,) = stream.getvalue().splitlines()
    assert "ValueError: broken" in json.loads(line)["exception"]
    record = logging.LogRecord("pixiu.x", logging.ERROR, "", 0, "failed", None, None)
    try:
        raise ValueError("broken")
    except ValueError:
        record.exc_info = sys.exc_info()
    assert HumanFormatter(colour=False).format(record).endswith("ValueError: broken")


def test_bound_fields_are_on_every_line_of_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    configure_logging(LogSettings())
    with bind(role="queue"):
        with bind(trace_id="t1"):
            log.info("inner", extra={"trace_id": "own"})
        log.info("outer")
    log.info("outside")
    inner, outer, outside = (json.loads(line) for line in stream.getvalue().splitlines())
    assert (inner["role"], inner["trace_id"]) == ("queue", "own")
    assert outer["role"] == "queue" and "trace_id" not in outer
    assert "role" not in outside


def write_lines(directory: Path, count: int, **options: int) -> None:
    """Log some lines of 100 bytes into a rotating file."""
    handler = RotatingFile(directory, **{"bytes_max": 1000, "backups": 0, "days": 0, **options})
    for number in range(count):
        handler.emit(logging.LogRecord("x", logging.INFO, "", 0, f"{number:099d}", None, None))
    handler.close()


def lines_of(paths: list[Path]) -> list[int]:
    return [int(line) for path in paths for line in path.read_text(encoding="utf-8").splitlines()]


def test_a_log_file_is_rotated_by_size_and_loses_no_line(tmp_path: Path) -> None:
    write_lines(tmp_path / "logs", 95)
    backups = sorted((tmp_path / "logs").glob("pixiu-*.log"))
    assert len(backups) == 9
    assert all(path.stat().st_size == 1000 for path in backups)
    assert lines_of([*backups, tmp_path / "logs" / "pixiu.log"]) == list(range(95))


def test_a_log_file_goes_on_after_a_restart(tmp_path: Path) -> None:
    write_lines(tmp_path, 5)
    write_lines(tmp_path, 7)
    (backup,) = tmp_path.glob("pixiu-*.log")
    assert len(lines_of([backup])) == 10
    assert lines_of([tmp_path / "pixiu.log"]) == [5, 6]


def test_only_so_many_backups_are_kept_and_they_are_the_newest(tmp_path: Path) -> None:
    write_lines(tmp_path, 95, backups=3)
    backups = sorted(tmp_path.glob("pixiu-*.log"))
    assert lines_of([*backups, tmp_path / "pixiu.log"]) == list(range(60, 95))


def test_old_backups_are_removed(tmp_path: Path) -> None:
    old, young = tmp_path / "pixiu-20200101T000000.000Z.log", tmp_path / "pixiu-20200102T000000.000Z.log"
    for path, days in ((old, 15), (young, 13)):
        path.touch()
        os.utime(path, (time.time() - days * 86_400,) * 2)
    write_lines(tmp_path, 1, days=14)
    assert not old.exists()
    assert young.exists()


def test_a_directory_as_path_holds_the_log(tmp_path: Path) -> None:
    configure_logging(LogSettings(path=str(tmp_path / "logs"), rotate_bytes=4096, rotate_backups=2))
    for number in range(200):
        log.info("hello", extra={"number": number})
    files = sorted((tmp_path / "logs").iterdir())
    assert len(files) == 3
    assert json.loads((tmp_path / "logs" / "pixiu.log").read_text(encoding="utf-8").splitlines()[-1])["number"] == 199


def test_a_path_that_cannot_be_written_refuses_to_start(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"log\.path"):
        configure_logging(LogSettings(path=str(tmp_path / "file")))


@pytest.mark.parametrize("every, taken", [(0, []), (1, [0, 1, 2, 3, 4, 5, 6]), (3, [0, 3, 6]), (10_000, [0])])
@pytest.mark.feature("QA4")
def test_a_sampler_takes_none_each_or_one_of_many(every: int, taken: list[int]) -> None:
    sampler = Sampler(every)
    assert [number for number in range(7) if sampler.take()] == taken
