"""The audit of a cluster: each shard's own, taken by the replica that leads it.

A shard's audit is exact as of one event of its log. The cluster balances if every shard has a report, and every report
balances. Counts are added up over the shards.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from pixiu.backends.zookeeper.registry import ZooKeeperRegistry
from pixiu.links.member import COUNT_KEY, count_path
from pixiu.model.errors import NotFound, PixiuError, Unavailable
from pixiu.queue.replication.control import LEADER, SHARD, partition_folder
from pixiu.roles.carrier.audit import NAMED_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pixiu.config.registry import RegistryAddress
    from pixiu.ports.registry import Folder

__all__ = ["audit_cluster", "sum_reports"]

COUNTS = (
    "accepted", "stored", "intended", "acked", "waiting", "expired", "dead", "resent", "undecodable",
    "histories", "lost_count", "duplicate_count",
)  # fmt: skip
POLL_SECONDS = 0.2
ASK_SECONDS = 5.0
AUDIT_SECONDS = 610.0
FAILED = 500
FAILURES_MAX = 2
"""An audit that failed is started again once: another replica may lead by then."""
PATIENCE_SECONDS = 15.0
"""How long to wait for a leader."""


def sum_reports(reports: Mapping[int, Mapping[str, Any]], count: int) -> dict[str, Any]:
    """Add up the reports of ``count`` shards, given by number. ``missing`` lists the shards without a report."""
    rows = [reports[shard] for shard in sorted(reports)]
    missing = [shard for shard in range(count) if shard not in reports]
    total: dict[str, Any] = {name: sum(int(report[name]) for report in rows) for name in COUNTS}
    for name in ("lost", "duplicates"):
        total[name] = [row for report in rows for row in report[name]][:NAMED_MAX]
    total["cut"] = min((int(report["cut"]) for report in rows), default=0)
    total["shards"] = [
        {"shard": shard} | {key: reports[shard][key] for key in ("name", "cut", "intended", "waiting", "balanced")}
        for shard in sorted(reports)
    ]
    total["missing"] = missing
    total["balanced"] = bool(rows) and not missing and all(bool(report["balanced"]) for report in rows)
    return total


async def audit_cluster(registry: RegistryAddress, *, at_least: int = 0, before: int | None = None) -> dict[str, Any]:
    """Ask the leader of each shard for an audit, all at once, and add up. Raises ``NotFound`` if there is no shard."""
    loop = asyncio.get_running_loop()
    session = ZooKeeperRegistry(registry.hosts, loop)
    await loop.run_in_executor(None, session.connect)
    try:
        count = _count(await _read(session, count_path(registry.root, SHARD)), registry)
        query = f"?from={at_least}" + ("" if before is None else f"&to={before}")
        found = await asyncio.gather(
            *(_audited(session, f"{partition_folder(registry.root, shard)}/{LEADER}", query) for shard in range(count))
        )
    finally:
        await loop.run_in_executor(None, session.close)
    return sum_reports({shard: report for shard, report in enumerate(found) if report is not None}, count)


async def _read(session: ZooKeeperRegistry, path: str) -> Folder:
    answer: asyncio.Future[Folder | PixiuError] = asyncio.get_running_loop().create_future()
    session.read(path, lambda found: None if answer.done() else answer.set_result(found))
    try:
        found = await asyncio.wait_for(answer, ASK_SECONDS)
    except TimeoutError:
        raise Unavailable(f"the registry has not answered within {ASK_SECONDS:g} s") from None
    if isinstance(found, PixiuError):
        raise found
    return found


def _count(folder: Folder, registry: RegistryAddress) -> int:
    entry = folder.get("")
    count = None if entry is None else entry.data.get(COUNT_KEY)
    if not isinstance(count, int) or count < 1:
        raise NotFound(
            f"no shard is registered below {registry.root}/{SHARD} at {registry.hosts}; "
            "pixiu cluster status --json has the registry of a cluster that runs here"
        )
    return count


async def _audited(session: ZooKeeperRegistry, path: str, query: str) -> dict[str, Any] | None:
    """The report of the shard whose leader is at ``path``; None if it has no leader for too long."""
    loop = asyncio.get_running_loop()
    give_up, patience = loop.time() + AUDIT_SECONDS, loop.time() + PATIENCE_SECONDS
    failures = 0
    while loop.time() < give_up:
        entry = (await _read(session, path)).get("")
        admin = "" if entry is None else str(entry.data.get("admin", ""))
        status, found = await asyncio.to_thread(_get, f"http://{admin}/audit{query}") if admin else (503, {})
        if status == 200:
            return found
        if status == 202:
            patience = loop.time() + PATIENCE_SECONDS
        elif status == FAILED and (failures := failures + 1) >= FAILURES_MAX:
            raise Unavailable(f"{path}: {_reason(found)}")
        elif loop.time() > patience:
            return None
        await asyncio.sleep(POLL_SECONDS)
    raise Unavailable(f"the audit of the shard at {path} takes longer than {AUDIT_SECONDS:g} s")


def _get(url: str) -> tuple[int, dict[str, Any]]:
    try:
        with urlopen(url, timeout=ASK_SECONDS) as response:
            return response.status, json.load(response)
    except HTTPError as error:
        with error, suppress(ValueError, OSError):
            found = json.load(error)
            return error.code, found if isinstance(found, dict) else {}
        return error.code, {}
    except (URLError, OSError, ValueError):
        return 503, {}


def _reason(found: dict[str, Any]) -> str:
    error = found.get("error")
    return str(error.get("message", "")) if isinstance(error, dict) else str(error or "the audit failed")
