"""Write what is derived from the code: ``examples/pixiu.toml`` and the tables in ``docs/operations.md``.

Settings come from ``pixiu.config``, whose docstrings are read from the source, since Python keeps none for
fields; metrics from where they are declared. ``--check`` writes nothing and fails if a file is out of date.
"""

import ast
import inspect
import sys
import textwrap
from dataclasses import fields
from typing import Annotated, Any, Literal, get_args, get_origin

from pixiu.config import Bounds, Section, key_types, sections
from pixiu.node.metrics import DECLARED, DECLARED_BY_ENGINES
from pixiu.runtime.metrics import Metrics
from tools.generated import ROOT, write_or_check

EXAMPLE = ROOT / "examples" / "pixiu.toml"
OPERATIONS = ROOT / "docs" / "operations.md"
MADE = "made by tools/make_reference.py"


def field_docstrings() -> dict[str, dict[str, str]]:
    """For each class of ``pixiu.config``, the docstring under each of its fields."""
    found: dict[str, dict[str, str]] = {}
    sources = [inspect.getsource(sys.modules[kind.__module__]) for kind in sections().values()]
    for node in [node for source in dict.fromkeys(sources) for node in ast.parse(source).body]:
        if not isinstance(node, ast.ClassDef):
            continue
        texts = found.setdefault(node.name, {})
        for statement, following in zip(node.body, node.body[1:], strict=False):
            if (
                isinstance(statement, ast.AnnAssign)
                and isinstance(statement.target, ast.Name)
                and isinstance(following, ast.Expr)
                and isinstance(following.value, ast.Constant)
            ):
                texts[statement.target.id] = " ".join(str(following.value.value).split())
    return found


def toml_value(value: object) -> str:
    """A default as TOML writes it."""
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case _:
            return f'"{value}"'


def bounds_text(hint: Any) -> str:
    """The choices or bounds of a setting, for people."""
    if get_origin(hint) is Literal:
        return " / ".join(get_args(hint))
    if get_origin(hint) is Annotated:
        bounds = get_args(hint)[1]
        assert isinstance(bounds, Bounds)
        if bounds.at_most is None:
            return f"at least {bounds.at_least}"
        return f"{bounds.at_least} to {bounds.at_most}"
    return "true / false" if hint is bool else "text"


def defaults(section: type[Section]) -> dict[str, object]:
    """The default of each key of a section."""
    return {field.name: field.default for field in fields(section)}  # type: ignore[arg-type]


def example() -> str:
    """The text of ``examples/pixiu.toml``."""
    texts = field_docstrings()
    lines = [
        "# Every setting of Pixiu with its default. Copy what you want to change, and start with",
        "#   pixiu serve --config pixiu.toml",
        "# A variable PIXIU_SECTION__KEY wins over this file, and an option of the command line over both.",
        "# Made by tools/make_reference.py from src/pixiu/config.",
    ]
    for name, section in sections().items():
        lines += ["", f"[{name}]", f"# {inspect.getdoc(section)}"]
        values = defaults(section)
        for key, hint in key_types(section).items():
            lines.append("")
            text = texts[section.__name__][key]
            lines += textwrap.wrap(text, 100, initial_indent="# ", subsequent_indent="# ")
            lines.append(f"# {key} = {toml_value(values[key])}  # {bounds_text(hint)}")
    return "\n".join(lines) + "\n"


def settings_table() -> str:
    """The table of settings for ``docs/operations.md``."""
    texts = field_docstrings()
    lines = ["| setting | default | bounds | meaning |", "|---|---|---|---|"]
    for name, section in sections().items():
        values = defaults(section)
        for key, hint in key_types(section).items():
            meaning = texts[section.__name__][key]
            lines.append(f"| `{name}.{key}` | `{toml_value(values[key])}` | {bounds_text(hint)} | {meaning} |")
    return "\n".join(lines) + "\n"


def metrics_table() -> str:
    """The table of metrics for ``docs/operations.md``."""
    lines = ["| metric | kind | labels | meaning |", "|---|---|---|---|"]
    for metric in (*Metrics().declared, *DECLARED, *DECLARED_BY_ENGINES):
        labels = ", ".join(metric.labels) or "–"
        lines.append(f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |")
    return "\n".join(lines) + "\n"


def operations() -> str:
    """The text of ``docs/operations.md`` with its tables renewed."""
    text = OPERATIONS.read_text(encoding="utf-8")
    for name, table in (("settings", settings_table()), ("metrics", metrics_table())):
        begin, end = f"<!-- {name}: {MADE} -->\n", f"<!-- /{name} -->"
        before, marker, rest = text.partition(begin)
        _, closing, after = rest.partition(end)
        assert marker and closing, f"{OPERATIONS} has lost the marks around its table of {name}"
        text = before + begin + table + end + after
    return text


def main(arguments: list[str]) -> int:
    """Write both files, or with ``--check`` say which are out of date."""
    return write_or_check({EXAMPLE: example(), OPERATIONS: operations()}, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
