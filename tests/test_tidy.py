"""House rules that no linter knows: sizes, docstrings, and words that are retired."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted(path for folder in ("src", "tools") for path in (ROOT / folder).rglob("*.py"))
ALL = sorted([*SOURCES, *(ROOT / "tests").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")])

FUNCTION_LINES_MAX = 70
MODULE_LINES_MAX = 500

RETIRED = {
    "master": "leader",
    "slave": "follower",
    "binlog": "journal",
    "worker": "writer",
    "boat": "gateway",
    "station": "proxy or relay",
    "manager": "a noun that you can use in a sentence",
}
RETIRED_FILES = {*RETIRED, "utils", "util", "common", "misc", "lib", "core", "helpers"}


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def complaints(path: Path) -> Iterator[str]:
    """Everything that is wrong with one file."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    lines = text.count("\n")
    if lines > MODULE_LINES_MAX:
        yield f"{name_of(path)}: {lines} lines; at most {MODULE_LINES_MAX}, look for the seam"
    if text.strip() and ast.get_docstring(tree) is None:
        yield f"{name_of(path)}: no docstring"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES_MAX:
                yield f"{name_of(path)}:{node.lineno}: {node.name} has {length} lines"
        for identifier in identifiers(node):
            for word in re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", identifier).lower()):
                replacement = RETIRED.get(word) or RETIRED.get(word.removesuffix("s"))
                if replacement:
                    line = getattr(node, "lineno", 1)
                    yield f"{name_of(path)}:{line}: '{identifier}' is retired; say '{replacement}'"


def identifiers(node: ast.AST) -> Iterator[str]:
    """The names that a node gives to something of ours. Names of other people's things are theirs."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        yield node.attr


@pytest.mark.parametrize("path", ALL, ids=name_of)
def test_tidy(path: Path) -> None:
    found = list(complaints(path))
    assert not found, "\n".join(found)


def test_no_file_or_folder_has_a_retired_name() -> None:
    for path in ALL:
        for part in path.relative_to(ROOT).with_suffix("").parts:
            assert not set(part.split("_")) & RETIRED_FILES, name_of(path)


def test_the_checker_sees_what_it_should(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    long_function = "def long():\n" + "    pass\n" * 70
    path = tmp_path / "x.py"
    path.write_text(f"class BoatSession: ...\ndef start(slave_port): self.binlogs = 1\n{long_function}")
    found = "\n".join(complaints(path))
    for words in (
        "no docstring",
        "'BoatSession' is retired; say 'gateway'",
        "'slave_port'",
        "'binlogs'",
        "71 lines",
    ):
        assert words in found
    path.write_text('"""Fine."""\n' + "x = 1\n" * 500)
    assert "501 lines" in "\n".join(complaints(path))
