"""Three ways to print the sections of a run: on the terminal, as Markdown, as JSON."""

import json
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.queue.section import Check, Section


def print_section(console: Console, section: Section) -> None:
    """One table, its targets under it."""
    table = Table(title=section.title, title_justify="left", title_style="bold")
    for number, column in enumerate(section.columns):
        table.add_column(column, justify="left" if number == 0 else "right")
    for row in section.rows:
        table.add_row(*row)
    console.print()
    if section.rows:
        console.print(table)
    for note in section.notes:
        console.print(f"  {note}", style="dim", highlight=False)
    if section.checks:
        console.print(_checks_table(section.checks))


def print_verdict(console: Console, sections: list[Section]) -> None:
    """All targets in one place, the missed ones by name."""
    checks = [check for section in sections for check in section.checks]
    missed = [(section, check) for section in sections for check in section.checks if not check.passed]
    console.print()
    if not missed:
        console.print(f"[green]All {len(checks)} targets met.[/green]")
        return
    console.print(f"[red]{len(missed)} of {len(checks)} targets missed:[/red]")
    for section, check in missed:
        console.print(f"  {section.key}: {check.what}: {check.measured}, target {check.target}", highlight=False)


def write_json(path: Path, facts: dict[str, str], options: dict[str, object], sections: list[Section]) -> None:
    """Every number of every round."""
    document = {"machine": facts, "options": options, "sections": [section.as_json() for section in sections]}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")


def markers(name: str) -> tuple[str, str]:
    """The lines of a document between which a benchmark puts its tables."""
    return f"<!-- {name}:begin -->", f"<!-- {name}:end -->"


def write_markdown(
    path: Path,
    facts: dict[str, str],
    options: dict[str, object],
    sections: list[Section],
    *,
    name: str = "bench",
) -> None:
    """Put the tables between the markers of a document; without a document, make one of nothing else."""
    begin, end = markers(name)
    body = f"{begin}\n\n{markdown(facts, options, sections)}\n{end}"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(body + "\n")
        return
    before, after = split_at_markers(path, name)
    path.write_text(before + body + after)


def split_at_markers(path: Path, name: str = "bench") -> tuple[str, str]:
    """The text before and after the tables of a document."""
    text = path.read_text()
    first, last = markers(name)
    before, begin, rest = text.partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end:
        raise ValueError(f"{path} has no lines {first} and {last} to put the tables between")
    return before, after


def markdown(facts: dict[str, str], options: dict[str, object], sections: list[Section]) -> str:
    """The whole run as Markdown."""
    lines = [*_markdown_table(["", ""], [[name, value] for name, value in facts.items()], right=False), ""]
    lines += [", ".join(f"{name} {value}" for name, value in options.items()) + ".", ""]
    for section in sections:
        lines += [f"### {section.title}", ""]
        if section.rows:
            lines += [*_markdown_table(section.columns, section.rows), ""]
        lines += [f"{note}\n" for note in section.notes]
        if section.checks:
            rows = [[check.what, check.target, check.measured, _word(check)] for check in section.checks]
            lines += [*_markdown_table(["target", "wanted", "measured", ""], rows, right=False), ""]
    return "\n".join(lines)


def _markdown_table(columns: list[str], rows: Iterable[list[str]], right: bool = True) -> list[str]:
    lines = [f"| {' | '.join(columns)} |"]
    lines.append("|" + "|".join("---:" if right and number else "---" for number in range(len(columns))) + "|")
    lines += [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows]
    return lines


def _checks_table(checks: list[Check]) -> Table:
    table = Table(box=None, padding=(0, 2))
    for column in ("target", "wanted", "measured", ""):
        table.add_column(column, header_style="dim")
    for check in checks:
        colour = "green" if check.passed else "red"
        table.add_row(check.what, check.target, check.measured, f"[{colour}]{_word(check)}[/{colour}]")
    return table


def _word(check: Check) -> str:
    return "pass" if check.passed else "FAIL"
