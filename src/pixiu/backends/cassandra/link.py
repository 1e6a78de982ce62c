"""The connection to Cassandra: the driver, its statements, and a breaker.

A server that does not answer in time is not asked again by whoever needs an answer: they are told ``Unavailable`` at
once. The sender's thread asks once a second whether it is back (``probe``).
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from pixiu.backends.cassandra.layout import Layout, plain_page
from pixiu.backends.tls import read_secret, tls_context
from pixiu.config.extras import how_to_install
from pixiu.model.errors import ConfigError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pixiu.backends.cassandra.address import Address

__all__ = ["PROBE_SECONDS", "Link", "connect_once"]

log = logging.getLogger(__name__)

PROBE_SECONDS = 1.0
CONNECT_SECONDS = 15.0
"""How long a start waits, at least, for servers that are starting, too."""
CONNECT_ATTEMPTS = 15
FETCH_ROWS = 1000
"""Rows of one page of the protocol; a larger answer is fetched page by page."""
CONCURRENCY = 64
"""Writes on their way at a time."""
SCHEMA_SECONDS = 30.0

TIMELINES = "timelines"
FILLED = "filled by "
"""Before the name of the node whose log a keyspace was filled from in bulk, in place of a lane's name."""


class Link:
    """One session with a cluster. Reads come from one thread, writes and probes from another: the driver allows it."""

    def __init__(self, address: Address, layout: Layout) -> None:
        """Connect, make what is missing, prepare the statements. Raises ``ConfigError`` and ``Unavailable``."""
        self.address = address
        self.layout = layout
        self.problem = ""
        """Why it is not asked now; empty if it is."""
        self._was_gone = False
        """Since it answered last, so that what it had not synced may be lost."""
        self.requests = 0
        """Statements and batches that were sent: a benchmark counts them."""
        self.batches = 0
        """The logged batches among them."""
        self._timeout = address.timeout_ms / 1000
        driver = _driver()
        self._errors: tuple[type[Exception], ...] = driver.errors
        self._batch = driver.batch
        self._clock = driver.timestamps()
        self._cluster = driver.cluster(address, self._clock)
        try:
            self._session = self._connected()
            self._make_tables()
            self.statements = self._prepare()
            self._read_clock()
        except self._errors as error:
            self._cluster.shutdown()
            raise Unavailable(f"{address}: {_reason(error)}") from error
        except BaseException:
            self._cluster.shutdown()
            raise

    # Opening.

    def _connected(self) -> Any:
        pause = threading.Event()
        for left in reversed(range(CONNECT_ATTEMPTS)):
            try:
                return self._cluster.connect()
            except self._errors as error:
                if not left or "AuthenticationFailed" in repr(error):
                    raise
                pause.wait(CONNECT_SECONDS / CONNECT_ATTEMPTS)
        raise AssertionError("the last attempt raises")

    def _make_tables(self) -> None:
        keyspace, execute = self.address.keyspace, self._session.execute
        if keyspace not in self._cluster.metadata.keyspaces:
            replicas = self.address.replicas or min(3, len(self._cluster.metadata.all_hosts()))
            options = f"{{'class': 'NetworkTopologyStrategy', 'replication_factor': {replicas}}}"
            execute(f"CREATE KEYSPACE IF NOT EXISTS {keyspace} WITH replication = {options}", timeout=SCHEMA_SECONDS)
        known = self._cluster.metadata.keyspaces[keyspace].tables
        for table, statement in self.layout.tables().items():
            if table not in known:
                execute(statement.format(keyspace=keyspace), timeout=SCHEMA_SECONDS)
        self._session.set_keyspace(keyspace)
        known = self._cluster.metadata.keyspaces[keyspace].tables
        for table, key in self.layout.keys().items():
            partition = [column.name for column in known[table].partition_key]
            rest = [column.name for column in known[table].clustering_key]
            if (partition, rest) != key:
                raise ConfigError(
                    f"{keyspace}.{table} has the key (({', '.join(partition)}), {', '.join(rest)}), which is not that "
                    f"of layout {self.layout.name}: name the layout that it has (?layout=…), or another keyspace"
                )
        if not self.layout.has_prev_table and "prev" not in known["gchat"].columns:
            raise ConfigError(f"{keyspace}.gchat has no column prev: ALTER TABLE {keyspace}.gchat ADD prev bigint")

    def _prepare(self) -> dict[str, Any]:
        layout = self.layout
        topic = ("pk", "uid1", "uid2")
        where_topic = "pk=? AND uid1=? AND uid2=?"
        texts = {
            "put_private": layout.put_private(),
            "put_group": layout.put_group(),
            "mark_private": layout.mark_private(),
            "recall_private": layout.recall_private(),
            "recall_group": layout.recall_group(),
            "drop_private": layout.drop("pchat", "uid1"),
            "drop_group": layout.drop("gchat", "gid"),
            "put_topic": f"INSERT INTO pixiu_topic ({', '.join(topic)}, id, io, st, tm1, tm2) "
            f"VALUES ({', '.join('?' * 8)})",
            "mark_topic": f"UPDATE pixiu_topic SET st=?, tm1=?, tm2=? WHERE {where_topic} AND id=?",
            "drop_topic": f"DELETE FROM pixiu_topic WHERE {where_topic} AND id<=?",
            "position": "SELECT event_id, highest FROM pixiu_applied WHERE lane=?",
            "reach": "INSERT INTO pixiu_applied (lane, event_id, layout) VALUES (?, ?, ?)",
            "rise": "INSERT INTO pixiu_applied (lane, highest) VALUES (?, ?)",
        }
        for suffix, is_back in (("", False), ("_back", True)):
            texts[f"pchat{suffix}"] = layout.page("pchat", is_back=is_back)
            texts[f"gchat{suffix}"] = layout.page("gchat", is_back=is_back)
            texts[f"topic{suffix}"] = plain_page("id, io, st, tm1, tm2", "pixiu_topic", topic, is_back=is_back)
            if layout.has_prev_table:
                texts[f"prev{suffix}"] = plain_page("id, prev", "pixiu_prev", ("pk", "gid"), is_back=is_back)
        if layout.has_prev_table:
            texts["put_prev"] = "INSERT INTO pixiu_prev (pk, gid, id, prev) VALUES (?, ?, ?, ?)"
            texts["drop_prev"] = "DELETE FROM pixiu_prev WHERE pk=? AND gid=? AND id<=?"
        if layout.is_bucketed:
            texts["buckets"] = "SELECT bucket FROM pixiu_bucket WHERE kind=? AND owner=?"
            texts["put_bucket"] = "INSERT INTO pixiu_bucket (kind, owner, bucket) VALUES (?, ?, ?)"
            texts["drop_buckets"] = "DELETE FROM pixiu_bucket WHERE kind=? AND owner=? AND bucket<?"
        prepared = {name: self._session.prepare(text) for name, text in texts.items()}
        for statement in prepared.values():
            statement.is_idempotent = True
        return prepared

    def _read_clock(self) -> None:
        """Writes go on above every one before, whatever the clock says: the newer time stamp wins."""
        times = "WRITETIME(event_id), WRITETIME(highest)"
        found = self._session.execute(f"SELECT {times} FROM pixiu_applied WHERE lane='{TIMELINES}'").one()
        for stamp in found or ():
            self._clock.last = max(self._clock.last, stamp or 0)

    # Reads.

    def read(self, name: str, *values: object) -> list[Any]:
        """All rows of an answer, as tuples. Raises ``Unavailable``."""
        self.check()
        self.requests += 1
        try:
            return list(self._session.execute(self.statements[name], values, timeout=self._timeout))
        except self._errors as error:
            raise self.trip(error) from error

    def read_both(self, first: tuple[str, tuple[object, ...]], second: tuple[str, tuple[object, ...]]) -> Any:
        """Two answers in the time of one. Raises ``Unavailable``."""
        self.check()
        self.requests += 2
        try:
            asked = [self._session.execute_async(self.statements[name], values) for name, values in (first, second)]
            return [list(each.result()) for each in asked]
        except self._errors as error:
            raise self.trip(error) from error

    # Writes. Only the sender's thread calls these.

    def write(self, writes: Iterable[list[tuple[str, tuple[object, ...]]]]) -> None:
        """Each list is one statement, or one logged batch. Returns when all are acknowledged; raises the driver's."""
        on_the_way: deque[Any] = deque()
        for parts in writes:
            if len(on_the_way) >= CONCURRENCY:
                on_the_way.popleft().result()
            if len(parts) == 1:
                name, values = parts[0]
                asked = self._session.execute_async(self.statements[name], values, timeout=self._timeout)
            else:
                batch = self._batch()
                for name, values in parts:
                    batch.add(self.statements[name], values)
                asked = self._session.execute_async(batch, timeout=self._timeout)
                self.batches += 1
            on_the_way.append(asked)
            self.requests += 1
        for asked in on_the_way:
            asked.result()

    def clear(self) -> None:
        """Empty every table of ours. Raises ``Unavailable``."""
        try:
            self._session.execute(f"DELETE FROM pixiu_applied WHERE lane='{TIMELINES}'")
            for table in self.layout.tables():
                self._session.execute(f"TRUNCATE {table}", timeout=SCHEMA_SECONDS)
        except self._errors as error:
            raise self.trip(error) from error

    # Filling.

    def first_row(self) -> str:
        """A table of ours that has rows; empty if none has. Raises ``Unavailable``."""
        try:
            for table in self.layout.tables():
                if self._session.execute(f"SELECT * FROM {table} LIMIT 1", timeout=SCHEMA_SECONDS).one() is not None:
                    return table
        except self._errors as error:
            raise self.trip(error) from error
        return ""

    def filled_by(self, node: str) -> int | None:
        """Through which event a bulk load from this node's log has filled it; 0: not to its end, None: none has."""
        rows = self.read("position", FILLED + node)
        return None if not rows else int(rows[0][0] or 0)

    def note_filled(self, node: str, event_id: int | None) -> None:
        """Note it; None takes the note away. Raises ``Unavailable``."""
        try:
            if event_id is None:
                self._session.execute("DELETE FROM pixiu_applied WHERE lane=%s", (FILLED + node,))
            else:
                self._session.execute(self.statements["reach"], (FILLED + node, event_id, self.layout.name))
        except self._errors as error:
            raise self.trip(error) from error

    # The breaker.

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """What the driver raises when a server is down, slow, or refuses."""
        return self._errors

    def check(self) -> None:
        """Raise ``Unavailable`` if it did not answer the last time."""
        if self.problem:
            raise Unavailable(self.problem, retry_after_ms=int(PROBE_SECONDS * 1000))

    def trip(self, error: Exception) -> Unavailable:
        """It did not answer. Returns what to raise."""
        if not self.problem:
            log.warning("timelines do not answer", extra={"address": str(self.address), "reason": _reason(error)})
        self._note(error)
        return Unavailable(self.problem, retry_after_ms=int(PROBE_SECONDS * 1000))

    def probe(self, mend: Callable[[], object]) -> bool:
        """Does it answer again? If it was gone, and not only slow, ``mend`` is called before anybody else may ask."""
        try:
            self._session.execute(self.statements["position"], (TIMELINES,), timeout=self._timeout)
            if self._was_gone:
                mend()
        except self._errors as error:
            self._note(error)
            return False
        if self.problem:
            log.info("timelines answer again", extra={"address": str(self.address)})
        self.problem, self._was_gone = "", False
        return True

    def _note(self, error: Exception) -> None:
        self.problem = f"{self.address}: {_reason(error)}"
        self._was_gone = self._was_gone or not _is_slow(error)

    def close(self) -> None:
        """Let go."""
        self._cluster.shutdown()


