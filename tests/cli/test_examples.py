"""The examples in help pages: every command has some, and the command line understands each of them."""

import importlib
import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from pixiu.cli.examples import examples
from pixiu.cli.main import VERBS, app

ROOT = typer.main.get_command(app)
WIDTH = 100
"""A longer line is hard to read, and to copy from a narrow terminal."""


def commands(words: tuple[str, ...], command: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that is shown, with the words that call it."""
    if not hasattr(command, "commands"):
        yield words, command
        return
    for name, each in command.commands.items():
        if not each.hidden:
            yield from commands((*words, name), each)


def verb(name: str) -> Any:
    return typer.main.get_command(importlib.import_module(f"pixiu.cli.{name.replace('-', '')}").app)


COMMANDS = [found for name in VERBS for found in commands((name,), verb(name))]


def calls_in(line: str) -> list[list[str]]:
    """The calls of ``pixiu`` in a line of shell: behind a pipe, in ``$(…)``, or alone."""
    line = re.sub(r"\A[A-Z]+=\$\((.*)\)\Z", r"\1", line)
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|")
    lexer.whitespace_split = True
    parts: list[list[str]] = [[]]
    for word in lexer:
        if word == "|":
            parts.append([])
        else:
            parts[-1].append(word)
    return [part[1:] for part in parts if part[0] == "pixiu"]


def understand(words: list[str]) -> tuple[str, ...]:
    """Parse a call as the command line does, without doing it. Returns which command it is; raises what is wrong."""
    command, context, called = ROOT, ROOT.make_context("pixiu", list(words)), []
    while hasattr(command, "resolve_command"):
        name, command, words = command.resolve_command(context, words)
        called.append(name)
        if not hasattr(command, "resolve_command"):
            context = command.make_context(name, list(words), parent=context)
    return tuple(called)


def test_wrong_examples_would_be_seen() -> None:
    with pytest.raises(Exception, match="No such option"):
        understand(["queue", "pub", "letters", "hello", "--loudly"])
    with pytest.raises(Exception, match="No such command"):
        understand(["queue", "shout"])
    with pytest.raises(Exception, match="not in the range"):
        understand(["queue", "sub", "letters", "--batch", "1000"])
    assert understand(calls_in("seq 3 | pixiu queue pub letters --header 'a=b c'")[0]) == ("queue", "pub")
    assert understand(calls_in("TOKEN=$(pixiu token alice)")[0]) == ("token",)


@pytest.mark.parametrize("words, command", COMMANDS, ids=[" ".join(words) for words, _ in COMMANDS])
def test_every_command_has_examples_that_can_be_called(words: tuple[str, ...], command: Any) -> None:
    head, *lines = str(command.epilog or "").removeprefix("\b\n").splitlines()
    assert (head, bool(lines)) == ("Examples:" if len(lines) > 1 else "Example:", True)
    for line in lines:
        assert len(line) <= WIDTH
        called = [understand(call) for call in calls_in(line.strip())]
        assert called == [words], line


def test_examples_are_shown_line_by_line_however_narrow_the_terminal_is() -> None:
    long = "pixiu push alice bob carol --text 'a text that goes on and on for more than forty columns'"
    toy = typer.Typer(rich_markup_mode=None, add_completion=False)
    toy.command(epilog=examples(long, "pixiu doctor"))(lambda: None)
    command = typer.main.get_command(toy)
    shown = command.get_help(command.make_context("toy", [], terminal_width=40, max_content_width=40))
    assert f"\n    {long}\n    pixiu doctor" in shown
