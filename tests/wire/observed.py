"""A server whose flushes a test can count, hold back and fail, and whose clock it can step.

System calls cannot be watched, nor the machine's clock set, without privileges. So the server process gets a
module that stands between it and `os.fsync` and `time.time_ns` (`observer/sitecustomize.py`). Everything else is
the real thing.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers import QueueProcess
from tests.wire.fixtures import environment

OBSERVER = Path(__file__).parent / "observer"


class ObservedQueue(QueueProcess):
    """A queue process with an observer inside."""

    def __init__(self, folder: Path, *args: str, **settings: object) -> None:
        super().__init__(folder / "data", args=args, env=environment(**settings))
        self.control = folder / "control"
        self.control.mkdir(parents=True)
        self.step_clock(0)
        search = [str(OBSERVER), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.env |= {"PYTHONPATH": os.pathsep.join(search), "OBSERVER_FOLDER": str(self.control)}

    def step_clock(self, offset_ms: int) -> None:
        """Let the server's wall clock differ from the machine's by so much from now on."""
        with (self.control / "clock").open("r+b" if (self.control / "clock").exists() else "wb") as file:
            file.write((offset_ms * 1_000_000).to_bytes(8, "little", signed=True))

    def flushes(self) -> list[str]:
        """Paths in the data directory in the order in which they were flushed; "everything" is a sync."""
        try:
            lines = (self.control / "flushes").read_text().splitlines()
        except FileNotFoundError:
            return []
        return [line.removeprefix(f"{self.data}/") for line in lines]

    def journal_flushes(self) -> int:
        """How often a journal file was flushed."""
        return sum(path.startswith("queue/journal/") and path.endswith(".log") for path in self.flushes())

    @contextmanager
    def held(self) -> Iterator[None]:
        """No flush returns within this block."""
        (self.control / "hold").touch()
        try:
            yield
        finally:
            (self.control / "hold").unlink()

    @contextmanager
    def failing(self) -> Iterator[None]:
        """Every flush fails within this block."""
        (self.control / "fail").touch()
        try:
            yield
        finally:
            (self.control / "fail").unlink()
