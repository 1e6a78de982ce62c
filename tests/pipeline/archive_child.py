"""A pipeline that kills itself at a named point: ``python -m tests.pipeline.archive_child DATA POINT TIMES``."""

import os
import signal
import sys
from pathlib import Path

from pixiu.pipeline.runner import Pipeline
from pixiu.pipeline.session import open_session


def main() -> None:
    data, point, times = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    count = 0

    def reached(name: str) -> None:
        nonlocal count
        count += name == point
        if name == point and count == times:
            os.kill(os.getpid(), signal.SIGKILL)

    work = data / "pipeline" / "work"
    with Pipeline(
        data,
        lambda: open_session(work, spark_url="local[2]", partitions=2, memory="1g", for_short_runs=True),
        reached=reached,
        rows_per_trigger=40,
    ) as pipeline:
        pipeline.run(["archive"])
        pipeline.compact()
        pipeline.stop()


if __name__ == "__main__":
    main()