def connect_once(address: Address) -> tuple[Any, Any, tuple[type[Exception], ...]]:
    """Cluster, session and what they raise, for a look at it. Raises ``ConfigError`` and ``Unavailable``."""
    driver = _driver()
    cluster = driver.cluster(address, driver.timestamps())
    try:
        return cluster, cluster.connect(), driver.errors
    except driver.errors as error:
        cluster.shutdown()
        raise Unavailable(f"{address}: {_reason(error)}") from error


def _is_slow(error: Exception) -> bool:
    """Did it only take too long? Then it has what it has; writing more to it would make it slower still."""
    of_hosts = getattr(error, "errors", None)
    if type(error).__name__ == "NoHostAvailable" and isinstance(of_hosts, dict) and of_hosts:
        return all(map(_is_slow, of_hosts.values()))
    return type(error).__name__ in ("OperationTimedOut", "ReadTimeout", "WriteTimeout")


def _reason(error: Exception) -> str:
    """The first line of what the driver says, in bounds; an error of several hosts names them all."""
    said = " ".join(str(error).split()) or type(error).__name__
    if type(error).__name__ == "OperationTimedOut":
        return "no answer in time"
    if type(error).__name__ == "NoHostAvailable" and not getattr(error, "errors", None):
        return "no server can be reached"
    return said[:200]


