"""`python -m benchmarks.ab` is `python -m benchmarks.ab.run`."""

import sys

from benchmarks.ab.run import main

if __name__ == "__main__":
    sys.exit(main())
