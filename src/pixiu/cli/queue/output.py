"""How commands print: tables on a terminal, plain lines for other programs, JSON where asked for."""

import json
import sys
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from shutil import get_terminal_size
from typing import Any, Protocol

from pixiu.cli.shown import shown

__all__ = [
    "Progress",
    "bytes_text",
    "fits",
    "moment_text",
    "print_facts",
    "print_json",
    "print_rows",
    "progress",
    "record_lines",
    "until_text",
]

Cell = str | int | float | bool | None

CELL_WIDTH = 24
"""What a cell needs in order to be read: a longer one is folded."""
CELL_PADDING = 2


def print_json(value: object) -> None:
    """One value on one line."""
    print(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def print_rows(
    columns: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    *,
    empty: str = "",
    may_be_records: bool = False,
    spare: Sequence[str] = (),
) -> None:
    """A table for people; tab-separated lines without a head for pipes.

    ``may_be_records``: what is too wide for the terminal is shown record by record, a line for each column.
    ``spare``: columns that a narrow terminal does without, the first of them first.
    """
    lines = [[_text(cell) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        for line in lines:
            print("\t".join(line))
        return
    if not lines:
        print(empty)
        return
    if may_be_records and not fits(columns, lines, get_terminal_size().columns):
        print("\n\n".join("\n".join(record_lines(columns, line)) for line in lines))
        return
    columns, lines = narrowed(columns, lines, get_terminal_size().columns, spare)
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for number, column in enumerate(columns):
        numbers = all(line[number].replace(",", "").lstrip("-").isdigit() for line in lines)
        table.add_column(column, justify="right" if numbers else "left", overflow="fold")
    for line in lines:
        table.add_row(*(cell.replace("[", "\\[") for cell in line))
    Console().print(table)


def print_facts(facts: Iterable[Sequence[Cell]]) -> None:
    """Names and what they are, one below the other; tab-separated for pipes."""
    lines = [(_text(name), _text(value)) for name, value in facts]
    if not sys.stdout.isatty():
        for name, value in lines:
            print(f"{name}\t{value}")
        return
    width = max(len(name) for name, _ in lines)
    for name, value in lines:
        print(f"{name:<{width}}  {value}")


def fits(columns: Sequence[str], lines: Sequence[Sequence[str]], width: int) -> bool:
    """Is there room for a table whose columns have their heads, and enough of their cells to be read?"""
    widths = (
        max(len(column), min(max(len(line[number]) for line in lines), CELL_WIDTH))
        for number, column in enumerate(columns)
    )
    return sum(each + CELL_PADDING for each in widths) <= width


def narrowed(
    columns: Sequence[str], lines: list[list[str]], width: int, spare: Sequence[str]
) -> tuple[Sequence[str], list[list[str]]]:
    """The table without so many of the spare columns that the rest stands on one line each, if that can be."""
    left = list(columns)
    for column in spare:
        kept = [columns.index(each) for each in left]
        if sum(max(len(row[at]) for row in (columns, *lines)) + CELL_PADDING for at in kept) <= width:
            break
        left.remove(column)
    kept = [columns.index(each) for each in left]
    return left, [[line[at] for at in kept] for line in lines]


def record_lines(columns: Sequence[str], line: Sequence[str]) -> list[str]:
    """One record: a name and a value per line; a line break within a value does not break the shape."""
    wide = max(map(len, columns), default=0)
    return [f"{column:<{wide}}  {cell}".replace("\n", " ") for column, cell in zip(columns, line, strict=True)]


def _text(cell: Cell) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return shown(str(cell))


def moment_text(unix_ms: int) -> str:
    """A time as a person reads it, in this machine's zone on a terminal and in UTC elsewhere."""
    moment = datetime.fromtimestamp(unix_ms / 1000, UTC)
    if sys.stdout.isatty():
        return moment.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def until_text(unix_ms: int) -> str:
    """When something ends; 0 is never."""
    return moment_text(unix_ms) if unix_ms else "never"


def bytes_text(count: float) -> str:
    """12.3 MiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            break
        count /= 1024
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"


class Progress(Protocol):
    """A bar that moves, or nothing."""

    def advance(self, count: int) -> None:
        """So many more are done."""
        ...

    def advance_to(self, done: int, total: int) -> None:
        """So many are done, of so many."""
        ...


class _NoProgress:
    def advance(self, count: int) -> None:
        pass

    def advance_to(self, done: int, total: int) -> None:
        pass


class _Bar:
    def __init__(self, bar: Any, task: Any) -> None:
        self._bar = bar
        self._task = task

    def advance(self, count: int) -> None:
        self._bar.update(self._task, advance=count)

    def advance_to(self, done: int, total: int) -> None:
        self._bar.update(self._task, completed=done, total=total)


class _BarContext(AbstractContextManager[Progress]):
    def __init__(self, what: str, total: int | None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bars

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bars = Bars(*columns, console=Console(stderr=True), transient=True)
        self._what = what
        self._total = total

    def __enter__(self) -> Progress:
        self._bars.start()
        return _Bar(self._bars, self._bars.add_task(self._what, total=self._total))

    def __exit__(self, *_: object) -> None:
        self._bars.stop()


def progress(what: str, total: int | None) -> AbstractContextManager[Progress]:
    """A progress bar on stderr where that is a terminal; otherwise nothing."""
    if not sys.stderr.isatty():
        return nullcontext(_NoProgress())
    return _BarContext(what, total)
