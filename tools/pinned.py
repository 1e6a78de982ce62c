"""Print the pinned and hashed requirements of Pixiu's extras: what a server needs beside ``requirements/base.txt``.

``requirements/dev.txt`` pins everything; an image wants of it the extras that ``pyproject.toml`` names, with what they
need in turn, and none of the tools. Which package is there for whose sake stands in the file, behind "via"::

    python3 tools/pinned.py >extras.txt
    pip install --require-hashes -r requirements/base.txt -r extras.txt

Plain Python, without a package: it runs while there is none.
"""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LEFT_OUT = frozenset({"pipeline"})
"""Extras with a file of requirements of their own."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def entries(text: str) -> dict[str, str]:
    """The entries of a file of requirements, by the names of their packages."""
    found = {}
    for entry in re.split(r"\n(?=[A-Za-z0-9])", text):
        name = NAME.match(entry)
        if name:
            found[normal(name[0])] = entry.rstrip()
    return found


def normal(name: str) -> str:
    """A name as all its spellings have it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def wanted_by(entry: str) -> set[str]:
    """For whose sake an entry is there."""
    comment = entry.partition("# via")[2]
    return {normal(name) for name in re.findall(r"(?m)(?:^|#)\s+([A-Za-z0-9][\w.-]*)", "# " + comment.strip(" #\n"))}


def extras(root: Path = ROOT) -> dict[str, str]:
    """Entries of the extras and all that they need, without what is in ``base.txt``."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = {
        normal(NAME.match(each)[0])  # type: ignore[index]
        for extra, packages in project["optional-dependencies"].items()
        if extra not in LEFT_OUT
        for each in packages
    }
    pinned = entries((root / "requirements" / "dev.txt").read_text(encoding="utf-8"))
    there = entries((root / "requirements" / "base.txt").read_text(encoding="utf-8"))
    missing = named - pinned.keys()
    if missing:
        raise SystemExit(f"requirements/dev.txt does not pin {', '.join(sorted(missing))}")
    chosen = set(named)
    while True:
        more = {name for name, entry in pinned.items() if wanted_by(entry) & chosen} - chosen
        if not more:
            return {name: pinned[name] for name in sorted(chosen - there.keys())}
        chosen |= more


if __name__ == "__main__":
    print("\n".join(extras().values()))
