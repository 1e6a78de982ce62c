"""`make compiled`: the hot modules as extension modules, by mypyc and the C compiler that is here.

The sources stay as they are and run everywhere; what is built lies in ``src/pixiu/.compiled`` and is used while it fits
(``pixiu.compiled``). A copy of the package is compiled, not the package: mypyc writes beside what it reads. In the copy

- a dataclass has no ``slots=True``, which would make another class of it, and
- ``OPEN`` classes say that classes that are not compiled inherit from them.
"""

import argparse
import ast
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterable
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from pixiu.compiled import FOLDER, MANIFEST, digest

SOURCE = Path(__file__).resolve().parents[1] / "src"
GROUP = "pixiu"
"""The library that holds the code of all modules; each module's own file only points into it."""

HOT = (
    "pixiu.backends.embedded.blocks",
    "pixiu.backends.embedded.bodies",
    "pixiu.backends.embedded.contacts",
    "pixiu.backends.embedded.desk",
    "pixiu.backends.embedded.desks",
    "pixiu.backends.embedded.inboxes",
    "pixiu.backends.embedded.keyvalue",
    "pixiu.backends.embedded.overlay",
    "pixiu.backends.embedded.sendkeys",
    "pixiu.backends.embedded.timelines",
    "pixiu.backends.embedded.unread",
    "pixiu.im.content",
    "pixiu.im.directory",
    "pixiu.im.draft",
    "pixiu.im.messages",
    "pixiu.machines.delivery.delivery",
    "pixiu.machines.ledger",
    "pixiu.model.body",
    "pixiu.model.ids",
    "pixiu.model.metric",
    "pixiu.model.plain_record",
    "pixiu.node.messaging",
    "pixiu.queue.appends",
    "pixiu.queue.batch",
    "pixiu.queue.keys",
    "pixiu.queue.log",
    "pixiu.queue.messages",
    "pixiu.queue.operations",
    "pixiu.queue.tail",
    "pixiu.roles.carrier.appliers",
    "pixiu.roles.carrier.apply_inboxes",
    "pixiu.roles.carrier.apply_rosters",
    "pixiu.roles.carrier.apply_timelines",
    "pixiu.roles.carrier.arrivals",
    "pixiu.roles.carrier.consume",
    "pixiu.roles.proxy.appends",
    "pixiu.roles.proxy.service",
    "pixiu.roles.relay.deliveries",
    "pixiu.roles.relay.relay",
    "pixiu.roles.relay.timers",
)
"""By their share of the processor's time in `make bench-core`; all that call each other on a message's way."""

OPEN = {
    "pixiu.backends.embedded.desks": ("DeskInboxes",),
    "pixiu.machines.delivery.delivery": ("Delivery",),
}

_SETUP = """
from mypyc.build import mypycify
from setuptools import setup
options = ["--config-file", "mypy.ini"]
setup(
    name="pixiu-compiled",
    packages=[],
    ext_modules=mypycify(options + {files!r}, opt_level={level!r}, debug_level="0", group_name={group!r}),
)
"""

_MYPY = """[mypy]
strict = True
explicit_package_bases = True
namespace_packages = True
python_version = {python}

[mypy-pixiu.model.pixiu_pb2,pixiu.model.frames_pb2,pixiu.model.gomsg.*]
ignore_errors = True

[mypy-kazoo.*,grpc.*,grpc_health.*,cassandra.*,confluent_kafka.*,pyarrow.*]
ignore_missing_imports = True
"""


def main() -> int:
    """Build, or say what is missing. Exit 0 when the build is in its place."""
    parser = argparse.ArgumentParser(prog="python -m tools.compile", description="Compile the hot modules.")
    parser.add_argument("--level", default="2", choices=["0", "1", "2", "3"], help="how hard the C compiler tries")
    parser.add_argument("--remove", action="store_true", help="remove what was built")
    arguments = parser.parse_args()
    place = SOURCE / "pixiu" / FOLDER
    if arguments.remove:
        shutil.rmtree(place, ignore_errors=True)
        return 0
    missing = what_is_missing()
    if missing:
        print(f"cannot compile here: {missing}. Pixiu runs as well without, from its sources.", file=sys.stderr)
        return 1
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="pixiu-compile-") as folder:
        build(SOURCE, Path(folder), place, HOT, arguments.level)
    print(f"{len(HOT)} modules compiled in {time.monotonic() - began:.0f} s; PIXIU_COMPILED=0 runs the sources")
    return 0


