"""The production guide of docs/operations.md as a script, and the unit of deploy/systemd as a command.

``tests/e2e/test_production_guide.py`` follows the guide with paths below a scratch directory; ``make test-fresh``
follows it as it is printed, in a bare Debian root.
"""

from __future__ import annotations

import configparser
import re
import shlex
from typing import NamedTuple

from tools.generated import ROOT

__all__ = ["Block", "guide_blocks", "service_command"]

HEADING = "## From --dev to production"


class Block(NamedTuple):
    """One code block of the guide."""

    step: str
    """The title of the step, for example ``Create the signing key``."""
    language: str
    """Empty for shell commands."""
    text: str


def guide_blocks() -> list[Block]:
    """The code blocks of the guide, in order."""
    text = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    section = text.partition(HEADING)[2].partition("\n## ")[0]
    found, step = [], ""
    for title, language, body in re.findall(r"^\*\*\d+\. ([^*]+?)\.?\*\*|^```(\w*)\n(.*?)^```$", section, re.M | re.S):
        if title:
            step = title
        else:
            found.append(Block(step, language, body))
    return found


def service_command(unit: str, *, environ: dict[str, str] | None = None) -> list[str]:
    """What systemd would run for a unit: its user, no privileges, an empty environment.

    The limits on what the process may see of the file system are left to the caller.
    """
    parsed = configparser.RawConfigParser(strict=False)
    parsed.optionxform = str  # type: ignore[assignment,method-assign]
    parsed.read_string(unit)
    service = parsed["Service"]
    user = service["User"]
    variables = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin", "USER": user, **(environ or {})}
    drop = ["--reuid", user, "--regid", service["Group"], "--init-groups", "--inh-caps=-all", "--bounding-set=-all"]
    if service.getboolean("NoNewPrivileges"):
        drop.append("--no-new-privs")
    assigned = [f"{name}={value}" for name, value in variables.items()]
    return ["setpriv", *drop, "env", "-i", *assigned, *shlex.split(service["ExecStart"])]
