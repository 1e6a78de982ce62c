"""``api.Administration`` at a gateway of a cluster: carriers are asked for their own, and their answers put together.

Sessions and kicks concern all partitions. Dead letters, scheduled sends and topics are in the log, which every carrier
reads: one is asked. What is of one process, or of the log's own files, is not here; the refusal says where it is.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NoReturn

from pixiu.im.draft import Actor
from pixiu.model.errors import NotFound, PixiuError, Unavailable
from pixiu.node.admin.remote import ADMIN_PREFIX
from pixiu.node.processes.gateway.audit import audit_cluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pixiu.config.registry import RegistryAddress
    from pixiu.im.draft import Answer, Params
    from pixiu.ports.registry import Folder, Registry
    from pixiu.roles.gateway.carriers import CarrierLinks, Partition

__all__ = ["ClusterAdministration"]

ASK_SECONDS = 10.0
FIND_SECONDS = 2.0
RETRY_MS = 1_000
REPLICA = "pixiu-cluster/nodes/queue-0-0"
"""Where ``pixiu cluster up`` keeps a replica of the log."""
ADMIN = Actor(0, "", "", 0, is_admin=True)


class ClusterAdministration:
    """Looks after a cluster by asking its carriers."""

    def __init__(
        self, carriers: CarrierLinks, address: RegistryAddress, *, registry: Registry | None = None, root: str = ""
    ) -> None:
        """``registry`` is where the map is found; ``address`` is for an audit, which has a session of its own."""
        self._carriers = carriers
        self._address = address
        self._registry = registry
        self._root = root

    # What the carriers say.

    async def sessions(self, user: str | None, after: int, limit: int) -> list[Answer]:
        """Of all partitions, newest first."""
        params: Params = {"after": after, "limit": limit, **({} if user is None else {"user": user})}
        rows = [row for answer in await self._all("sessions", params) for row in _rows(answer)]
        return sorted(rows, key=lambda row: -int(str(row["session_id"])))[:limit]

    async def kick(self, user: str, session_id: int | None, reason: str) -> int:
        """Wherever the user's sessions are."""
        params: Params = {"user": user, "reason": reason}
        if session_id is not None:
            params["session_id"] = session_id
        return sum(int(str(answer["kicked"])) for answer in await self._all("kick", params))

    async def dead_letters(self, after: int, limit: int) -> list[Answer]:
        """Of the whole cluster: they are in the log."""
        return _rows(await self._any("dead_letters", {"after": after, "limit": limit}))

    async def replay(self, dead_letter_id: int) -> None:
        """Give one back; whoever it concerns takes it up."""
        await self._any("replay", {"id": dead_letter_id})

    async def scheduled(self, after: int, limit: int) -> list[Answer]:
        """Of the whole cluster."""
        return _rows(await self._any("scheduled", {"after": after, "limit": limit}))

    async def topics(self, after: str, limit: int) -> list[Answer]:
        """Of the log, without sizes."""
        return _rows(await self._any("topics", {"after": after, "limit": limit}))

    async def audit(self, at_least: int, before: int | None) -> Answer:
        """The books of all partitions, added up."""
        return await audit_cluster(self._address, at_least=at_least, before=before)

    async def _all(self, question: str, params: Params) -> list[Answer]:
        partitions = list(self._carriers.partitions.values())
        if not partitions:
            raise Unavailable("this cluster has no carriers", retry_after_ms=RETRY_MS)
        return await asyncio.gather(*(self._ask(each, question, params) for each in partitions))

    async def _any(self, question: str, params: Params) -> Answer:
        """One that can be reached; it has read the whole log."""
        up = [each for each in self._carriers.partitions.values() if each.link.is_up]
        if not up:
            raise Unavailable("no carrier can be reached", retry_after_ms=RETRY_MS)
        return await self._ask(up[0], question, params)

    async def _ask(self, at: Partition, question: str, params: Params) -> Answer:
        answered: asyncio.Future[Answer | PixiuError] = asyncio.get_running_loop().create_future()
        at.link.call(
            ADMIN, ADMIN_PREFIX + question, params,
            lambda answer: None if answered.done() else answered.set_result(answer),
        )  # fmt: skip
        try:
            answer = await asyncio.wait_for(answered, ASK_SECONDS)
        except TimeoutError:
            answer = Unavailable(f"partition {at.number} has not answered", retry_after_ms=RETRY_MS)
        if isinstance(answer, Unavailable):
            raise Unavailable(f"partition {at.number}: {answer}", retry_after_ms=answer.retry_after_ms or RETRY_MS)
        if isinstance(answer, PixiuError):
            raise answer
        return answer

    # What is elsewhere.

    async def stats(self) -> Answer:
        """Numbers are of processes."""
        found = await self._map_address()
        where = f"the map has those of all processes: {found}" if found else "pixiu role meta makes a map of them all"
        _elsewhere("what one node counts", f"{where} (and /cluster.json there)")

    async def stats_history(self, after: int) -> Answer:
        """Elsewhere, as ``stats`` is."""
        return await self.stats()

    async def _map_address(self) -> str:
        """Where a meta shows its map; empty if there is none, or nobody knows."""
        if self._registry is None:
            return ""
        answered: asyncio.Future[Folder | PixiuError] = asyncio.get_running_loop().create_future()

        def read(answer: Folder | PixiuError) -> None:
            if not answered.done():
                answered.set_result(answer)

        self._registry.read(f"{self._root}/meta", read)
        try:
            found = await asyncio.wait_for(answered, FIND_SECONDS)
        except TimeoutError:
            return ""
        if isinstance(found, PixiuError):
            return ""
        admins = [str(entry.data["admin"]) for _, entry in sorted(found.items()) if entry.data.get("admin")]
        return f"http://{admins[0]}/" if admins else ""

    def tail(self, topic: str, after: int | None, limit: int) -> Answer:
        """The messages of a topic are in the log's files."""
        _elsewhere("a topic's tail", f"pixiu queue sub {topic[:64]} --url LEADER, or pixiu queue tail --data DIR there")

    async def redact(self) -> Answer:
        """Each replica of the log has its own files."""
        _elsewhere("redaction", "pixiu queue redact --data DIR, on each replica of the log")

    async def explain(self, message_id: int) -> Answer:
        """The hops of a message are measured where they are made."""
        _elsewhere("the way of one message", "pixiu probe --registry shows every way through the cluster")

    async def cut(self) -> AsyncIterator[bytes]:
        """What waits is in the carriers' stores."""
        _elsewhere("a cut of the stores", "pixiu audit --registry has the books of all partitions")

    def pipeline(self) -> Answer:
        """It runs beside a log."""
        _elsewhere("the pipeline", f"pixiu pipeline run --data {REPLICA}, beside a replica of the log")

    async def pipeline_report(self) -> Answer:
        """So do its tables."""
        _elsewhere("the pipeline's report", f"pixiu pipeline report --data {REPLICA}, where it runs")


def _rows(answer: Answer) -> list[Answer]:
    rows: Any = answer.get("rows")
    return [dict(row) for row in rows] if isinstance(rows, list) else []


def _elsewhere(what: str, instead: str) -> NoReturn:
    raise NotFound(f"{what} is not available in a cluster; instead: {instead}")
