"""Where the pipeline keeps what it makes: one folder beside the log.

::

    pixiu-data/pipeline/
    ├── LOCK            the pipeline that runs now
    ├── log             which log the tables are of, where that is in Kafka
    ├── lake/           one Delta table per folder
    ├── checkpoints/    what Spark remembers of each stream; may be lost, is then said and made again
    ├── index/          indexes of segments that had none that answered; may be removed at any time
    ├── books/          what the next audit needs of the last; may be removed when nothing runs, and is made again
    └── work/           Spark's scratch files; may be removed when nothing runs
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pixiu.model.errors import Conflict

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Place"]


@dataclass(frozen=True, slots=True)
class Place:
    """The pipeline's folder of a data directory."""

    data: Path

    @property
    def folder(self) -> Path:
        """All of it."""
        return self.data / "pipeline"

    @property
    def lake(self) -> Path:
        """The tables."""
        return self.folder / "lake"

    @property
    def checkpoints(self) -> Path:
        """Spark's memory."""
        return self.folder / "checkpoints"

    @property
    def books(self) -> Path:
        """What the audit hands on."""
        return self.folder / "books"

    @property
    def index(self) -> Path:
        """Indexes of our own."""
        return self.folder / "index"

    @property
    def work(self) -> Path:
        """Scratch files."""
        return self.folder / "work"

    def bind(self, identity: str) -> None:
        """Note which log the tables are of; empty is the data directory's own. Raises ``Conflict`` for another one."""
        path = self.folder / "log"
        noted = path.read_text(encoding="utf-8").strip() if path.exists() else ""
        if noted == identity:
            return
        if noted or self.lake.is_dir():
            of = noted or "the node's own"
            raise Conflict(
                f"the tables in {self.lake} are of another log ({of}), whose events have other numbers: move "
                f"{self.folder} away, and they are made again"
            )
        path.write_text(identity + "\n", encoding="utf-8")
