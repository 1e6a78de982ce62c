"""What an operator should know of a Cassandra before Pixiu keeps timelines in it. Looks, and changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pixiu.backends.cassandra.link import connect_once
from pixiu.model.errors import PixiuError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pixiu.backends.cassandra.address import Address

__all__ = ["Finding", "examine"]

OLDEST = (4, 0)
NODES_GOOD = 3


class Finding(NamedTuple):
    """One thing that was looked at."""

    name: str
    state: Literal["ok", "warn", "fail"]
    text: str
    advice: str = ""


def examine(address: Address) -> Iterator[Finding]:
    """One after the other; a cluster that does not answer is one finding."""
    try:
        cluster, session, errors = connect_once(address)
    except PixiuError as error:
        yield Finding("timelines", "fail", str(error), "start it, or correct timelines = … in the settings")
        return
    try:
        yield _version(session)
        yield _nodes(cluster)
        found = cluster.metadata.keyspaces.get(address.keyspace)
        if found is None:
            copies = address.replicas or min(3, len(cluster.metadata.all_hosts()))
            advice = "" if copies > 1 else _one_copy(address.keyspace)
            text = f"keyspace {address.keyspace} is not there yet: the first start makes it, with {copies} copies"
            yield Finding("timelines keyspace", "warn" if advice else "ok", text, advice)
        else:
            yield from _keyspace(found, session)
    except errors as error:
        yield Finding("timelines", "fail", f"{address}: {error}", "look at its log")
    finally:
        cluster.shutdown()


def _version(session: Any) -> Finding:
    version = str(session.execute("SELECT release_version FROM system.local").one()[0])
    tables = "SELECT table_name FROM system_schema.tables WHERE keyspace_name='system' AND table_name='versions'"
    if session.execute(tables).one() is not None:  # ScyllaDB's own table; as Cassandra it calls itself 3.0.8 for good
        rows = list(session.execute("SELECT version FROM system.versions"))
        return Finding("timelines engine", "ok", f"ScyllaDB {rows[0][0] if rows else '(no version)'}")
    numbers = tuple(int(part) for part in version.split("-")[0].split(".")[:2] if part.isdecimal())
    if numbers < OLDEST:
        return Finding(
            "timelines engine", "warn", f"Cassandra {version}", "Pixiu is tested with 5.0: take 4.0 or newer"
        )
    return Finding("timelines engine", "ok", f"Cassandra {version}")


def _nodes(cluster: Any) -> Finding:
    hosts = cluster.metadata.all_hosts()
    down = [host.address for host in hosts if host.is_up is False]
    if down:
        return Finding("timelines nodes", "warn", f"{len(hosts)}, of which {', '.join(down)} down", "start them again")
    if len(hosts) < NODES_GOOD:
        advice = f"one lost node stops history: {NODES_GOOD} nodes with three copies survive it"
        return Finding("timelines nodes", "warn", str(len(hosts)), advice)
    return Finding("timelines nodes", "ok", str(len(hosts)))


def _keyspace(keyspace: Any, session: Any) -> Iterator[Finding]:
    name = f"keyspace {keyspace.name}"
    strategy = type(keyspace.replication_strategy).__name__
    factors = _factors(keyspace.replication_strategy)
    copies = ", ".join(f"{count} in {center}" for center, count in factors.items())
    text = f"{strategy}, copies: {copies or 'not said'}"
    if factors and min(factors.values()) < 2:
        yield Finding(f"timelines {name}", "warn", text, _one_copy(keyspace.name))
    elif strategy == "SimpleStrategy":
        advice = f"it knows no data centers: ALTER KEYSPACE {keyspace.name} to NetworkTopologyStrategy"
        yield Finding(f"timelines {name}", "warn", text, advice)
    else:
        yield Finding(f"timelines {name}", "ok", text)
    if not keyspace.durable_writes:
        advice = f"a restart loses rows: ALTER KEYSPACE {keyspace.name} WITH durable_writes = true"
        yield Finding(f"timelines {name}", "fail", "durable_writes is off", advice)
    if "pixiu_applied" in keyspace.tables:
        asked = f"SELECT event_id, layout FROM {keyspace.name}.pixiu_applied WHERE lane='timelines'"
        row = session.execute(asked).one()
        if row is not None:
            yield Finding("timelines rows", "ok", f"written through event {row[0]}, layout {row[1]}")


def _factors(strategy: Any) -> dict[str, int]:
    """Copies by data center."""
    found: dict[str, int] = {}
    for name, info in getattr(strategy, "dc_replication_factors_info", {}).items():
        found[name] = int(info.all_replicas)
    info = getattr(strategy, "replication_factor_info", None)
    if info is not None:
        found["all"] = int(info.all_replicas)
    return found


def _one_copy(keyspace: str) -> str:
    return (
        "one copy of each row: a lost disk loses history until pixiu rebuild makes it again. ALTER KEYSPACE "
        f"{keyspace} WITH replication = {{'class': 'NetworkTopologyStrategy', 'replication_factor': 3}}, then repair"
    )
