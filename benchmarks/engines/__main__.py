"""`python -m benchmarks.engines` is `python -m benchmarks.engines.run`."""

import sys

from benchmarks.engines.run import main

if __name__ == "__main__":
    sys.exit(main())
