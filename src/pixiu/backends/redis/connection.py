"""One blocking connection per server, with a short patience.

Stores are asked in the middle of other work (docs/decisions/0011), so an answer may not take long. The first one that
does not come in time closes the connection: from then on every question is refused at once, and a thread looks whether
Redis is back. The loop stands still once per outage, for ``timeout_ms``, and never again until it is over.

One call may be under way while nobody waits (``begin``): a commit. Answers come in order, so whoever asks something
meanwhile gets the commit's answer first.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from typing import TYPE_CHECKING, Any

from valkey.crc import key_slot
from valkey.exceptions import (
    AskError,
    BusyLoadingError,
    ClusterDownError,
    MasterDownError,
    MovedError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
    TryAgainError,
    ValkeyError,
)

from pixiu.backends.redis.library import FUNCTIONS, LIBRARY, NAME, SCRIPTS
from pixiu.backends.redis.server import Command, Server
from pixiu.model.errors import CorruptData, PixiuError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pixiu.backends.redis.address import RedisAddress

__all__ = ["RedisClient", "slot_of"]

log = logging.getLogger(__name__)

SLOTS = 16384
_REDIRECTS_MAX = 4
_REDIRECT_SECONDS = 0.01
_PLACES = {"FCALL": 3, "EVALSHA": 3, "XGROUP": 2, "XREADGROUP": -2}
"""Where the key is in commands that do not have it behind their name; of the last one, with one stream."""
_GONE = (BusyLoadingError, ReadOnlyError, MasterDownError, ClusterDownError)
"""Answers of a server that is no master any more, or not yet: as good as none."""


class Topology:
    """The masters, and which one has a key."""

    def __init__(self, servers: list[Server], owners: list[Server] | None = None) -> None:
        self.servers = servers
        self.owners = owners
        """By slot, in a cluster."""
        self.lives: frozenset[bytes] = frozenset()
        """Which lives of which servers these are: a restart or a failover makes another."""
        self.shas: dict[str, str] = {}
        """Scripts by name, where functions are not known."""

    def of(self, key: str | bytes) -> Server:
        """The master that has this key."""
        owners = self.owners
        return self.servers[0] if owners is None else owners[slot_of(key)]

    def close(self) -> None:
        """Let go of all."""
        for server in self.servers:
            server.close()


def slot_of(key: str | bytes) -> int:
    """The slot of a key in a cluster."""
    return int(key_slot(key.encode() if isinstance(key, str) else key))


class RedisClient:
    """Asks Redis, wherever its master is now. ``when_connected`` is called after each new connection but the first."""

    def __init__(self, address: RedisAddress) -> None:
        self._address = address
        self._problem = ""
        self._fresh: Topology | None = None
        self._prober: threading.Thread | None = None
        self._closing = threading.Event()
        self.gate = ""
        """Why nothing may be asked although Redis is there; empty if it may."""
        self.when_connected: Callable[[], object] = lambda: None
        self.round_trips = 0
        self.commands = 0
        self._begun: Command | None = None
        """The call that nobody waits for, until its answer is there."""
        self._answer: Any = None
        try:
            self._topology = self._connected()
        except (ValkeyError, OSError) as error:
            raise self._unavailable(error) from error

    # What others ask.

    @property
    def is_cluster(self) -> bool:
        """Are keys in slots?"""
        return self._address.kind == "cluster"

    @property
    def lives(self) -> frozenset[bytes]:
        """Which lives of which servers are asked now."""
        return self._topology.lives

    @property
    def servers(self) -> list[Server]:
        """Every master."""
        return self._topology.servers

    @property
    def problem(self) -> str:
        """Why nothing can be asked; empty if all is well."""
        return self.gate or (self._problem if self._fresh is None else "")

    def ask(self, commands: Sequence[Command]) -> list[Any]:
        """One round trip. Raises ``Unavailable``, or ``CorruptData`` for an answer that makes no sense."""
        self._check(len(commands))
        try:
            answers = self._exchange(commands)
        except (ValkeyError, OSError) as error:
            self._down(error)
            raise self._unavailable(error) from error
        for answer in answers:
            if isinstance(answer, Exception):
                raise self._refused(answer) from answer
        return answers

    def call(self, name: str, key: str | bytes, *args: str | bytes | int) -> Any:
        """Call a function with one key."""
        return self.call_all(name, [(key, args)])[0]

    def call_all(self, name: str, calls: Sequence[tuple[str | bytes, Sequence[Any]]]) -> list[Any]:
        """Call a function with one key and its arguments, several times, in one round trip."""
        return self.ask([self._call_of(name, key, args) for key, args in calls])

    def begin(self, name: str, key: str | bytes, *args: str | bytes | int) -> None:
        """Call a function of one server and do not wait: ``end`` has the answer. One at a time."""
        self._check(1)
        command = self._call_of(name, key, args)
        try:
            self._topology.servers[0].send([command])
        except (ValkeyError, OSError) as error:
            self._down(error)
            raise self._unavailable(error) from error
        self._begun, self._answer = command, None

    def is_answered(self, waited_ms: int) -> bool:
        """Of what was begun so long ago: does ``end`` know the answer without waiting, or that it takes too long?"""
        if self._begun is None:
            return True
        try:
            if self._topology.servers[0].can_receive():
                return True
            if waited_ms > self._address.timeout_ms:
                raise TimeoutError("no answer in time")
        except (ValkeyError, OSError) as error:
            self._fail(error)
            return True
        return False

    def end(self) -> Any:
        """The answer to what was begun. Raises like ``ask``."""
        self.settle()
        answer, self._answer = self._answer, None
        if isinstance(answer, PixiuError):
            raise answer
        return answer

    def settle(self) -> None:
        """Wait for the answer to what was begun, and keep it for ``end``."""
        command, self._begun = self._begun, None
        if command is None:
            return
        try:
            answer = self._received(self._topology.servers[0], [command])[0]
        except (ValkeyError, OSError) as error:
            self._fail(error)
            return
        self._answer = self._refused(answer) if isinstance(answer, Exception) else answer

    def look(self) -> None:
        """See whether everybody is there, when nobody asks."""
        if self._begun is not None:  # its answer will tell
            return
        if self._problem and self._fresh is None:
            return
        if self._problem:
            self._return()
        try:
            for server in self._topology.servers:
                server.ask("PING")
        except (ValkeyError, OSError) as error:
            self._down(error)

    def close(self) -> None:
        """Let go."""
        self._closing.set()
        self._topology.close()
        if self._prober is not None:
            self._prober.join(2 * self._address.timeout_ms / 1000)
        if self._fresh is not None:
            self._fresh.close()

    # Questions and answers.

    def _check(self, commands: int) -> None:
        """Before as many are sent: may anything be asked? Raises ``Unavailable``."""
        if self._begun is not None:
            self.settle()
        if self._problem:
            self._return()
        if self.gate:
            raise Unavailable(self.gate)
        self.round_trips += 1
        self.commands += commands

    def _call_of(self, name: str, key: str | bytes, args: Sequence[Any]) -> Command:
        sha = self._topology.shas.get(name)
        if sha is not None:
            return ("EVALSHA", sha, 1, key, *args)
        return ("FCALL", f"{NAME}_{name}", 1, key, *args)

    def _exchange(self, commands: Sequence[Command]) -> list[Any]:
        topology = self._topology
        if topology.owners is None:
            server = topology.servers[0]
            server.send(commands)
            return self._received(server, commands)
        found: list[Any] = [None] * len(commands)
        left = list(range(len(commands)))
        for _ in range(_REDIRECTS_MAX):
            self._exchange_some(commands, left, found)
            left = [index for index in left if isinstance(found[index], (MovedError, AskError, TryAgainError))]
            if not left:
                break
            self._closing.wait(_REDIRECT_SECONDS)
            self._replace_topology()
        if any(isinstance(answer, Exception) for answer in found):
            found = self._answers_mended(commands, found)
        return found

    def _received(self, server: Server, commands: Sequence[Command]) -> list[Any]:
        answers = server.receive(len(commands))
        if any(isinstance(answer, Exception) for answer in answers):
            answers = self._answers_mended(commands, answers)
        return answers

    def _exchange_some(self, commands: Sequence[Command], indices: list[int], found: list[Any]) -> None:
        """Ask every master its part at once."""
        parts: dict[Server, list[int]] = {}
        for index in indices:
            parts.setdefault(self._topology.of(_place(commands[index])), []).append(index)
        for server, part in parts.items():
            server.send([commands[index] for index in part])
        for server, part in parts.items():
            for index, answer in zip(part, server.receive(len(part)), strict=True):
                found[index] = answer

    def _answers_mended(self, commands: Sequence[Command], answers: list[Any]) -> list[Any]:
        """Functions that are gone are loaded again; a server that is no master any more is as good as gone."""
        for answer in answers:
            if isinstance(answer, _GONE):
                raise answer
        missing = [index for index, answer in enumerate(answers) if _is_function_gone(answer)]
        if missing:
            for server in self._topology.servers:
                _load(server, self._topology)
            for index in missing:
                server = self._topology.of(_place(commands[index]))
                server.send([commands[index]])
                answers[index] = server.receive(1)[0]
        return answers

    def _refused(self, error: Exception) -> PixiuError:
        text = f"Redis at {self._address.where}: {error}"
        if isinstance(error, OutOfMemoryError):
            return Unavailable(f"Redis at {self._address.where} is at its memory limit: raise maxmemory, or make room")
        if isinstance(error, ResponseError) and str(error).startswith("WRONGTYPE"):
            return CorruptData(f"{text} (a key of another program?)")
        return Unavailable(text)

    def _unavailable(self, error: Exception) -> Unavailable:
        return Unavailable(f"Redis at {self._address.where} is down: {_text(error)}")

    # Connections.

    def _fail(self, error: Exception) -> None:
        """What was begun gets no answer."""
        self._down(error)
        self._begun, self._answer = None, self._unavailable(error)

    def _down(self, error: Exception) -> None:
        self._topology.close()
        self._problem = f"Redis at {self._address.where} is down: {_text(error)}"
        log.warning("Redis is down", extra={"where": self._address.where, "reason": _text(error)})
        if not self._closing.is_set():
            self._prober = threading.Thread(target=self._probe, name="pixiu-redis-probe", daemon=True)
            self._prober.start()

    def _return(self) -> None:
        """Take the connection that the thread has made, if there is one."""
        fresh = self._fresh
        if fresh is None:
            raise Unavailable(self._problem)
        self._topology, self._fresh, self._problem = fresh, None, ""
        log.info("Redis is back", extra={"where": self._address.where})
        self.when_connected()

    def _probe(self) -> None:
        while not self._closing.wait(self._address.probe_ms / 1000):
            try:
                topology = self._connected()
            except (ValkeyError, OSError) as error:
                self._problem = f"Redis at {self._address.where} is down: {_text(error)}"
                continue
            self._fresh = topology
            return

    def _connected(self) -> Topology:
        """Connections to every master, with the functions loaded."""
        kind = self._address.kind
        topology = self._cluster() if kind == "cluster" else Topology([self._leader()])
        try:
            for server in topology.servers:
                if server.ask("ROLE")[0] != b"master":
                    raise ReadOnlyError(f"{server.name} is no master")
                _load(server, topology)
            topology.lives = frozenset(map(_life, topology.servers))
        except BaseException:
            topology.close()
            raise
        return topology

    def _leader(self) -> Server:
        address = self._address
        if address.kind == "single":
            return Server(address, *address.hosts[0])
        problem: Exception = ReadOnlyError(f"no sentinel knows a master {address.watched!r}")
        for host, port in address.hosts:
            sentinel = Server(address, host, port, is_sentinel=True)
            try:
                found = sentinel.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", address.watched)
            except (ValkeyError, OSError) as error:
                problem = error
                continue
            finally:
                sentinel.close()
            if found:
                return Server(address, found[0].decode(), int(found[1]))
        raise problem

    def _cluster(self) -> Topology:
        """Ask any node which master has which slots."""
        problem: Exception = ClusterDownError("no node of the cluster answers")
        known = [tuple(server.name.rsplit(":", 1)) for server in getattr(self, "_topology", Topology([])).servers]
        for host, port in [*self._address.hosts, *((host, int(port)) for host, port in known)]:
            node = Server(self._address, host, port)
            try:
                ranges = node.ask("CLUSTER", "SLOTS")
            except (ValkeyError, OSError) as error:
                problem = error
                continue
            finally:
                node.close()
            servers: dict[str, Server] = {}
            owners: list[Server | None] = [None] * SLOTS
            for first, last, leader, *_ in ranges:
                place = (leader[0].decode() or host, int(leader[1]))
                server = servers.setdefault(f"{place[0]}:{place[1]}", Server(self._address, *place))
                owners[first : last + 1] = [server] * (last + 1 - first)
            whole = [server for server in owners if server is not None]
            if len(whole) == SLOTS:
                return Topology(list(servers.values()), whole)
            problem = ClusterDownError(f"{SLOTS - len(whole)} slots of the cluster have no master")
        raise problem

    def _replace_topology(self) -> None:
        """Slots have moved."""
        topology = self._connected()
        self._topology.close()
        self._topology = topology
        self.when_connected()


def _place(command: Command) -> str | bytes:
    """The key that says where a command belongs."""
    key: str | bytes = command[_PLACES.get(command[0], 1)]
    return key


def _load(server: Server, topology: Topology) -> None:
    """Load the functions; a server that does not know of any, or does not allow it, gets scripts."""
    try:
        server.ask("FUNCTION", "LOAD", "REPLACE", LIBRARY)
    except ResponseError as error:
        if "unknown command" not in str(error).lower() and not isinstance(error, NoPermissionError):
            raise
        for name in FUNCTIONS:
            server.ask("SCRIPT", "LOAD", SCRIPTS[name])
            topology.shas[name] = hashlib.sha1(SCRIPTS[name].encode(), usedforsecurity=False).hexdigest()


def _life(server: Server) -> bytes:
    """What a server calls its own life, from its start to its end."""
    lines: list[bytes] = server.ask("INFO", "server").splitlines()
    return next((line for line in lines if line.startswith(b"run_id:")), b"")


def _is_function_gone(answer: object) -> bool:
    return isinstance(answer, NoScriptError) or (
        isinstance(answer, ResponseError) and "unction not found" in str(answer)
    )


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__