class _driver:  # noqa: N801 - a namespace of what is imported late: the driver is optional, and takes 200 ms to load
    """The driver's names. Raises ``ConfigError`` where it is not installed."""

    def __init__(self) -> None:
        try:
            from cassandra import DriverException
            from cassandra.cluster import NoHostAvailable
            from cassandra.connection import ConnectionBusy, ConnectionException
            from cassandra.pool import NoConnectionsAvailable
            from cassandra.protocol import ErrorMessage
            from cassandra.query import BatchStatement
            from cassandra.timestamps import MonotonicTimestampGenerator
        except ImportError as error:
            raise ConfigError(
                f"timelines are in Cassandra, and its driver is not installed ({error}); "
                f"install it with: {how_to_install('cassandra')}"
            ) from error
        self.errors = (
            DriverException, NoHostAvailable, ConnectionException, ConnectionBusy, NoConnectionsAvailable,
            ErrorMessage,  # what a server that starts or stops says has no other class
            OSError,
        )  # fmt: skip
        self.batch = BatchStatement
        self.timestamps = MonotonicTimestampGenerator

    def cluster(self, address: Address, clock: Any) -> Any:
        """Not connected yet."""
        from cassandra import ConsistencyLevel
        from cassandra.auth import PlainTextAuthProvider
        from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
        from cassandra.policies import ConstantReconnectionPolicy, DCAwareRoundRobinPolicy, TokenAwarePolicy
        from cassandra.query import tuple_factory

        near = DCAwareRoundRobinPolicy(local_dc=address.datacenter)
        profile = ExecutionProfile(
            load_balancing_policy=TokenAwarePolicy(near),
            consistency_level=ConsistencyLevel.LOCAL_QUORUM,
            request_timeout=address.timeout_ms / 1000,
            row_factory=tuple_factory,
        )
        login = None
        if address.user:
            password = read_secret(address.password_file, "timelines") if address.password_file else ""
            login = PlainTextAuthProvider(address.user, password)
        logging.getLogger("cassandra").setLevel(logging.CRITICAL)  # what matters is in what we raise and log
        cluster = Cluster(
            list(address.hosts),
            port=address.port,
            auth_provider=login,
            ssl_context=tls_context(address.tls, "timelines"),
            execution_profiles={EXEC_PROFILE_DEFAULT: profile},
            reconnection_policy=ConstantReconnectionPolicy(PROBE_SECONDS, max_attempts=None),
            timestamp_generator=clock,
            connect_timeout=address.timeout_ms / 1000,
            control_connection_timeout=address.timeout_ms / 1000,
            idle_heartbeat_interval=5,
            idle_heartbeat_timeout=2,
        )
        cluster.default_fetch_size = FETCH_ROWS
        return cluster
