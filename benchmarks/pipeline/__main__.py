"""`python -m benchmarks.pipeline` is `python -m benchmarks.pipeline.run`."""

import sys

from benchmarks.pipeline.run import main

if __name__ == "__main__":
    sys.exit(main())
