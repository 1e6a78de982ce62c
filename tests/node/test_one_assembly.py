"""The embedded node, ``pixiu serve`` and a replica of a shard are assembled by the same code."""

from __future__ import annotations

import ast
from pathlib import Path

import pixiu

SOURCE = Path(pixiu.__file__).parent


def calls_of(name: str) -> list[str]:
    """Where a name is called in production code, as FILE or FILE twice."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        if path.is_relative_to(SOURCE / "testing"):
            continue
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        calls = (node.func for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name))
        found += [str(path.relative_to(SOURCE)) for call in calls if call.id == name]
    return found


def test_one_call_builds_the_messaging_roles_and_one_opens_their_stores() -> None:
    assert calls_of("Messaging") == ["node/host.py"]
    assert calls_of("ready_engines") == ["node/host.py"]
    assert calls_of("make_notifications") == ["node/host.py"]


def test_each_kind_of_process_uses_that_assembly() -> None:
    assert calls_of("MessagingHost") == ["node/embedded.py", "node/serving.py", "node/shard.py"]