def what_is_missing() -> str:
    """Of what a build needs; empty if nothing."""
    if shutil.which(os.environ.get("CC", "cc")) is None:
        return "there is no C compiler"
    if not (Path(sysconfig.get_paths()["include"]) / "Python.h").exists():
        return "Python's headers are not installed"
    try:
        import mypyc  # noqa: F401 - only asked whether it is there
    except ImportError:
        return "mypyc is not installed (it comes with mypy)"
    return ""


def build(source: Path, work: Path, place: Path, modules: Iterable[str], level: str) -> None:
    """Compile modules of a package below ``source`` in a copy, and put what comes out into its place, at once."""
    names = sorted(modules)
    package = work / "pixiu"
    shutil.copytree(source / "pixiu", package, ignore=shutil.ignore_patterns("__pycache__", FOLDER))
    # Of the copy, before it is adapted: a source that changes while the compiler runs does not fit what comes out.
    sources = {str(path): _print_of(work / path) for path in closure(work, names)}
    for name in names:
        path = work / _path(name)
        path.write_text(adapted(path.read_text(), OPEN.get(name, ())))
    (work / "mypy.ini").write_text(_MYPY.format(python=f"{sys.version_info[0]}.{sys.version_info[1]}"))
    files = [str(_path(name)) for name in names]
    (work / "setup.py").write_text(_SETUP.format(files=files, level=level, group=GROUP))
    environment = {**os.environ, "PYTHONPATH": str(work), "PIXIU_COMPILED": "0"}
    subprocess.run([sys.executable, "setup.py", "-q", "build_ext", "--inplace"], cwd=work, env=environment, check=True)
    suffix = EXTENSION_SUFFIXES[0]
    built = {name: str(_path(name).with_suffix("")) + suffix for name in names}
    built[f"{GROUP}__mypyc"] = f"{GROUP}__mypyc{suffix}"
    fresh = place.with_name(f"{FOLDER}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    for file in built.values():
        (fresh / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(work / file, fresh / file)
    manifest = {"abi": suffix, "modules": built, "sources": sources}
    (fresh / MANIFEST).write_text(json.dumps(manifest, indent=1))
    shutil.rmtree(place, ignore_errors=True)
    fresh.rename(place)


def adapted(text: str, open_classes: Iterable[str]) -> str:
    """The source as it is compiled."""
    text = re.sub(r"(@dataclass\([^)\n]*), slots=True\)", r"\1)", text)
    for name in open_classes:
        mark = "@mypyc_attr(allow_interpreted_subclasses=True)\n"
        text, count = re.subn(rf"^class {name}\b", f"{mark}class {name}", text, flags=re.MULTILINE)
        if count != 1:
            raise ValueError(f"there is no class {name}")
    if open_classes:
        # Read by mypyc, never run: what runs needs no package more.
        line = (
            "from typing import TYPE_CHECKING as _CHECKING\nif _CHECKING:\n    from mypy_extensions import mypyc_attr\n"
        )
        at = _first_statement(text)
        text = text[:at] + line + text[at:]
    return text


def _first_statement(text: str) -> int:
    """Where the first statement begins that is neither the docstring nor from the future."""
    for node in ast.parse(text).body:
        is_docstring = isinstance(node, ast.Expr)
        if is_docstring or (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
            continue
        return sum(map(len, text.splitlines(keepends=True)[: node.lineno - 1]))
    return len(text)


def closure(source: Path, modules: Iterable[str]) -> list[Path]:
    """The files of modules, and of all modules of the package that they import, relative to ``source``."""
    found: dict[Path, None] = {}
    waiting = list(modules)
    while waiting:
        path = _file(source, waiting.pop())
        if path is None or path in found:
            continue
        found[path] = None
        waiting += [".".join(parent.parts) for parent in path.parents if (source / parent / "__init__.py").exists()]
        for node in ast.walk(ast.parse((source / path).read_text())):
            if isinstance(node, ast.Import):
                waiting += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                waiting += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return sorted(found)


def _file(source: Path, module: str) -> Path | None:
    path = _path(module)
    for candidate in (path, path.with_suffix("") / "__init__.py"):
        if (source / candidate).is_file():
            return candidate
    return None


def _path(module: str) -> Path:
    return Path(*module.split(".")).with_suffix(".py")


def _print_of(path: Path) -> tuple[int, int, str]:
    now = path.stat()
    return now.st_size, now.st_mtime_ns, digest(path)


if __name__ == "__main__":
    sys.exit(main())
