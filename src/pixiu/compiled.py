"""Compiled modules: the hot ones as extension modules, where `make compiled` has built them, and only while they fit.

The build lies in ``.compiled`` beside this file, apart from the sources, with a manifest of every source that it was
made from: the hot modules, and all that they import, since constants and types of those are compiled in too. If one of
them is not what it was, or Python is another one, nothing of the build is used: the sources run, as they do everywhere
else, and ``state()`` says why. All or nothing, because compiled modules call each other without asking Python.

``PIXIU_COMPILED=0`` runs the sources whatever there is.
"""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from importlib.abc import MetaPathFinder
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

__all__ = ["FOLDER", "MANIFEST", "VARIABLE", "Build", "State", "digest", "look", "state", "use"]

FOLDER = ".compiled"
MANIFEST = "manifest.json"
VARIABLE = "PIXIU_COMPILED"


class State(NamedTuple):
    """Whether compiled modules are used, and if not, why."""

    is_used: bool
    text: str
    advice: str = ""


NOT_BUILT = State(False, "none: the sources run")
_state = NOT_BUILT


class Build(MetaPathFinder):
    """Finds the compiled modules before Python finds their sources."""

    def __init__(self, folder: Path, modules: Mapping[str, str]) -> None:
        self._files = {name: str(folder / file) for name, file in modules.items()}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Where a module is, if it is one of ours."""
        file = self._files.get(fullname)
        if file is None:
            return None
        return spec_from_file_location(fullname, file, loader=ExtensionFileLoader(fullname, file))


def state() -> State:
    """What this process runs."""
    return _state


def use(package: str) -> None:
    """Use the build beside a package, if there is one that fits. Before any hot module is imported."""
    global _state
    build, _state = look(Path(package), EXTENSION_SUFFIXES[0], os.environ.get(VARIABLE, ""))  # noqa: TID251 - before settings can be read
    if build is not None:
        sys.meta_path.insert(0, build)


def look(package: Path, abi: str, wanted: str) -> tuple[Build | None, State]:
    """The build beside a package, if it may be used, and what to say of it."""
    folder = package / FOLDER
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
    except FileNotFoundError:
        return None, NOT_BUILT
    except (OSError, ValueError) as error:
        return None, State(False, f"not readable ({error}): the sources run", "make compiled builds it again")
    if wanted == "0":
        return None, State(False, f"there, but {VARIABLE} is 0: the sources run")
    try:
        if manifest["abi"] != abi:
            return None, State(False, f"for {manifest['abi']}, not {abi}: the sources run", "make compiled")
        changed = _changed(package.parent, manifest["sources"])
        modules: dict[str, str] = manifest["modules"]
        if changed is not None:
            return None, State(False, f"older than {changed}: the sources run", "make compiled builds it again")
        return Build(folder, modules), State(True, f"{len(modules) - 1} modules")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return None, State(False, f"with a manifest of another form ({error!r}): the sources run", "make compiled")


def _changed(root: Path, sources: Mapping[str, Sequence[int | str]]) -> str | None:
    """The first source that is not what was compiled.

    Size and time of change tell most of it, as they tell Python whether a ``.pyc`` fits. A file that was only copied or
    checked out again is read, and fits if its bytes do.
    """
    for name, (size, changed_ns, hashed) in sources.items():
        path = root / name
        try:
            now = path.stat()
            if now.st_size != size or (now.st_mtime_ns != changed_ns and digest(path) != hashed):
                return name
        except OSError:
            return name
    return None


def digest(path: Path) -> str:
    """Of a file's bytes."""
    return blake2b(path.read_bytes(), digest_size=16).hexdigest()
