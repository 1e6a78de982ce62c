"""`python -m benchmarks.messaging` is `python -m benchmarks.messaging.run`."""

import sys

from benchmarks.messaging.run import main

if __name__ == "__main__":
    sys.exit(main())
