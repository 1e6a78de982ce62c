"""The books of a cluster: each partition's own, from whoever serves it, added up.

A partition's books are exact at its own cut of the log. What is accepted is counted where the sender is, what is meant
for someone where that user is, so that every message and every inbox entry is counted once. The whole balances if every
partition is there, under one count of partitions, and every one of them balances.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from pixiu.backends.zookeeper.registry import ZooKeeperRegistry
from pixiu.links.member import COUNT_KEY
from pixiu.model.errors import NotFound, PixiuError, Unavailable
from pixiu.roles.carrier.audit import NAMED_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
"""An audit that ended without books is begun again once: its carrier may have changed."""
PATIENCE_SECONDS = 15.0
"""How long a partition that nobody serves is waited for."""


def sum_reports(reports: Sequence[Mapping[str, Any]], count: int) -> dict[str, Any]:
    """One report of them all. ``missing`` names partitions that have none, ``partitions`` each one's own result."""
    by_partition = {int(report["partition"]): report for report in reports}
    missing = [partition for partition in range(count) if partition not in by_partition]
    disagreeing = [each for each, report in by_partition.items() if report["partitions"] != count]
    total: dict[str, Any] = {name: sum(int(report[name]) for report in by_partition.values()) for name in COUNTS}
    for name in ("lost", "duplicates"):
        total[name] = [row for report in by_partition.values() for row in report[name]][:NAMED_MAX]
    total["cut"] = min((int(report["cut"]) for report in by_partition.values()), default=0)
    total["partitions"] = [
        {key: report[key] for key in ("partition", "name", "cut", "intended", "waiting", "balanced")}
        for _, report in sorted(by_partition.items())
    ]
    total["missing"] = missing
    total["balanced"] = (
        not missing and not disagreeing and all(bool(report["balanced"]) for report in by_partition.values())
    )
    return total


async def audit_cluster(registry: RegistryAddress, *, at_least: int = 0, before: int | None = None) -> dict[str, Any]:
    """Ask whoever serves each partition, all at once, and add up. Raises ``NotFound`` where there are no carriers."""
    loop = asyncio.get_running_loop()
    session = ZooKeeperRegistry(registry.hosts, loop)
    await loop.run_in_executor(None, session.connect)
    try:
        folder = await _read(session, f"{registry.root}/shard")
        count = _count(folder, registry)
        reports = await asyncio.gather(
            *(
                _audited(session, f"{registry.root}/shard/partition{partition}", _query(at_least, before))
                for partition in range(count)
            )
        )
    finally:
        await loop.run_in_executor(None, session.close)
    return sum_reports([report for report in reports if report is not None], count)


def _query(at_least: int, before: int | None) -> str:
    return f"?from={at_least}" + ("" if before is None else f"&to={before}")


async def _read(session: ZooKeeperRegistry, path: str) -> Folder:
    answer: asyncio.Future[Folder | PixiuError] = asyncio.get_running_loop().create_future()
    session.read(path, answer.set_result)
    async with asyncio.timeout(ASK_SECONDS):
        found = await answer
    if isinstance(found, PixiuError):
        raise found
    return found


def _count(folder: Folder, registry: RegistryAddress) -> int:
    entry = folder.get("partition_num")
    count = None if entry is None else entry.data.get(COUNT_KEY)
    if not isinstance(count, int) or count < 1:
        raise NotFound(
            f"no carrier was ever registered below {registry.root}/carrier at {registry.hosts}; "
            "pixiu cluster status --json has the registry of a cluster that runs here"
        )
    return count


async def _audited(session: ZooKeeperRegistry, folder: str, query: str) -> dict[str, Any] | None:
    """The report of one partition; None if nobody serves it for too long."""
    loop = asyncio.get_running_loop()
    give_up, patience = loop.time() + AUDIT_SECONDS, loop.time() + PATIENCE_SECONDS
    failures = 0
    while loop.time() < give_up:
        entry = (await _read(session, f"{folder}/leader")).get("")
        admin = "" if entry is None else str(entry.data.get("admin", ""))
        status, found = await asyncio.to_thread(_get, f"http://{admin}/audit{query}") if admin else (503, {})
        if status == 200:
            return found
        if status == 202:
            patience = loop.time() + PATIENCE_SECONDS
        elif status == FAILED and (failures := failures + 1) >= FAILURES_MAX:
            raise Unavailable(f"{folder.rpartition('/')[2]}: {_words(found)}")
        elif loop.time() > patience:
            return None
        await asyncio.sleep(POLL_SECONDS)
    raise Unavailable(f"the audit of {folder} takes longer than {AUDIT_SECONDS:g} s")


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


def _words(found: dict[str, Any]) -> str:
    error = found.get("error")
    return str(error.get("message", "")) if isinstance(error, dict) else str(error or "the audit did not end")
