"""`python -m examples.demo` is `python -m examples.demo.run`."""

import sys

from examples.demo.run import main

if __name__ == "__main__":
    sys.exit(main())
