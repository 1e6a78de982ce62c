"""Where Spark's Python processes come from: ``python -m pixiu.pipeline.daemon``, which Spark starts and forks.

Spark's own has imported nothing of ours when it forks, so every process would import Arrow, numpy and this package
again, and hold them for itself. And Spark lets a process collect garbage after each task: going over all those modules
took 50 ms, as much as a small task. Here they are imported once, before the fork, and are nobody's garbage.
"""

from __future__ import annotations

import gc

from pyspark import daemon

import pixiu.pipeline.books.task
import pixiu.pipeline.lake.intake
import pixiu.pipeline.source.datasource  # noqa: F401 - imported so that those who are forked have it

__all__ = ["main"]


def main() -> None:
    """Wait for Spark's word, and fork."""
    gc.collect()
    gc.freeze()
    daemon.manager()


if __name__ == "__main__":
    main()
