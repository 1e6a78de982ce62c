"""``Registry`` on a ZooKeeper ensemble, through kazoo.

kazoo calls back on threads of its own: all that happens there is to hand the result to the loop. Nodes hold JSON, so
that whoever looks with ZooKeeper's own tools can read them.

ZooKeeper's watches are told once. A watched path is read again after each hint, which sets them anew; what changes in
between is seen by that reading.
"""

from __future__ import annotations

import logging
import os
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import msgspec

from pixiu.config.extras import how_to_install
from pixiu.model.errors import ConfigError, Conflict, NotFound, PixiuError, Unavailable
from pixiu.ports.registry import Data, Entry, SessionState, Write

try:
    from kazoo.client import KazooClient
    from kazoo.exceptions import BadVersionError, KazooException, NodeExistsError, NoNodeError, RolledBackError
    from kazoo.handlers.threading import KazooTimeoutError
    from kazoo.protocol.states import KazooState
except ModuleNotFoundError as error:
    needed = f"zk:// needs the package kazoo; install it with: {how_to_install('zookeeper')}"
    raise ConfigError(needed) from error

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from kazoo.interfaces import IAsyncResult
    from kazoo.protocol.states import ZnodeStat

    from pixiu.ports.registry import Folder

__all__ = ["ZooKeeperRegistry"]

log = logging.getLogger(__name__)

T = TypeVar("T")

REGISTER_TRIES = 5
REARM_SECONDS = 0.05
"""Hints that come together are one reading."""
CONNECT_AGAIN = {"max_tries": -1, "delay": 0.1, "backoff": 2, "max_delay": 1.0}
"""The driver's own longest pause is a minute: too long for whoever holds a lease, or follows one who does."""
TOKEN = "token"
"""In a registered node's data: whose registration it is, in case the answer is lost."""
STATES = {
    KazooState.CONNECTED: SessionState.CONNECTED,
    KazooState.SUSPENDED: SessionState.SUSPENDED,
    KazooState.LOST: SessionState.LOST,
}


