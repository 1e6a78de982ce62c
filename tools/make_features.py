"""Write ``docs/features.md``: every checklist id, the tests that stand for it, and where that leaves it.

A test says what it stands for with ``@pytest.mark.feature("W01", …)``, on itself, its class or its module
(``pytestmark``). The marks are read from the source, so nothing has to run, and an id that is not in
``tools/checklists.py`` is an error. ``--check`` writes nothing and fails where the file is out of date.
"""

import ast
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.checklists import CLUSTER, CORRECTIONS, EXTENSIONS, HISTORY, INBOX, PUSH, WEAKNESSES, WIRE

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"
FEATURES = ROOT / "docs" / "features.md"


@dataclass(frozen=True, slots=True)
class Test:
    """A test and the ids it stands for."""

    path: str
    name: str
    ids: tuple[str, ...]
    long: bool


def marks(nodes: Iterable[ast.expr]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The pytest marks among some expressions: name and text arguments."""
    for node in nodes:
        if isinstance(node, ast.List | ast.Tuple):
            yield from marks(node.elts)
            continue
        target = node.func if isinstance(node, ast.Call) else node
        if isinstance(target, ast.Attribute) and ast.unparse(target.value) == "pytest.mark":
            arguments = node.args if isinstance(node, ast.Call) else []
            yield (
                target.attr,
                tuple(str(argument.value) for argument in arguments if isinstance(argument, ast.Constant)),
            )


def module_marks(tree: ast.Module) -> list[tuple[str, tuple[str, ...]]]:
    """The marks of ``pytestmark``, which hold for the whole module."""
    return [
        mark
        for node in tree.body
        if isinstance(node, ast.Assign) and any(ast.unparse(target) == "pytestmark" for target in node.targets)
        for mark in marks([node.value])
    ]


def tests_of(path: Path) -> Iterator[Test]:
    """The tests of one file that stand for something."""
    tree = ast.parse(path.read_text(encoding="utf-8"))

    def walk(body: list[ast.stmt], outer: list[tuple[str, tuple[str, ...]]], prefix: str) -> Iterator[Test]:
        for node in body:
            if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
                yield from walk(node.body, [*outer, *marks(node.decorator_list)], f"{prefix}{node.name}::")
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                found = [*outer, *marks(node.decorator_list)]
                ids = tuple(sorted({id_ for name, texts in found if name == "feature" for id_ in texts}))
                if ids:
                    relative = path.relative_to(ROOT).as_posix()
                    yield Test(relative, prefix + node.name, ids, any(name == "long" for name, _ in found))

    yield from walk(tree.body, module_marks(tree), "")


def collect() -> dict[str, list[Test]]:
    """The tests behind each id. Raise for a mark with an id that is not on the list."""
    found: dict[str, list[Test]] = {
        id_: [] for id_ in (*WIRE, *WEAKNESSES, *EXTENSIONS, *PUSH, *INBOX, *HISTORY, *CLUSTER, *CORRECTIONS)
    }
    for path in sorted(TESTS.rglob("test_*.py")):
        for test in tests_of(path):
            for id_ in test.ids:
                if id_ not in found:
                    raise SystemExit(f"{test.path}: {test.name} is marked {id_}: not on the checklist")
                found[id_].append(test)
    return found


def status(tests: list[Test]) -> str:
    """Where an id stands, judged by its tests."""
    if not tests:
        return "open"
    return "long target" if all(test.long for test in tests) else "tested"


def rows(titles: dict[str, str], found: dict[str, list[Test]]) -> Iterator[str]:
    """One table of the document."""
    yield "| id | what | status | tests |"
    yield "|---|---|---|---|"
    for id_, title in titles.items():
        names = "<br>".join(f"[`{test.name}`](../{test.path})" for test in found[id_]) or "–"
        yield f"| {id_} | {title} | {status(found[id_])} | {names} |"


def features() -> str:
    """The text of ``docs/features.md``."""
    found = collect()
    counts = {
        word: sum(status(tests) == word for tests in found.values()) for word in ("tested", "long target", "open")
    }
    summary = ", ".join(f"{count} {word}" for word, count in counts.items())
    lines = [
        "# Features, and the tests behind them",
        "",
        "Made by `make docs` from the marks in the test suite; a test fails when it is out of date.",
        "*tested*: `make test` runs it. *long target*: `make test-long` does. *open*: not yet.",
        "",
        f"**{len(found)} ids: {summary}.**",
        "",
        "## The wire protocol (W)",
        "",
        *rows(WIRE, found),
        "",
        "## Weaknesses of the original that are not here (Q)",
        "",
        *rows(WEAKNESSES, found),
        "",
        "## Extensions of the protocol (X)",
        "",
        *rows(EXTENSIONS, found),
        "",
        "## Push and delivery (P, T: seed 000)",
        "",
        *rows(PUSH, found),
        "",
        "## Inboxes and verbs (R: seed 003)",
        "",
        *rows(INBOX, found),
        "",
        "## History and sync (B: seed 004)",
        "",
        *rows(HISTORY, found),
        "",
        "## The cluster (X: seed 001)",
        "",
        *rows(CLUSTER, found),
        "",
        "## Errors of the originals, corrected (C, E)",
        "",
        *rows(CORRECTIONS, found),
    ]
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    """Write the file, or with ``--check`` say whether it is out of date."""
    text = features()
    if FEATURES.exists() and FEATURES.read_text(encoding="utf-8") == text:
        return 0
    if "--check" in arguments:
        print("docs/features.md is out of date; run: make docs")
        return 1
    FEATURES.write_text(text, encoding="utf-8")
    print("wrote docs/features.md")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
