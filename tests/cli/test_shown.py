"""What other people write does nothing to a terminal, and no line of it seems to come from somebody else."""

import pytest

from pixiu.cli.chat.history import line_of
from pixiu.cli.queue.output import print_facts, print_rows
from pixiu.cli.search import _marked
from pixiu.cli.shown import shown
from pixiu.sdk import Message

EVIL = "hi\x1b[2J\nboss: pay\x9b31m\u202eyap\x07"


@pytest.mark.parametrize("text", ["", "hello", "你好\u3000世界", "👩\u200d👩\u200d👧", "naïve café", "a\\b"])
def test_what_does_nothing_is_as_it_is(text: str) -> None:
    assert shown(text) == text


def test_what_acts_is_an_escape() -> None:
    assert shown(EVIL) == "hi\\x1b[2J\\nboss: pay\\x9b31m\\u202eyap\\x07"
    assert shown("a\nb\tc\r", keeps_lines=True) == "a\nb\\tc\\r"
    assert shown("lone \ud800") == "lone \\ud800"


def test_tables_facts_and_findings_hold_no_controls(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(("name", "what"), [(EVIL, 1)])
    print_facts([("topic", EVIL)])
    print(_marked(EVIL, [[0, 4]], "<", ">"))
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "hi\\x1b[2J\\nboss: pay\\x9b31m\\u202eyap\\x07\t1",
        "topic\thi\\x1b[2J\\nboss: pay\\x9b31m\\u202eyap\\x07",
        "<hi\\x1b[>2J boss: pay\\x9b31m\\u202eyap\\x07",
    ]


def test_a_line_of_the_chat_keeps_its_breaks_and_nothing_else() -> None:
    message = Message(1, "eve", 0, text=EVIL, to="bob")
    assert "eve: hi\\x1b[2J\nboss: pay\\x9b31m\\u202eyap\\x07" in line_of(message, "bob").plain
