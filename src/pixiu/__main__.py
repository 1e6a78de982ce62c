"""Let ``python -m pixiu`` be the command ``pixiu``."""

from pixiu.cli.main import main

if __name__ == "__main__":
    main()
