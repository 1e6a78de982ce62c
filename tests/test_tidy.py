"""House rules that no linter checks: module docstrings and retired words."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted(path for folder in ("src", "tools") for path in (ROOT / folder).rglob("*.py"))
ALL = sorted([*SOURCES, *(ROOT / "tests").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")])

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
    if text.strip() and ast.get_docstring(tree) is None:
        yield f"{name_of(path)}: no docstring"
    for node in ast.walk(tree):
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


def test_every_file_follows_the_house_rules() -> None:
    found = [complaint for path in ALL for complaint in complaints(path)]
    assert not found, "\n".join(found)


def test_no_file_or_folder_has_a_retired_name() -> None:
    for path in ALL:
        for part in path.relative_to(ROOT).with_suffix("").parts:
            assert not set(part.split("_")) & RETIRED_FILES, name_of(path)


def test_the_checker_sees_what_it_should(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    path = tmp_path / "x.py"
    path.write_text("class BoatSession: ...\ndef start(slave_port): self.binlogs = 1\n")
    found = "\n".join(complaints(path))
    for words in (
        "no docstring",
        "'BoatSession' is retired; say 'gateway'",
        "'slave_port'",
        "'binlogs'",
    ):
        assert words in found
