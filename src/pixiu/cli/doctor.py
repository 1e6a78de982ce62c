"""``pixiu doctor``: is this machine fit for Pixiu, and what to do where it is not."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from pixiu.cli.checks import Check, all_checks
from pixiu.cli.examples import examples
from pixiu.cli.queue.asking import DEFAULT_DATA
from pixiu.cli.queue.output import print_json
from pixiu.cli.serve import Assignments, Config, read_settings
from pixiu.model.errors import ConfigError, PixiuError
from pixiu.runtime.owner import become_owner, become_user

__all__ = ["app"]

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

_MARKS = {"ok": ("✓", "green"), "warn": ("!", "yellow"), "fail": ("✗", "red")}


@app.command(epilog=examples("pixiu doctor", "pixiu doctor --config pixiu.toml --json"))
def doctor(
    data: Annotated[Path, typer.Option("--data", metavar="DIR", help="The data directory to look at.")] = DEFAULT_DATA,
    config: Config = None,
    assignments: Assignments = None,
    user: Annotated[
        str | None,
        typer.Option("--user", metavar="NAME", help="Check as this user.  [default: the owner of the data directory]"),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Check Python, Java, ports, limits, memory, clock, disk, data, keys, journal and engines; say what to do next.

    Exit code 1: something fails, so that a server would not start, or not work. A warning does not count. Run by root,
    it checks as the user that owns the data directory, since that user's server must be able to read everything.
    """
    _become(user, data)
    checks: list[Check] = []
    for check in all_checks(read_settings(config, {}, assignments or []), data):
        checks.append(check)
        if not json:
            _show(check)
    fails = sum(check.state == "fail" for check in checks)
    if json:
        print_json({"ok": not fails, "checks": [check._asdict() for check in checks]})
    else:
        warns = sum(check.state == "warn" for check in checks)
        print(f"\n{len(checks) - fails - warns} ok, {warns} warnings, {fails} to fix")
    if fails:
        raise typer.Exit(1)


def _become(user: str | None, data: Path) -> None:
    """Go on as the user of the server."""
    try:
        if user is None:
            become_owner(data)
        else:
            become_user(user)
    except KeyError:
        raise ConfigError(f"--user: there is no user {user!r} on this machine") from None
    except PermissionError as error:
        owner = f"--user {user}" if user else f"the owner of {data}"
        raise PixiuError(f"cannot check as {owner}: {error}; run it as root, from a Pixiu that user can read") from None


def _show(check: Check) -> None:
    """One line, and what to do below it."""
    mark, colour = _MARKS[check.state]
    if not sys.stdout.isatty():
        print(f"{check.state}\t{check.name}\t{check.text}\t{check.advice}".rstrip())
        return
    print(f"{typer.style(mark, fg=colour, bold=True)} {typer.style(f'{check.name:<22}', bold=True)} {check.text}")
    if check.advice and check.state != "ok":
        print(typer.style(f"{'':25}→ {check.advice}", fg=colour))
