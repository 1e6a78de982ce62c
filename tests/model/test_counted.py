"""Numbers of things in words."""

import ast
import re
from pathlib import Path

import pytest

import pixiu
from pixiu.model.counted import counted

ROOT = Path(pixiu.__file__).parent
SOURCES = sorted((ROOT / "cli").rglob("*.py")) + sorted((ROOT / "pipeline" / "report").glob("*.py"))
NOUNS = (
    "bytes|connections|conversations|copies|differences|entries|epochs|events|failovers|faults|files|inboxes|keys|"
    "members|messages|partitions|processes|records|references|replicas|rows|seeds|segments|sessions|snapshots|"
    "subscribers|tables|tasks|times|topics|users|words"
)
BARE = re.compile(rf"\A (?:{NOUNS})\b(?!/s)")


@pytest.mark.parametrize(
    "count, text", [(0, "0 messages"), (1, "1 message"), (2, "2 messages"), (1000, "1000 messages")]
)
def test_one_is_not_several(count: int, text: str) -> None:
    assert counted(count, "message") == text


def test_a_plural_of_its_own_and_groups_of_digits() -> None:
    assert [counted(count, "inbox", "inboxes", is_grouped=True) for count in (1, 1234)] == ["1 inbox", "1,234 inboxes"]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_command_puts_a_plural_behind_any_number(path: Path) -> None:
    """``f"{count} rows"`` says "1 rows" one day: ``counted`` does not."""
    found = [
        (node.lineno, after.value)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.JoinedStr)
        for value, after in zip(node.values, node.values[1:], strict=False)
        if isinstance(value, ast.FormattedValue) and isinstance(after, ast.Constant) and BARE.match(str(after.value))
    ]
    assert not found
