"""Turn log records into lines: for people on a terminal, as JSON elsewhere.

A line of Pixiu's log is an event name and fields, not prose::

    log.info("segment rolled", extra={"first_event_id": 17, "bytes": 1048576})

    02:34:05.123 info     queue.journal  segment rolled  first_event_id=17 bytes=1048576
    {"time":"2026-03-01T02:34:05.123Z","level":"info","logger":"pixiu.queue.storage.journal","event":"…",…}

Fields that every line of a task should carry (role, node, trace id) are bound once with ``bind``. Lines about
single messages go through a ``Sampler``, so that a busy queue does not drown in its own log.
"""

import contextlib
import datetime
import json
import logging
import sys
import time
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import TextIO

from pixiu.config import LogSettings
from pixiu.model.errors import ConfigError
from pixiu.model.sampler import Sampler

__all__ = ["HumanFormatter", "JsonFormatter", "OpenStream", "RotatingFile", "Sampler", "bind", "configure_logging"]

FILE_NAME = "pixiu.log"
DAY_SECONDS = 86_400

# What logging itself puts on a record; everything else came in through `extra`.
_STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

_COLOURS = {"debug": "\x1b[2m", "warning": "\x1b[33m", "error": "\x1b[31m", "critical": "\x1b[31;1m"}
_RESET = "\x1b[0m"

_bound: ContextVar[Mapping[str, object]] = ContextVar("pixiu_log_fields", default={})  # noqa: B039 - never mutated


@contextlib.contextmanager
def bind(**fields: object) -> Iterator[None]:
    """Add fields to every line that is logged inside the block, also by tasks started in it."""
    token = _bound.set({**_bound.get(), **fields})
    try:
        yield
    finally:
        _bound.reset(token)


class HumanFormatter(logging.Formatter):
    """One line per event, aligned, with colour where the terminal has it."""

    def __init__(self, *, colour: bool) -> None:
        super().__init__()
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        """Time, level, logger, event, then ``name=value`` for each field."""
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        level = record.levelname.lower()
        logger = record.name.removeprefix("pixiu.")
        fields = "".join(f" {name}={_short(value)}" for name, value in _fields(record).items())
        event = record.getMessage() + (f" {fields}" if fields else "")
        line = f"{clock}.{int(record.msecs):03d} {level:<8} {logger}  {event}"
        if self._colour and level in _COLOURS:
            line = f"{_COLOURS[level]}{line}{_RESET}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """The fields of the event beside time, level, logger and event."""
        moment = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        line: dict[str, object] = {
            "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        for name, value in _fields(record).items():
            line[f"{name}_" if name in line else name] = value
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, separators=(",", ":"), default=str)


class OpenStream(logging.StreamHandler[TextIO]):
    """Lines for a stream. If whoever read them has gone, nobody is left to be told of each line that is lost."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - its name in logging
        """Say what was wrong with a line, unless there is no reader."""
        if not isinstance(sys.exc_info()[1], BrokenPipeError):
            super().handleError(record)


class RotatingFile(logging.FileHandler):
    """A log file that starts anew past a size, and keeps its predecessors for a number and an age.

    A predecessor is named after the moment it was closed: ``pixiu-20260301T023405.123Z.log``.
    """

    def __init__(self, directory: Path, *, bytes_max: int, backups: int, days: int) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._bytes_max = bytes_max
        self._backups = backups
        self._last = ""
        """The newest backup's name, without its ending."""
        self._days = days
        super().__init__(directory / FILE_NAME, encoding="utf-8")
        self._size = Path(self.baseFilename).stat().st_size
        self._remove_old()

    def emit(self, record: logging.LogRecord) -> None:
        """Write the line, after a rotation where it would pass the size."""
        try:
            line = self.format(record) + self.terminator
            size = len(line.encode("utf-8", "backslashreplace"))
            if self._size and self._size + size > self._bytes_max:
                self._rotate()
            if self.stream is None:
                self.stream = self._open()
            self.stream.write(line)
            self.flush()
            self._size += size
        except Exception:  # noqa: BLE001 - a full disk must not stop the server that logs
            self.handleError(record)

    def _rotate(self) -> None:
        if self.stream is not None:
            self.stream.close()
        now = datetime.datetime.now(datetime.UTC)
        stamp = f"{now:%Y%m%dT%H%M%S}.{now.microsecond // 1000:03d}Z"
        backup = self._directory / f"pixiu-{stamp}.log"
        # Several rotations in one millisecond, or a clock that was set back: a newer backup sorts behind an older one,
        # also behind one that is gone already.
        if backup.stem <= self._last.rstrip("x"):
            backup = backup.with_name(self._last + "x.log")
        while backup.exists():
            backup = backup.with_name(backup.stem + "x.log")
        self._last = backup.stem
        Path(self.baseFilename).rename(backup)
        self.stream = self._open()
        self._size = 0
        self._remove_old()

    def _remove_old(self) -> None:
        """Remove what is too many or too old, oldest first."""
        backups = sorted(self._directory.glob("pixiu-*.log"))
        surplus = backups[: -self._backups] if self._backups else []
        oldest = time.time() - self._days * DAY_SECONDS
        for path in backups:
            with contextlib.suppress(FileNotFoundError):
                if path in surplus or (self._days and path.stat().st_mtime < oldest):
                    path.unlink()


def configure_logging(settings: LogSettings) -> logging.Handler:
    """Send everything that Pixiu and its libraries log where the settings say. Return the handler."""
    handler, stream = _open_handler(settings)
    terminal = stream is not None and stream.isatty()
    human = settings.format == "human" or (settings.format == "auto" and terminal)
    handler.setFormatter(HumanFormatter(colour=terminal) if human else JsonFormatter())
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
        old.close()
    root.addHandler(handler)
    root.setLevel(settings.level.upper())
    logging.getLogger("asyncio").setLevel(max(logging.WARNING, root.level))
    return handler


def _open_handler(settings: LogSettings) -> tuple[logging.Handler, TextIO | None]:
    """A handler for a stream or a directory; the stream where there is one."""
    if settings.path in ("stderr", "stdout"):
        stream = sys.stderr if settings.path == "stderr" else sys.stdout
        return OpenStream(stream), stream
    try:
        handler = RotatingFile(
            Path(settings.path),
            bytes_max=settings.rotate_bytes,
            backups=settings.rotate_backups,
            days=settings.rotate_days,
        )
    except OSError as error:
        raise ConfigError(f"log.path: cannot write to {settings.path}: {error.strerror}") from error
    return handler, None


def _fields(record: logging.LogRecord) -> dict[str, object]:
    """What was bound, then what came with the event itself."""
    extra = {name: value for name, value in vars(record).items() if name not in _STANDARD_FIELDS}
    return {**_bound.get(), **extra}


def _short(value: object) -> str:
    """A value for people: bare where that is clear, quoted where it has spaces or is empty."""
    text = str(value)
    return text if text and not any(c.isspace() or c in "\"'=" for c in text) else json.dumps(text, ensure_ascii=False)
