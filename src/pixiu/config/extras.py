"""How to install packages that only some settings need. Pixiu itself is on no package index: it comes from a clone."""

import re
import sys
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

__all__ = ["how_to_install", "how_to_install_package"]


def how_to_install(extra: str = "", *, root: Path = Path(__file__).parents[3], prefix: Path = Path(sys.prefix)) -> str:
    """The command that installs an extra of pyproject.toml, or without one the packages that are always needed.

    It installs into the environment that runs: ``make setup`` for the one of a clone, and its own pip elsewhere.
    """
    if prefix == root / ".venv":
        return "make setup"
    what = "--no-deps --require-hashes -r requirements/pipeline.txt" if extra == "pipeline" else "."
    if extra and extra != "pipeline":
        what = f"'.[{extra}]'"
    return f"{prefix / 'bin' / 'pip'} install {what} (in a clone of Pixiu)"


def how_to_install_package(package: str) -> str:
    """The same for a package that an import asked for."""
    try:
        needs = requires("pixiu") or []
    except PackageNotFoundError:
        needs = []
    wanted = package.replace("_", "-").lower()
    for need in needs:
        found = re.match(r"([\w.-]+).*extra == ['\"](\w+)", need)
        if found is not None and found[1].replace("_", "-").lower() == wanted:
            return how_to_install(found[2])
    return how_to_install()
