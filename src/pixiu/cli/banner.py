"""What ``pixiu serve`` says when it is ready: where everything is, and what to do next.

With ``--dev`` everything can be tried at once. Without it there is no user and no key until somebody makes them, so the
steps are others; and whoever listens for the network without TLS is told what that means.
"""

from __future__ import annotations

import json
import shutil
import socket
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pixiu.cli.streams import announce
from pixiu.config.extras import how_to_install
from pixiu.model.hosts import is_loopback
from pixiu.model.version import __version__
from pixiu.runtime.java import HOW_TO_INSTALL_JAVA, can_install_packages, find_java

if TYPE_CHECKING:
    from pixiu.config import Settings
    from pixiu.config.pipeline import PipelineSettings
    from pixiu.node import Running

__all__ = ["Doors", "print_addresses", "print_banner", "when_charts_come"]

GUIDE = "docs/operations.md, From --dev to production"


class Doors(NamedTuple):
    """What decides who can come in."""

    is_dev: bool = True
    has_tls: bool = False
    has_auth_url: bool = False

    @classmethod
    def of(cls, settings: Settings, *, is_dev: bool) -> Doors:
        """As the settings have it."""
        security = settings.security
        return cls(is_dev, bool(security.tls_certificate), bool(security.auth_url))


def when_charts_come(settings: PipelineSettings) -> str:
    """When charts and search will work, or what they need; empty if turned off. ``{page}`` is their address."""
    if not settings.enabled:
        return ""
    has_packages = find_spec("pyspark") is not None
    if find_java() is None and not (settings.install and can_install_packages()):
        return f"Charts and search need Java 17; {HOW_TO_INSTALL_JAVA}. Then, within ten minutes: {{page}}"
    if has_packages and find_java() is not None:
        return "Charts of it follow in a minute or two: {page}"
    if settings.install:
        return "Charts and search follow when Spark is installed (1 GB, in the background): {page}"
    return f"Charts and search need more packages; install them with: {how_to_install('pipeline')}"


def print_addresses(running: Running) -> None:
    """The same for a program: one line, and nothing else on stdout."""
    row = {
        "version": __version__, "queue": running.queue_address, "http": running.http_address,
        "tcp": running.tcp_address, "grpc": running.grpc_address, "data": str(running.data.absolute()),
        "problems": list(running.problems),
    }  # fmt: skip
    announce(json.dumps(row, ensure_ascii=False))


def print_banner(running: Running, *, leads: bool = True, charts: str = "", doors: Doors | None = None) -> None:
    """Say where everything is and what to try next. A follower has no console. ``charts``: ``when_charts_come``."""
    doors = doors or Doors()
    command = _command_name()
    lines = [f"Pixiu {__version__}", f"queue listening on {running.queue_address}"]
    if running.http_address:
        lines.append(f"http listening on {running.http_address}")
    if running.tcp_address:
        lines.append(f"tcp listening on {running.tcp_address}")
    if running.grpc_address:
        lines.append(f"grpc listening on {running.grpc_address}")
    lines.append(f"data in {_short_path(running.data)}")
    url = "" if running.http_address is None else _url(running.http_address, doors)
    if running.problems:
        lines += ["", *(f"NOTHING CAN BE SENT: {problem}" for problem in running.problems)]
    elif url and leads and doors.is_dev:
        lines += ["", f"Open {url} in two windows and chat."]
        if charts:
            lines.append(charts.format(page=f"{url}/#/pipeline"))
    port = running.queue_address.rpartition(":")[2]
    at = "" if port == "12301" else f" --port {port}"
    if url and leads and not doors.is_dev:
        lines += ["", *_first_steps(running.data, url, command, doors)]
    else:
        tries = ("create hello", "pub hello 'good morning'", "sub hello") if leads else ("status", "topics")
        lines += ["", "Try, in another terminal:", *(f"  {command} queue {words}{at}" for words in tries)]
        if url:
            lines.append(f"  curl {url}/metrics")
        if url and leads:
            lines += _send_line(url, f"$({command} token alice{_data_option(running.data)})")
    if running.http_address and not doors.has_tls and not is_loopback(running.http_address.rpartition(":")[0]):
        lines += [
            "",
            "WARNING: this is open to the network without TLS: whoever is on the way reads all tokens and messages.",
            "Set security.tls_certificate and security.tls_key, or http.host to 127.0.0.1 behind a proxy with TLS.",
        ]
    lines += ["", "Ctrl-C stops it."]
    announce("\n".join(lines))


def _first_steps(data: Path, url: str, command: str, doors: Doors) -> list[str]:
    """For a server that believes signed tokens alone."""
    option = _data_option(data)
    if doors.has_auth_url:
        return [f"Tokens are checked by security.auth_url. The console: {url}", f"How to go on: {GUIDE}"]
    if any((data / "keys").glob("*.json")):
        return [
            f"The console at {url} asks for a token of a user who exists. This prints one:",
            f"  {command} token USER{option}",
            f"How to go on: {GUIDE}",
        ]
    create = f'  curl {url}/v1/actions/create_user -H "Authorization: Bearer $ADMIN" -d'
    return [
        "Nobody can come in yet: there is no key that signs tokens, and there are no users. In another terminal:",
        f"  {command} token --new-key{option}",
        f"  ADMIN=$({command} token operator --admin{option})",
        f'{create} \'{{"user": "alice", "name": "Alice"}}\'',
        f'{create} \'{{"user": "bob", "name": "Bob"}}\'',
        *_send_line(url, f"$({command} token alice{option})"),
        f"Then open {url} and give it the token that this prints: {command} token alice{option}",
        f"To try it without keys: {command} serve --dev. How to go on: {GUIDE}",
    ]


def _send_line(url: str, token: str) -> list[str]:
    return [
        f'  curl {url}/v1/actions/send -d \'{{"to": "bob", "text": "hello"}}\' \\',
        f'       -H "Authorization: Bearer {token}"',
    ]


def _url(address: str, doors: Doors) -> str:
    """What to open on this machine. An address that means all of them is none to open; a certificate has a name."""
    host, _, port = address.rpartition(":")
    if host in ("0.0.0.0", "[::]"):
        host = socket.gethostname() if doors.has_tls else "127.0.0.1"
    return f"{'https' if doors.has_tls else 'http'}://{host}:{port}"


def _data_option(data: Path) -> str:
    return "" if data.absolute() == Path("pixiu-data").absolute() else f" --data {_short_path(data)}"


def _command_name() -> str:
    """How to call ``pixiu`` from here: its name where it is on the path, else the file that runs now."""
    if shutil.which("pixiu"):
        return "pixiu"
    return _short_path(Path(sys.argv[0])) if Path(sys.argv[0]).name == "pixiu" else f"{sys.executable} -m pixiu"


def _short_path(path: Path) -> str:
    """A path as a person would type it from here."""
    try:
        short = path.absolute().relative_to(Path.cwd())
    except ValueError:
        return str(path.absolute())
    return str(short) if len(short.parts) > 1 else f"./{short}"
