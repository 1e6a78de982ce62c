"""One run of the indexing, with small steps.

As a program, one that kills itself at a named point: ``python -m tests.pipeline.search_child DATA POINT TIMES``.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

from pixiu.pipeline.lake.place import Place
from pixiu.pipeline.lake.schema import LAKE_SCHEMAS
from pixiu.pipeline.lake.table import LakeTable
from pixiu.pipeline.search.embedded import EmbeddedIndex
from pixiu.pipeline.search.feed import SearchFeed

__all__ = ["feed", "table_of"]

STEP = 10


def table_of(data: Path, name: str) -> LakeTable:
    return LakeTable(Place(data).lake, name, LAKE_SCHEMAS[name])


def feed(data: Path, **options: Any) -> int:
    sink = EmbeddedIndex(data, reached=options.get("reached", lambda point: None))
    try:
        messages, changes = table_of(data, "messages"), table_of(data, "changes")
        return SearchFeed(Place(data).lake, messages, changes, sink, step_events=STEP, **options).run()
    finally:
        sink.close()


def main() -> None:
    data, point, times = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    count = 0

    def reached(name: str) -> None:
        nonlocal count
        count += name == point
        if name == point and count == times:
            os.kill(os.getpid(), signal.SIGKILL)

    feed(data, reached=reached)


if __name__ == "__main__":
    main()
