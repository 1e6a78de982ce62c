"""``pixiu token``: a token for a user; and the keys that sign tokens."""

from pathlib import Path
from typing import Annotated

import typer

from pixiu.cli.calling import require_keys_of_its_own
from pixiu.cli.examples import examples
from pixiu.cli.queue.asking import DEFAULT_DATA, Json, parse_duration_ms
from pixiu.cli.queue.output import moment_text, print_json, print_rows
from pixiu.cli.serve import Config, read_settings
from pixiu.model.errors import ConfigError, NotFound
from pixiu.ports.authentication import Identity
from pixiu.runtime.clock import SystemClock
from pixiu.runtime.datadir import DataDirectory, find_server
from pixiu.runtime.keys import Keyring
from pixiu.runtime.tokens import Tokens

__all__ = ["app"]

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command(epilog=examples("TOKEN=$(pixiu token alice)", "pixiu token backend --admin --expires 30d"))
def token(
    user: Annotated[str | None, typer.Argument(metavar="USER", help="The user's public id.")] = None,
    platform: Annotated[str, typer.Option("--platform", help="The kind of client: web, ios, …")] = "web",
    device: Annotated[str, typer.Option("--device", metavar="ID", help="One installation of it.")] = "",
    admin: Annotated[bool, typer.Option("--admin", help="May push, and look after the node.")] = False,
    expires: Annotated[
        str | None, typer.Option("--expires", metavar="TIME", help="How long it is good for.  [default: 24h]")
    ] = None,
    new_key: Annotated[bool, typer.Option("--new-key", help="Make a new key first; it signs from now on.")] = False,
    retire: Annotated[
        str | None, typer.Option("--retire", metavar="KEY", help="Let a key verify nothing any more.")
    ] = None,
    keys: Annotated[bool, typer.Option("--keys", help="List the keys.")] = False,
    data: Annotated[Path, typer.Option("--data", metavar="DIR", help="Whose keys.")] = DEFAULT_DATA,
    config: Config = None,
    json: Json = False,
) -> None:
    """Print a token for USER, signed with the newest key of a data directory.

    To rotate: --new-key, wait until the older tokens have expired, then --retire the older key. A running server
    follows by itself.
    """
    if user is None and not (new_key or keys or retire):
        raise ConfigError("name a USER; or say --keys, --new-key or --retire KEY")
    settings = read_settings(config, {}, []).security
    clock = SystemClock()
    require_keys_of_its_own(data)
    if new_key:
        _require_directory(data)
    elif not data.is_dir():
        raise NotFound(f"there is no data directory {data}; name it with --data, or start one with: pixiu serve --dev")
    ring = Keyring(data, clock)
    if new_key:
        made = ring.create(settings.token_algorithm)
        if user is None:
            print_json({"key": made.kid}) if json else print(made.kid)
    if retire is not None:
        ring.retire(retire)
    if keys and json:
        print_json([
            {"key": key.kid, "algorithm": key.algorithm, "at": key.created_at, "can_sign": key.signer is not None}
            for key in ring.keys
        ])  # fmt: skip
    elif keys:
        rows = [(key.kid, key.algorithm, moment_text(key.created_at), key.signer is not None) for key in ring.keys]
        print_rows(("key", "algorithm", "made", "can sign"), rows, empty="no keys")
    if user is not None:
        lifetime_ms = None if expires is None else parse_duration_ms(expires)
        if lifetime_ms is not None and lifetime_ms < 1000:
            raise ConfigError(f"--expires must be at least 1s, not {expires}")
        found = Tokens(ring, clock, settings).issue(Identity(user, platform, device, admin), lifetime_ms=lifetime_ms)
        print_json({"user": user, "token": found}) if json else print(found)


def _require_directory(data: Path) -> None:
    """Make a data directory where there is none: a key alone would look like something else's folder.

    The gateways of a cluster have a folder with keys and nothing else.
    """
    if not (data / "keys").is_dir() and find_server(data) is None:
        DataDirectory.open(data).close()
