"""docs/security.md stays true: the tests and settings that it names exist."""

import re
from pathlib import Path

from pixiu.config import key_types, sections

ROOT = Path(__file__).resolve().parent.parent.parent
TEXT = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")


def test_every_test_that_it_names_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", TEXT))
    defined = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"def (test_\w+)", path.read_text(encoding="utf-8"))
    }
    assert named
    assert named <= defined, sorted(named - defined)


def test_every_setting_that_it_names_exists() -> None:
    known = sections()
    named = re.findall(r"`?\b(security|http|horn)\.([a-z_]+)\b", TEXT)
    assert named
    for section, key in named:
        assert key in key_types(known[section]), f"{section}.{key}"
