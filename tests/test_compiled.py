"""Compiled modules are used while they fit their sources, and never a moment longer."""

import json
import os
import shutil
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from pixiu import compiled
from pixiu.compiled import FOLDER, MANIFEST, look
from tools.compile import HOT, OPEN, SOURCE, adapted, build, closure, what_is_missing

ABI = EXTENSION_SUFFIXES[0]


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package of two modules, and a build of one of them that fits."""
    package = tmp_path / "pixiu"
    (package / FOLDER).mkdir(parents=True)
    sources = {}
    for name, text in (("hot.py", "from pixiu.limits import MAX\n"), ("limits.py", "MAX = 1\n")):
        path = package / name
        path.write_text(text)
        stat = path.stat()
        sources[f"pixiu/{name}"] = [stat.st_size, stat.st_mtime_ns, compiled.digest(path)]
    modules = {"pixiu.hot": f"pixiu/hot{ABI}", "pixiu__mypyc": f"pixiu__mypyc{ABI}"}
    manifest = {"abi": ABI, "modules": modules, "sources": sources}
    (package / FOLDER / MANIFEST).write_text(json.dumps(manifest))
    return package


def test_a_build_that_fits_is_used(package: Path) -> None:
    found, state = look(package, ABI, "")
    assert found is not None
    assert state == (True, "1 modules", "")
    spec = found.find_spec("pixiu.hot", None)
    assert spec is not None
    assert spec.origin == str(package / FOLDER / f"pixiu/hot{ABI}")
    assert found.find_spec("pixiu.limits", None) is None


def test_nothing_is_built(tmp_path: Path) -> None:
    assert look(tmp_path, ABI, "") == (None, compiled.NOT_BUILT)


@pytest.mark.parametrize("name", ["hot.py", "limits.py"])
def test_a_source_that_was_edited_runs_itself(package: Path, name: str) -> None:
    """Also one that is not compiled: its constants are compiled into those that are."""
    path = package / name
    path.write_text(path.read_text() + "# more\n")
    found, state = look(package, ABI, "")
    assert found is None
    assert not state.is_used
    assert f"older than pixiu/{name}" in state.text
    assert "make compiled" in state.advice


def test_an_edit_that_keeps_the_size_is_seen(package: Path) -> None:
    path = package / "limits.py"
    before = path.stat().st_mtime_ns
    path.write_text("MAX = 2\n")
    os.utime(path, ns=(before + 1, before + 1))
    assert look(package, ABI, "")[0] is None


def test_a_source_that_is_gone_ends_the_build(package: Path) -> None:
    (package / "limits.py").unlink()
    assert look(package, ABI, "")[0] is None


def test_a_copy_with_other_times_still_fits(package: Path) -> None:
    os.utime(package / "hot.py", ns=(1, 1))
    assert look(package, ABI, "")[0] is not None


def test_another_python_does_not_load_it(package: Path) -> None:
    found, state = look(package, ".cpython-399-x86_64-linux-gnu.so", "")
    assert found is None
    assert "not .cpython-399" in state.text


def test_it_can_be_switched_off(package: Path) -> None:
    found, state = look(package, ABI, "0")
    assert found is None
    assert "PIXIU_COMPILED is 0" in state.text


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"abi": 1}', '{"abi": "ABI", "sources": {"a": 1}}'])
def test_a_manifest_that_is_none_is_not_heeded(package: Path, text: str) -> None:
    (package / FOLDER / MANIFEST).write_text(text.replace("ABI", ABI))
    found, state = look(package, ABI, "")
    assert found is None
    assert state.advice


def test_the_list_names_modules_that_are_there() -> None:
    assert len(set(HOT)) == len(HOT)
    files = closure(SOURCE, HOT)
    for name in HOT:
        assert Path(*name.split(".")).with_suffix(".py") in files
    assert Path("pixiu/__init__.py") in files
    assert Path("pixiu/model/errors.py") in files, "imported by hot modules"
    assert Path("pixiu/cli/main.py") not in files


TEXT = '''"""Doc."""

from __future__ import annotations

import os


@dataclass(frozen=True, slots=True)
class A:
    x: int


class B: ...
'''


def test_the_copy_differs_only_where_it_must() -> None:
    changed = adapted(TEXT, ("B",))
    assert "slots" not in changed
    assert "@mypyc_attr(allow_interpreted_subclasses=True)\nclass B:" in changed
    assert changed.index("__future__") < changed.index("mypy_extensions") < changed.index("import os")
    assert adapted("class A: ...\n", ()) == "class A: ...\n"
    with pytest.raises(ValueError, match="no class C"):
        adapted(TEXT, ("C",))
    for name, classes in OPEN.items():
        adapted((SOURCE / Path(*name.split("."))).with_suffix(".py").read_text(), classes)


@pytest.mark.long
@pytest.mark.skipif(bool(what_is_missing()), reason="needs a C compiler and Python's headers")
def test_a_real_build_runs_and_ends_with_an_edit(tmp_path: Path) -> None:
    """One module, in a copy of the package: compiled at first, and from its source after an edit."""
    source = tmp_path / "src"
    shutil.copytree(SOURCE / "pixiu", source / "pixiu", ignore=shutil.ignore_patterns("__pycache__", FOLDER))
    place = source / "pixiu" / FOLDER
    (tmp_path / "work").mkdir()
    build(source, tmp_path / "work", place, ["pixiu.model.ids"], "0")

    def where() -> str:
        environment = {**os.environ, "PYTHONPATH": str(source)}
        code = "import pixiu.model.ids as m, pixiu.compiled as c; print(m.__file__, c.state().is_used)"
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        return done.stdout

    assert where() == f"{place}/pixiu/model/ids{ABI} True\n"
    with (source / "pixiu" / "model" / "ids.py").open("a") as file:
        file.write("# more\n")
    assert where() == f"{source}/pixiu/model/ids.py False\n"