class ZooKeeperRegistry:
    """One session with an ensemble. ``connect`` before anything else; it blocks, so call it in a thread."""

    def __init__(self, hosts: str, loop: asyncio.AbstractEventLoop, *, session_ms: int = 10_000) -> None:
        self._loop = loop
        self._client = KazooClient(
            hosts=hosts, timeout=session_ms / 1000, connection_retry=CONNECT_AGAIN, logger=_quiet()
        )
        self._client.add_listener(self._state_changed)
        self._calls: list[Callable[[SessionState], object]] = []
        self._watches: list[_Watch] = []
        self._is_closed = False

    def connect(self, timeout_seconds: float = 15) -> None:
        """Find the ensemble. Raises ``Unavailable`` if no server answers in time."""
        try:
            self._client.start(timeout=timeout_seconds)
        except KazooTimeoutError as error:
            hosts = ",".join(f"{host}:{port}" for host, port in self._client.hosts)
            raise Unavailable(f"no ZooKeeper answers at {hosts}") from error

    def connect_later(self, timeout_seconds: float) -> bool:
        """Wait for the ensemble for this long, and go on trying in the background. Returns whether it has answered.

        Requests wait until it answers.
        """
        self._client.start_async().wait(timeout_seconds)
        return bool(self._client.connected)

    # The port.

    def register(self, folder: str, data: Data, done: Callable[[str | PixiuError], object]) -> None:
        """Make a node that lives as long as the session."""
        token = os.urandom(16).hex()
        self._register(folder, msgspec.json.encode({**data, TOKEN: token}), token, 1, done)

    def write(self, write: Write, done: Callable[[int | PixiuError], object]) -> None:
        """Change or create a node."""
        path, data, version = write
        encoded = msgspec.json.encode(data)
        if version == -1:
            asked = self._client.create_async(path, encoded, makepath=True)
            self._then(asked, lambda created: done(created if isinstance(created, PixiuError) else 0))
            return

        def answered(stat: ZnodeStat | PixiuError) -> None:
            if isinstance(stat, NotFound) and version is None:
                self.write(Write(path, data, -1), created)
            else:
                done(stat if isinstance(stat, PixiuError) else stat.version)

        def created(made: int | PixiuError) -> None:
            if isinstance(made, Conflict):  # another one was quicker: whatever is there is to be replaced
                self.write(write, done)
            else:
                done(made)

        self._then(self._client.set_async(path, encoded, -1 if version is None else version), answered)

    def swap(self, writes: list[Write], done: Callable[[PixiuError | None], object]) -> None:
        """Several changes, all or none."""
        change = self._client.transaction()
        for path, data, version in writes:
            encoded = msgspec.json.encode(data)
            if version == -1:
                change.create(path, encoded)
            else:
                change.set_data(path, encoded, -1 if version is None else version)

        def answered(results: list[object] | PixiuError) -> None:
            if isinstance(results, PixiuError):
                done(results)
                return
            failed = [error for error in results if isinstance(error, KazooException)]
            causes = [error for error in failed if not isinstance(error, RolledBackError)]
            done(_translated((causes or failed)[0]) if failed else None)

        self._then(change.commit_async(), answered)

    def remove(self, path: str, done: Callable[[PixiuError | None], object], *, version: int | None = None) -> None:
        """Remove a node."""

        def answered(result: object) -> None:
            if isinstance(result, PixiuError) and not (isinstance(result, NotFound) and version is None):
                done(result)
            else:
                done(None)

        self._then(self._client.delete_async(path, -1 if version is None else version), answered)

    def read(self, path: str, done: Callable[[Folder | PixiuError], object]) -> None:
        """Everything below a path."""
        _Reading(self, path, done, None)

    def watch(self, path: str, changed: Callable[[], object]) -> None:
        """Be told that something below a path has changed."""
        watch = _Watch(self, path, changed)
        self._watches.append(watch)
        watch.arm()

    def when_session(self, call: Callable[[SessionState], object]) -> None:
        """Be told of every change of the session's state."""
        self._calls.append(call)

    def close(self) -> None:
        """End the session: its nodes go at once. Blocks for a round trip."""
        if not self._is_closed:
            self._is_closed = True
            self._client.stop()
            self._client.close()

    # Steps.

    def _register(
        self, folder: str, data: bytes, token: str, attempt: int, done: Callable[[str | PixiuError], object]
    ) -> None:
        """Create; if the answer is lost, look whether it was made before making another."""

        def created(path: str | PixiuError) -> None:
            if isinstance(path, Unavailable) and attempt < REGISTER_TRIES and not self._is_closed:
                self.read(folder, found)
            else:
                done(path)

        def found(entries: Folder | PixiuError) -> None:
            if isinstance(entries, PixiuError):
                done(entries)
                return
            mine = [name for name, entry in entries.items() if entry.data.get(TOKEN) == token]
            if mine:
                done(f"{folder}/{mine[0]}")
            else:
                self._register(folder, data, token, attempt + 1, done)

        made = self._client.create_async(f"{folder}/", data, ephemeral=True, sequence=True, makepath=True)
        self._then(made, created)

    def _then(self, asked: IAsyncResult, done: Callable[[T | PixiuError], object]) -> None:
        """Bring an answer from kazoo's thread to the loop."""

        def answered(result: IAsyncResult) -> None:
            error = result.exception
            value = result.value if error is None else _translated(error)
            self._on_loop(lambda: done(value))

        asked.rawlink(answered)

    def _on_loop(self, call: Callable[[], object]) -> None:
        """Run on the loop, unless it is over: then nobody waits for this any more."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call)

    def _state_changed(self, state: KazooState) -> None:
        """On kazoo's thread: nothing but hand it over."""
        self._on_loop(lambda: self._tell(STATES[state]))

    def _tell(self, state: SessionState) -> None:
        for call in self._calls:
            call(state)
        if state is SessionState.CONNECTED:
            for watch in self._watches:
                watch.hint()


