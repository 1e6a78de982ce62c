"""``pixiu`` where only requirements/base.in is installed, as after the first ``make serve``. Arguments are its own."""

import importlib.abc
import importlib.util
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODULES = {
    "confluent-kafka": "confluent_kafka", "grpcio": "grpc", "grpcio-health-checking": "grpc_health",
    "scylla-driver": "cassandra",
}  # fmt: skip


def packages(name: str) -> set[str]:
    lines = (ROOT / "requirements" / f"{name}.in").read_text(encoding="utf-8").splitlines()
    names = {re.split(r"[\[<=; ]", line)[0] for line in lines if re.match(r"[a-zA-Z]", line)}
    return {MODULES.get(each, each) for each in names}


MISSING = packages("dev") | packages("pipeline")


class Missing(importlib.abc.MetaPathFinder):
    """What is not installed."""

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> None:
        if name.partition(".")[0] in MISSING:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def _find_spec(name: str, package: str | None = None) -> object:
    return None if name.partition(".")[0] in MISSING else FIND_SPEC(name, package)


FIND_SPEC = importlib.util.find_spec


def main() -> None:
    sys.meta_path.insert(0, Missing())
    importlib.util.find_spec = _find_spec  # type: ignore[assignment]
    from pixiu.cli.main import main as pixiu

    if sys.argv[1:] != ["every --help"]:
        pixiu()
        return
    import typer

    from pixiu.cli.main import app

    found: list[str] = []

    def visit(command: object, words: list[str]) -> None:
        context = typer.Context(command, info_name=words[-1])  # type: ignore[arg-type]
        assert command.get_help(context)  # type: ignore[attr-defined]
        found.append(" ".join(words))
        for name in getattr(command, "list_commands", lambda _: [])(context):
            visit(command.get_command(context, name), [*words, name])  # type: ignore[attr-defined]

    visit(typer.main.get_command(app), ["pixiu"])
    print("\n".join(found))


if __name__ == "__main__":
    main()
