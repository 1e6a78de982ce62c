"""The command ``pixiu`` as a file, for ``spark-submit``: docs/pipeline.md says how.

``src/pixiu/__main__.py`` would not do: a program's own folder is searched first, and Pixiu's has a package ``queue``.
"""

from pixiu.cli.main import main

if __name__ == "__main__":
    main()
