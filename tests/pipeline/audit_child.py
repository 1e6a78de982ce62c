"""An audit that kills itself at a named point: ``python -m tests.pipeline.audit_child DATA POINT``.

``task-N`` is before the Nth task: those before it have written their files. What waits in the stores is not asked for.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

from pixiu.pipeline.books import run as books_run
from pixiu.pipeline.runner import Pipeline
from tests.pipeline.test_books import PART_ROWS, Session, no_cut


def main() -> None:
    data, point = Path(sys.argv[1]), sys.argv[2]
    books_run.ROWS_PER_PART = PART_ROWS

    def reached(name: str) -> None:
        if name == point:
            os.kill(os.getpid(), signal.SIGKILL)

    session: Any = Session(lambda number: reached(f"task-{number}"))
    with Pipeline(data, lambda: session, take_cut=no_cut, warn=print, reached=reached) as pipeline:
        pipeline.run(["audit"])


if __name__ == "__main__":
    main()
