"""What every command that calls a server over HTTP shares: where it is, with which token, and its errors as ours."""

import http.client
import json
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from pixiu.cli.options import DEFAULT_URL, Token, Url
from pixiu.cli.queue.asking import DEFAULT_DATA
from pixiu.config.security import SecuritySettings
from pixiu.model.errors import (
    ConfigError,
    Conflict,
    NotAllowed,
    NotFound,
    Overloaded,
    PixiuError,
    RateLimited,
    RequestError,
    TooLarge,
    Unauthenticated,
    Unavailable,
)
from pixiu.model.hosts import is_loopback
from pixiu.model.names import OPERATOR, has_controls
from pixiu.ports.authentication import Identity
from pixiu.runtime.clock import SystemClock
from pixiu.runtime.datadir import find_server

__all__ = ["Caller", "Token", "Url", "announced_url", "find_url", "make_token", "own_server_tls"]

TIMEOUT_SECONDS = 60.0
OWN_TOKEN_MS = 60_000
ANSWER_BYTES_MAX = 64 * 2**20
SAID_MAX = 200
_ALL_ADDRESSES = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]", "::": "[::1]"}

_ERRORS: dict[str, type[PixiuError]] = {
    kind.code: kind
    for kind in (RequestError, Unauthenticated, NotAllowed, NotFound, Conflict, TooLarge, PixiuError)
} | {kind.code: kind for kind in (RateLimited, Overloaded, Unavailable)}  # fmt: skip


class Caller:
    """Calls one server as an admin."""

    def __init__(self, url: str | None, token: str | None, data: Path | None) -> None:
        announced = None if url else _announced(data or DEFAULT_DATA)
        self.url = (url or announced or DEFAULT_URL).rstrip("/")
        self._is_own = announced is not None
        if urlsplit(self.url).scheme not in ("http", "https"):
            raise ConfigError(f"--url must begin with http:// or https://, not {self.url!r}")
        if token is None and data is None and url is not None and not _is_here(self.url):
            raise ConfigError(f"give --token: a token of this machine's node is not for {self.url}")
        self._given = token
        self._data = data or DEFAULT_DATA
        self._own, self._own_until = "", 0.0
        self._bearer()  # what is wrong with it is said before anything is done

    def _bearer(self) -> str:
        """The token that was given, or one of our own, made anew before it ends."""
        if self._given is not None:
            return self._given
        if monotonic() >= self._own_until:
            self._own, self._own_until = _own_token(self._data), monotonic() + OWN_TOKEN_MS / 2000
        return self._own

    def get(self, path: str, *, timeout_seconds: float = TIMEOUT_SECONDS) -> Any:
        """Ask."""
        return self._call("GET", path, None, timeout_seconds)

    def post(self, path: str, content: object, *, timeout_seconds: float = TIMEOUT_SECONDS) -> Any:
        """Tell."""
        return self._call("POST", path, json.dumps(content, ensure_ascii=False).encode(), timeout_seconds)

    def lines(self, path: str, *, timeout_seconds: float = TIMEOUT_SECONDS) -> Iterator[Any]:
        """Ask for an answer of many JSON values, one per line."""
        with self._answer("GET", path, None, timeout_seconds) as answer:
            while line := answer.readline(ANSWER_BYTES_MAX):
                yield json.loads(line)

    def _call(self, method: str, path: str, body: bytes | None, timeout_seconds: float) -> Any:
        with self._answer(method, path, body, timeout_seconds) as answer:
            return json.loads(answer.read(ANSWER_BYTES_MAX))

    def _handlers(self) -> list[Any]:
        own = [HTTPSHandler(context=own_server_tls())] if self._is_own and self.url.startswith("https:") else []
        return [_NoRedirect, *own]

    @contextmanager
    def _answer(self, method: str, path: str, body: bytes | None, timeout_seconds: float) -> Iterator[Any]:
        """The answer, open; what goes wrong until it is closed is one of our errors."""
        headers = {"Authorization": f"Bearer {self._bearer()}", "Content-Type": "application/json"}
        request = Request(self.url + path, data=body, headers=headers, method=method)
        try:
            with build_opener(*self._handlers()).open(request, timeout=timeout_seconds) as answer:
                yield answer
        except HTTPError as error:
            raise _explained(error.code, error.read(ANSWER_BYTES_MAX)) from error
        except (URLError, http.client.HTTPException, OSError) as error:
            reason = getattr(error, "reason", error)
            raise Unavailable(f"no answer from {self.url}: {reason}; start it with: pixiu serve") from error
        except ValueError as error:
            raise PixiuError(f"{self.url} does not speak as Pixiu does: {error}") from error


