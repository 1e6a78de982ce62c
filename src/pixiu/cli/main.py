"""The command ``pixiu``: find the verb, run it, and turn what goes wrong into one line and an exit code.

Exit codes: 0 done, 1 failed, 2 wrong usage or wrong settings, 130 interrupted, 141 nobody reads on. A verb's file is
imported only when the verb is used, so that ``pixiu --version`` and the start of a server wait for nothing they do not
use.
"""

import functools
import importlib
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from pixiu.cli.streams import end_with_reader, let_out, open_missing_streams
from pixiu.config.extras import how_to_install_package
from pixiu.model.errors import ConfigError, PixiuError
from pixiu.model.hints import nearest
from pixiu.model.version import __version__

__all__ = ["app", "main"]

# A verb is the typer application `app` of the module pixiu.cli.<verb>, without its hyphen.
VERBS = (
    "serve", "queue", "token", "chat", "push", "top", "dead-letters", "audit", "explain", "rebuild", "pipeline", "sql",
    "search", "verify", "backup", "restore", "doctor", "sim", "role", "cluster", "probe",
)  # fmt: skip

HIDDEN = ("gateway",)
"""Verbs that other verbs use."""

AS_ROOT = ("doctor", "backup")
"""Verbs that root runs as root: doctor has --user, and a backup writes elsewhere."""


class Verbs(TyperGroup):
    """The verbs, each imported when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Every verb, in the order of the help page."""
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import a verb."""
        if cmd_name not in VERBS + HIDDEN:
            return None
        command = typer.main.get_command(importlib.import_module(f"pixiu.cli.{cmd_name.replace('-', '')}").app)
        command.name = cmd_name
        if cmd_name not in AS_ROOT:
            _run_as_owner_of_data(command)
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the verb; where there is none, say which one is spelled alike."""
        alike = nearest(args[0], VERBS) if args and args[0] not in VERBS + HIDDEN else None
        if alike:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {alike!r}?")
        return super().resolve_command(ctx, args)


def _run_as_owner_of_data(command: Any) -> None:
    """Let a command and its subcommands run as the owner of their ``--data``: its server must read what they write."""
    for below in getattr(command, "commands", {}).values():
        _run_as_owner_of_data(below)
    run = command.callback
    if run is None or not any(option.name == "data" for option in command.params):
        return

    @functools.wraps(run)
    def run_as_owner(**values: Any) -> Any:
        if os.geteuid() == 0:
            from pixiu.runtime.owner import become_owner

            try:
                become_owner(Path(values["data"] or "pixiu-data"))
            except PermissionError as error:
                print(f"pixiu: runs as root: {error}; its server may not be able to read new files", file=sys.stderr)
        return run(**values)

    command.callback = run_as_owner


app = typer.Typer(
    cls=Verbs,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"pixiu {__version__}")
        raise typer.Exit


@app.callback()
def pixiu(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Pixiu takes in every message, loses none, and can prove it."""


def main(arguments: list[str] | None = None) -> None:
    """Run one command and exit. The only place where an error ends the process."""
    debug = os.environ.get("PIXIU_DEBUG", "") not in ("", "0")
    open_missing_streams()
    try:
        _run(arguments)
    except ConfigError as error:
        _fail(error, str(error), code=2, debug=debug)
    except PixiuError as error:
        _fail(error, str(error), code=1, debug=debug)
    except ModuleNotFoundError as error:
        package = (error.name or str(error)).partition(".")[0]
        how = how_to_install_package(package)
        text = f"the package {package} is not installed; install it with: {how} (PIXIU_DEBUG=1 shows where it is used)"
        _fail(error, text, code=1, debug=debug)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        end_with_reader()  # who has had enough (`pixiu queue dump | head`): not an error worth a word
    except Exception as error:  # noqa: BLE001 - the command line is one of the three doors
        text = f"{type(error).__name__}: {error} (PIXIU_DEBUG=1 shows where)"
        _fail(error, text, code=1, debug=debug)


def _run(arguments: list[str] | None) -> None:
    """Run it, and let everything out that it has printed, so that what is wrong with that is seen here."""
    try:
        app(args=arguments, prog_name="pixiu")
    except SystemExit as ended:
        if isinstance(ended.__context__, BrokenPipeError):
            raise ended.__context__ from None  # which typer makes exit code 1 of
        sys.stdout.flush()
        raise


def _fail(error: Exception, text: str, *, code: int, debug: bool) -> None:
    if debug:
        raise error
    let_out()
    print(f"pixiu: {text}", file=sys.stderr)
    sys.exit(code)
