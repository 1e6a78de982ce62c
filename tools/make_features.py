"""Write ``docs/features.md``: every checklist id, the tests that prove it, and which command runs them.

A test names its ids with ``@pytest.mark.feature("W01", …)``, on itself, its class or its module (``pytestmark``). The
marks are read from the source, so nothing has to run. An id that is not in ``tools/checklists.py`` is an error.
``--check`` writes nothing and fails if the file is out of date.
"""

import ast
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.checklists import CLUSTER, CORRECTIONS, EXTENSIONS, HISTORY, INBOX, NOTES, PUSH, WEAKNESSES, WIRE
from tools.generated import ROOT, write_or_check

TESTS = ROOT / "tests"
FEATURES = ROOT / "docs" / "features.md"
SUITES = ("make test", "make test-engines", "make test-long")
"""From the one that everybody runs to the longest. The Makefile chooses tests by the same marks."""
TITLES = {
    **WIRE, **WEAKNESSES, **EXTENSIONS, **PUSH, **INBOX, **HISTORY, **CLUSTER,
    **{id_: correction.title for id_, correction in CORRECTIONS.items()},
}  # fmt: skip
"""What each id is, in a few words."""


@dataclass(frozen=True, slots=True)
class Test:
    """A test, its ids, and the command that runs it."""

    path: str
    name: str
    ids: tuple[str, ...]
    suite: str


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


def suite_of(marks: set[str]) -> str:
    """The command that runs a test with these marks; a test with both marks runs in both long suites."""
    return SUITES[2] if "long" in marks else SUITES[1] if "engines" in marks else SUITES[0]


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
                    yield Test(relative, prefix + node.name, ids, suite_of({name for name, _ in found}))

    yield from walk(tree.body, module_marks(tree), "")


def collect() -> dict[str, list[Test]]:
    """The tests behind each id. Raise for a mark with an id that is not on the list."""
    found: dict[str, list[Test]] = {id_: [] for id_ in TITLES}
    for path in sorted(TESTS.rglob("test_*.py")):
        for test in tests_of(path):
            for id_ in test.ids:
                if id_ not in found:
                    raise SystemExit(f"{test.path}: {test.name} is marked {id_}: not on the checklist")
                found[id_].append(test)
    return found


def behind(id_: str, found: dict[str, list[Test]]) -> list[Test]:
    """The tests of an id, with those of the features that a correction refers to."""
    correction = CORRECTIONS.get(id_)
    others = correction.features if correction else ()
    return [*found[id_], *(test for other in others for test in behind(other, found))]


def status(id_: str, found: dict[str, list[Test]]) -> str:
    """The commands that run tests of an id; ``–`` if none does."""
    suites = {test.suite for test in behind(id_, found)}
    return ", ".join(f"`{suite}`" for suite in SUITES if suite in suites) or "–"


def note_of(id_: str) -> str:
    """How an id differs from its criterion, or why it is not built; empty if it is as the specs say."""
    correction = CORRECTIONS.get(id_)
    return NOTES.get(id_, correction.note if correction else "")


def rows(ids: Iterable[str], found: dict[str, list[Test]]) -> Iterator[str]:
    """One table of the document. A test that ``make test`` does not run says which command does."""
    yield "| id | what | run by | tests |"
    yield "|---|---|---|---|"
    for id_ in ids:
        parts = [f"*{note_of(id_)}*"] if note_of(id_) else []
        parts += [
            f"[`{test.name}`](../{test.path})" + ("" if test.suite == SUITES[0] else f" ({test.suite[5:]})")
            for test in found[id_]
        ]
        if id_ in CORRECTIONS and CORRECTIONS[id_].features:
            parts.append(f"the tests of {', '.join(CORRECTIONS[id_].features)}")
        yield f"| {id_} | {TITLES[id_]} | {status(id_, found)} | {'<br>'.join(parts) or '–'} |"


def features() -> str:
    """The text of ``docs/features.md``."""
    found = collect()
    statuses = [status(id_, found) for id_ in found]
    counts = {
        "run by `make test`": sum("`make test`" in each for each in statuses),
        "only by `make test-engines` or `make test-long`": sum(
            "`make test`" not in each and each != "–" for each in statuses
        ),
        "without a test": statuses.count("–"),
    }
    summary = ", ".join(f"{count} {words}" for words, count in counts.items())
    lines = [
        "# Features, and the tests behind them",
        "",
        "Made by `make docs` from the marks in the test suite; a test fails when it is out of date. The ids are",
        "those of the checklists that were made from the seeds. *run by*: the commands that run at least one test of",
        "the id. A test without a suite in parentheses is run by `make test`. A note in italics says how an id",
        "differs from its criterion, or why it is not built.",
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
    return write_or_check({FEATURES: features()}, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
