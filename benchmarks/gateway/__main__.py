"""`python -m benchmarks.gateway` is `python -m benchmarks.gateway.run`."""

import sys

from benchmarks.gateway.run import main

if __name__ == "__main__":
    sys.exit(main())