class _Reading:
    """One walk over a tree, with watches if asked for."""

    def __init__(
        self,
        registry: ZooKeeperRegistry,
        path: str,
        done: Callable[[Folder | PixiuError], object],
        hint: Callable[[], object] | None,
    ) -> None:
        self._registry = registry
        self._client = registry._client
        self._path = path
        self._done = done
        self._hint: Callable[[object], object] | None = None if hint is None else lambda _event: registry._on_loop(hint)
        self._found: dict[str, Entry] = {}
        self._open = 0
        self._error: PixiuError | None = None
        self._visit("")

    def _visit(self, name: str) -> None:
        path = f"{self._path}/{name}" if name else self._path
        self._open += 2
        got = self._client.get_async(path, watch=self._hint)
        self._registry._then(got, partial(self._got, name))
        children = self._client.get_children_async(path, watch=self._hint)
        self._registry._then(children, partial(self._listed, name))

    def _got(self, name: str, result: tuple[bytes, ZnodeStat] | PixiuError) -> None:
        if isinstance(result, PixiuError):
            self._failed(name, result)
        elif result[0]:
            try:
                data = msgspec.json.decode(result[0], type=dict[str, object])
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                # It is not ours; the others are to be read all the same.
                log.error("a node makes no sense", extra={"path": f"{self._path}/{name}", "reason": str(error)})
            else:
                self._found[name] = Entry(data, result[1].version)
        self._closed()

    def _listed(self, name: str, result: list[str] | PixiuError) -> None:
        if isinstance(result, PixiuError):
            self._failed(name, result)
        else:
            for child in result:
                self._visit(f"{name}/{child}" if name else child)
        self._closed()

    def _failed(self, name: str, error: PixiuError) -> None:
        """A node that has just gone is no error. Nothing there at all: look for its coming, too."""
        if not isinstance(error, NotFound):
            self._error = self._error or error
        elif not name and self._hint is not None:
            self._open += 1
            self._registry._then(self._client.exists_async(self._path, watch=self._hint), self._looked_for)

    def _looked_for(self, found: ZnodeStat | PixiuError | None) -> None:
        """It has come since we found nothing: its coming is not told any more, and what is below it is not watched."""
        if found is not None and not isinstance(found, PixiuError) and self._hint is not None:
            self._hint(None)
        self._closed()

    def _closed(self) -> None:
        self._open -= 1
        if not self._open:
            self._done(self._error or dict(sorted(self._found.items())))


class _Watch:
    """A watched path: read after every hint, so that the next one comes."""

    def __init__(self, registry: ZooKeeperRegistry, path: str, changed: Callable[[], object]) -> None:
        self._registry = registry
        self._path = path
        self._changed = changed
        self._is_due = False

    def arm(self) -> None:
        """Set ZooKeeper's watches."""
        self._is_due = False
        if not self._registry._is_closed:
            _Reading(self._registry, self._path, lambda _: None, self.hint)

    def hint(self) -> None:
        """Something has changed: say so once, and look again."""
        if not self._is_due and not self._registry._is_closed:
            self._is_due = True
            self._registry._loop.call_later(REARM_SECONDS, self._look)

    def _look(self) -> None:
        self.arm()
        self._changed()


def _translated(error: BaseException) -> PixiuError:
    """Errors in words of our own."""
    if isinstance(error, NoNodeError):
        return NotFound("nothing is there")
    if isinstance(error, BadVersionError):
        return Conflict("another version is there")
    if isinstance(error, NodeExistsError):
        return Conflict("something is there already")
    return Unavailable(f"the registry did not answer: {type(error).__name__}")


def _quiet() -> logging.Logger:
    """The driver says every lost connection several times; once, from us, is enough."""
    logger = logging.getLogger("kazoo")
    logger.setLevel(logging.CRITICAL)
    return logger
