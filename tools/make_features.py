"""Write ``docs/features.md``: every checklist id, the tests that stand for it, and where that leaves it.

A test says what it stands for with ``@pytest.mark.feature("W01", …)``, on itself, its class or its module
(``pytestmark``). The marks are read from the source, so nothing has to run, and an id that is not on the list
below is an error. ``--check`` writes nothing and fails where the file is out of date.
"""

import ast
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"
FEATURES = ROOT / "docs" / "features.md"

WIRE = {
    "W01": "requests parse alike, however they are split",
    "W02": "name and trace id are consumed by every command, and not kept",
    "W03": "answers have their lengths in the right places, and leave in one write",
    "W04": "the worked examples, byte for byte",
    "W05": "pipelined requests are answered in order",
    "W06": "unknown commands are refused, and the connection stays in step",
    "W07": "error frames and their texts",
    "W08": "alive",
    "W09": "create a topic, with or without an end",
    "W10": "the limit of a topic's name, in bytes",
    "W11": "create: the order of its checks",
    "W12": "no name leaves the topics' folders",
    "W13": "delete a topic, and make it again",
    "W14": "delete tells every subscriber and waits for none",
    "W15": "publish one message or many",
    "W16": "malformed payloads are refused, and use no id",
    "W17": "payloads of at most eight bytes are refused in step",
    "W18": "publish: the order of its checks, answered only once flushed",
    "W19": "delay: the order of its checks",
    "W20": "delayed messages come once, in order, also after a crash",
    "W21": "delayed messages of a topic that ended",
    "W22": "topic info",
    "W23": "list of all topics",
    "W24": "list of valid topics",
    "W25": "a topic past its end, before and after collection",
    "W26": "where a subscription starts",
    "W27": "positions that are not there",
    "W28": "the frame of a push",
    "W29": "what an ack may say",
    "W30": "no ack in time",
    "W31": "how a stream ends, and what the connection does next",
    "W32": "keep-alives",
    "W33": "one live connection per topic and name",
    "W34": "acks of old clients store nothing",
    "W35": "event ids only rise",
    "W36": "what a follower answers",
    "W37": "the replica stream, byte for byte",
    "W38": "where a replica stream starts",
    "W39": "stalls, huge claims and idleness",
    "W40": "the Go and Java clients, unchanged",
}

WEAKNESSES = {
    "QA1": "deleting a topic with two subscribers stops nothing",
    "QA2": "a subscriber that withholds its ack stops nothing",
    "QA3": "names cannot walk through the file system",
    "QA4": "no setting and no missing file brings the process down",
    "QA5": "a claimed length allocates nothing",
    "QA6": "a lasting error makes no hot loop",
    "QA7": "connections are bounded; the port stays on loopback",
    "QA8": "a signal stops it in order",
    "QB1": "a torn tail is cut, reported, and does not stop the start",
    "QB2": "a torn tail in any topic is repaired, and subscribers go on",
    "QB3": "recovery replays what was acknowledged",
    "QB4": "half a batch is no batch",
    "QB5": "each flush level does what it says, at the roll too",
    "QB6": "new files survive: directories are flushed",
    "QB7": "failed and short writes leave no garbage, and are not acknowledged",
    "QB8": "a deleted topic never comes back",
    "QB9": "a delayed message comes once, in order within a millisecond",
    "QB10": "a start does not read everything",
    "QC1": "positions are sought, not scanned; errors say what is wrong",
    "QC2": "stored positions, from now, from a time",
    "QC3": "retention never strands a slow subscriber",
    "QC4": "a connection is usable after its subscription",
    "QC5": "the name of a dead subscriber comes free",
    "QC6": "the end of a topic has one form",
    "QC7": "reading is slicing",
    "QD1": "a stall or a short payload never costs the step",
    "QD2": "the answer to a publish can carry its event id",
    "QD3": "a lying header count is refused",
    "QE1": "a follower resumes after a publish of many",
    "QE2": "a failed apply is never skipped",
    "QE3": "a half-open replication connection is noticed",
    "QE4": "an empty newest segment changes nothing",
    "QE5": "delays on followers; histories cannot diverge",
    "QE6": "a fresh follower has everything",
    "QF1": "group commit",
    "QF2": "open files are bounded; a restart makes none",
    "QG": "our clients: no stale answers, bounds checked, resume where they were",
}


EXTENSIONS = {
    "X-Hello": "version, role and how far the log is",
    "X-EventId": "answers that carry the event id, for those who ask",
    "X-Append": "append once per key, with a message id",
    "X-Subscribe": "subscribe from now, a time or a stored position; wait and take over",
    "X-Positions": "list and set stored positions",
    "X-Delays": "list and cancel delayed messages",
    "X-Follow": "replication with epochs and reports",
    "X-Snapshot": "a copy of the files for who is too far behind",
    "X-Promote": "make a follower the leader",
    "X-Status": "role, followers, lag, sizes",
    "X-Reserved": "topics of Pixiu's own, and the key to them",
    "X-Flush": "wait until everything is on disk",
    "X-Range": "unknown extension numbers stay in step",
}


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
    found: dict[str, list[Test]] = {id_: [] for id_ in (*WIRE, *WEAKNESSES, *EXTENSIONS)}
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