def own_server_tls() -> ssl.SSLContext:
    """For the server that holds our data directory: its certificate names another address than this machine's own."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


class _NoRedirect(HTTPRedirectHandler):
    """A token goes where it was meant to go, and nowhere else."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _explained(status: int, body: bytes) -> PixiuError:
    try:
        said = json.loads(body)["error"]
        return _ERRORS.get(str(said["code"]), PixiuError)(str(said["message"]))
    except (ValueError, KeyError, TypeError):
        line = body.strip().partition(b"\n")[0].decode(errors="replace")[:SAID_MAX]
        said = ascii(line)[1:-1] if has_controls(line) else line
        return PixiuError(f"the server answered with status {status}" + (f": {said}" if said else ""))


def _is_here(url: str) -> bool:
    return is_loopback(urlsplit(url).hostname or "")


def _announced(data: Path) -> str | None:
    """Where the server of a data directory says it is."""
    holder = find_server(data)
    if holder is None or holder.http is None:
        return None
    return announced_url(holder.http)


def announced_url(address: str) -> str:
    """What a server says of itself, as this machine can ask it: an address that means all of them is none to ask."""
    scheme, _, place = address.rpartition("://")
    host, _, port = place.rpartition(":")
    return f"{scheme or 'http'}://{_ALL_ADDRESSES.get(host, host)}:{port}"


def require_keys_of_its_own(data: Path) -> None:
    """Raise for the folder of a cluster, which other commands take: its keys are those of its gateways."""
    if (data / "cluster.json").is_file() and not (data / "keys").is_dir():
        raise ConfigError(
            f"{data} is the folder of a cluster, whose keys are in {data / 'nodes' / 'gateway'}: say --data with that "
            f"for a token; pixiu cluster status --data {data} says where its gateways listen"
        )


def _own_token(data: Path) -> str:
    """Whoever may read the node's key may be its admin, for a minute."""
    return _issue(data, Identity(OPERATOR, is_admin=True), lifetime_ms=OWN_TOKEN_MS)


def _issue(data: Path, identity: Identity, *, lifetime_ms: int | None = None) -> str:
    """A token, by the key of a data directory. Raises with what to do where there is none."""
    from pixiu.runtime.keys import Keyring
    from pixiu.runtime.tokens import Tokens

    require_keys_of_its_own(data)
    clock = SystemClock()
    try:
        return Tokens(Keyring(data, clock), clock, SecuritySettings()).issue(identity, lifetime_ms=lifetime_ms)
    except NotFound:
        raise Unauthenticated(
            f"there is no token, and no key in {data} to make one with; give --token, or name the server's --data; "
            "or start a server: pixiu serve --dev"
        ) from None


def find_url(url: str | None, data: Path | None) -> str:
    """Where the server is: as said, as its data directory says, or here."""
    return (url or _announced(data or DEFAULT_DATA) or DEFAULT_URL).rstrip("/")


def make_token(
    address: str, url: str | None, data: Path | None, user: str, *, platform: str, device: str
) -> Callable[[], str]:
    """Makes tokens of a user with the key of a data directory, a fresh one for each connection."""
    if data is None and url is not None and not _is_here(address):
        raise ConfigError(f"give --token: a token of this machine's node is not for {address}")
    root = data or DEFAULT_DATA

    def fresh() -> str:
        return _issue(root, Identity(user, platform, device))

    fresh()  # what is wrong is said before anything is tried
    return fresh
