"""``api.Administration`` at a gateway of a cluster: questions go to the leader of the shard, over the gateway's link.

An audit asks through the registry instead, since it takes longer than a link may be silent. What concerns the files of
one replica, or runs beside a replica, is refused; the error names the command to run there.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NoReturn

from pixiu.im.draft import Actor
from pixiu.machines.wire import ADMIN_PREFIX
from pixiu.model.errors import NotFound, PixiuError, Unavailable
from pixiu.node.processes.gateway.audit import audit_cluster
from pixiu.roles.gateway.shards import ROSTER_SHARD

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pixiu.config.registry import RegistryAddress
    from pixiu.im.draft import Answer, Params
    from pixiu.ports.registry import Folder, Registry
    from pixiu.roles.gateway import ShardLinks

__all__ = ["ClusterAdministration"]

ASK_SECONDS = 10.0
FIND_SECONDS = 2.0
RETRY_MS = 1_000
REPLICA = "pixiu-cluster/nodes/shard-0-0"
"""Where ``pixiu cluster up`` keeps a replica."""
ADMIN = Actor(0, "", "", 0, is_admin=True)


class ClusterAdministration:
    """Asks the shard of a cluster. A cluster has one shard for now, so its answers are those of the cluster."""

    def __init__(
        self, shards: ShardLinks, address: RegistryAddress, *, registry: Registry | None = None, root: str = ""
    ) -> None:
        """``registry`` has the address of the map. An audit opens a session of its own, at ``address``."""
        self._shards = shards
        self._address = address
        self._registry = registry
        self._root = root

    async def sessions(self, user: str | None, after: int, limit: int) -> list[Answer]:
        """Return a user's sessions, or all, newest first."""
        params: Params = {"after": after, "limit": limit, **({} if user is None else {"user": user})}
        return _rows(await self._ask("sessions", params))

    async def kick(self, user: str, session_id: int | None, reason: str) -> int:
        """Close one session of a user, or all; return how many there were."""
        params: Params = {"user": user, "reason": reason}
        if session_id is not None:
            params["session_id"] = session_id
        return int(str((await self._ask("kick", params))["kicked"]))

    async def dead_letters(self, after: int, limit: int) -> list[Answer]:
        """Return tasks that were given up, oldest first."""
        return _rows(await self._ask("dead_letters", {"after": after, "limit": limit}))

    async def replay(self, dead_letter_id: int) -> None:
        """Run a task again that was given up."""
        await self._ask("replay", {"id": dead_letter_id})

    async def scheduled(self, after: int, limit: int) -> list[Answer]:
        """Return the messages that wait for their time."""
        return _rows(await self._ask("scheduled", {"after": after, "limit": limit}))

    async def topics(self, after: str, limit: int) -> list[Answer]:
        """Return the topics of the queue, by name."""
        return _rows(await self._ask("topics", {"after": after, "limit": limit}))

    async def tail(self, topic: str, after: int | None, limit: int) -> Answer:
        """Return the newest messages of a topic, or those after an event id."""
        params: Params = {"topic": topic, "limit": limit, **({} if after is None else {"after": after})}
        return await self._ask("tail", params)

    async def stats(self) -> Answer:
        """Return the numbers of the replica that leads the shard, and where the map of all processes is."""
        address = await self._map_address()
        try:
            found = await self._ask("stats", {})
        except Unavailable as error:
            if not address:
                raise
            reason = f"{error}; the map of all processes: {address}"
            raise Unavailable(reason, retry_after_ms=error.retry_after_ms) from None
        return {**found, "map": address} if address else found

    async def stats_history(self, after: int) -> Answer:
        """Return samples of that replica's numbers, since it leads."""
        return await self._ask("stats_history", {"after": after})

    async def explain(self, message_id: int) -> Answer:
        """Return the way of one message, hop by hop."""
        return await self._ask("explain", {"message_id": message_id})

    async def audit(self, at_least: int, before: int | None) -> Answer:
        """Audit the shard."""
        return await audit_cluster(self._address, at_least=at_least, before=before)

    async def _ask(self, question: str, params: Params) -> Answer:
        at = self._shards.shards.get(ROSTER_SHARD)
        if at is None:
            raise Unavailable("the registry lists no shard", retry_after_ms=RETRY_MS)
        answered: asyncio.Future[Answer | PixiuError] = asyncio.get_running_loop().create_future()
        at.link.call(
            ADMIN, ADMIN_PREFIX + question, params,
            lambda answer: None if answered.done() else answered.set_result(answer),
        )  # fmt: skip
        try:
            answer = await asyncio.wait_for(answered, ASK_SECONDS)
        except TimeoutError:
            answer = Unavailable(f"no answer within {ASK_SECONDS:g} s", retry_after_ms=RETRY_MS)
        if isinstance(answer, Unavailable):
            raise Unavailable(f"shard {at.number}: {answer}", retry_after_ms=answer.retry_after_ms or RETRY_MS)
        if isinstance(answer, PixiuError):
            raise answer
        return answer

    async def _map_address(self) -> str:
        """Where a meta process shows its map; empty if the registry lists none, or does not answer."""
        if self._registry is None:
            return ""
        answered: asyncio.Future[Folder | PixiuError] = asyncio.get_running_loop().create_future()
        self._registry.read(
            f"{self._root}/meta", lambda answer: None if answered.done() else answered.set_result(answer)
        )
        try:
            found = await asyncio.wait_for(answered, FIND_SECONDS)
        except TimeoutError:
            return ""
        if isinstance(found, PixiuError):
            return ""
        admins = [str(entry.data["admin"]) for _, entry in sorted(found.items()) if entry.data.get("admin")]
        return f"http://{admins[0]}/" if admins else ""

    # Not available at a gateway.

    async def redact(self) -> Answer:
        """Refuse: each replica has its own files."""
        _elsewhere(
            "redaction",
            "for each replica, pixiu cluster drain NAME, pixiu queue redact --data DIR, pixiu cluster start NAME",
        )

    async def cut(self) -> AsyncIterator[bytes]:
        """Refuse: the state as of one event is too large for one answer over a link."""
        _elsewhere("the state as of one event", "pixiu audit --registry audits the whole cluster")

    def pipeline(self) -> Answer:
        """Refuse: the pipeline runs beside a replica."""
        _elsewhere("the pipeline", f"pixiu pipeline run --data {REPLICA}, beside a replica of the shard")

    async def pipeline_report(self) -> Answer:
        """Refuse: its tables are where it runs."""
        _elsewhere("the pipeline's report", f"pixiu pipeline report --data {REPLICA}, where it runs")


def _rows(answer: Answer) -> list[Answer]:
    rows: Any = answer.get("rows")
    return [dict(row) for row in rows] if isinstance(rows, list) else []


def _elsewhere(what: str, instead: str) -> NoReturn:
    raise NotFound(f"{what} is not available in a cluster; instead: {instead}")
