"""`python -m benchmarks.queue` is `python -m benchmarks.queue.run`."""

import sys

from benchmarks.queue.run import main

if __name__ == "__main__":
    sys.exit(main())
