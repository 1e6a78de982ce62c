"""A running node that leads its own log joins a registry: ``pixiu cluster join``.

It goes on serving its clients, and leads the cluster's log from now on. When another leads (it was cut off, or its
lease ran out), its messaging ends, and it starts anew as a replica: whoever it served finds the cluster's gateways.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from pixiu.config.registry import RegistryAddress
from pixiu.machines.queue_wire.responses import encode_done, encode_refused
from pixiu.model.errors import ConfigError, Conflict, PixiuError
from pixiu.node.joined import Joined, forget_joined, note_joined
from pixiu.node.processes.cluster_secrets import queue_keys, read_secrets, secrets_of
from pixiu.node.processes.elected import Elected
from pixiu.queue.replication.control import RegistryControl, partition_folder

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pixiu.backends.zookeeper.registry import ZooKeeperRegistry
    from pixiu.machines.links.sealing import Secrets
    from pixiu.queue.engine import Engine
    from pixiu.queue.replication.driver import Replication

__all__ = ["Joining"]

log = logging.getLogger(__name__)

ANSWER_SECONDS = 15.0
"""Whoever asked is told after this time that it is still being tried."""


class Joining:
    """The way of one node into one registry."""

    def __init__(
        self, engine: Engine, replication: Replication, *, root: Path, name: str, address: str, bind: str,
        listen: Callable[[Secrets], Awaitable[dict[str, object]]], joined: Callable[[Elected], object],
        overtaken: Callable[[], object],
    ) -> None:  # fmt: skip
        """``listen`` begins to listen for gateways, and returns what the registry shall say of that.

        ``joined`` is called with what the node belongs to now, ``overtaken`` when another node leads its log.
        """
        self._listen = listen
        self._engine = engine
        self._replication = replication
        self._root = root
        self._name = name
        self._address = address
        self._bind = bind
        self._joined = joined
        self._overtaken = overtaken
        self._task: asyncio.Task[None] | None = None
        self._place = ""

    def asked(self, registry: str, secret_file: str, answer: Callable[[bytes], object]) -> None:
        """Someone with the node's key wants it. Answered once: joined, or why not."""
        reason = self._replication.why_not_join()
        if not reason and self._task is not None and not self._task.done():
            reason = f"this node is about to join {self._place} already; ask again when that is over"
        if reason:
            answer(encode_refused(reason))
            return
        self._place = registry
        self._task = asyncio.create_task(self._join(registry, secret_file, _once(answer)))

    async def _join(self, registry: str, secret_file: str, answer: Callable[[bytes], object]) -> None:
        from pixiu.node.processes.cluster_end import open_session  # kazoo takes its time, and few nodes join

        loop = asyncio.get_running_loop()
        session: ZooKeeperRegistry | None = None
        is_joined = False
        try:
            place = RegistryAddress.parse(registry)
            text = read_secrets(Path(secret_file) if secret_file else None)
            keys = queue_keys(text, self._bind)
            if not keys:
                raise ConfigError(f"the queue listens on {self._bind}: a cluster there needs a secret (--secret-file)")
            session = await open_session(place)
            await self._bring(session, place, await self._listen(secrets_of(text, self._bind)), answer)
            is_joined = True
            self._belong(Elected(session, _folder(place), keys, str(place), session.close, text))
            answer(encode_done(self._engine.writer.epoch))
        except PixiuError as error:
            answer(encode_refused(str(error)))
        finally:
            if session is not None and not is_joined:
                await loop.run_in_executor(None, session.close)

    async def _bring(
        self, session: ZooKeeperRegistry, place: RegistryAddress, more: dict[str, object],
        answer: Callable[[bytes], object],
    ) -> None:  # fmt: skip
        """Have the registry take this log. Raises ``Conflict`` if it does not."""
        note_joined(self._root, Joined(str(place), is_founding=True))
        control = RegistryControl(
            session, self._engine.scheduler, folder=_folder(place), name=self._name, address=self._address, more=more
        )
        outcome: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._replication.join(control, lambda reason: None if outcome.done() else outcome.set_result(reason))
        await asyncio.wait({outcome}, timeout=ANSWER_SECONDS)
        if not outcome.done():
            answer(encode_refused("the registry does not answer; this node goes on trying"))
        reason = await outcome
        if reason:
            forget_joined(self._root)
            raise Conflict(reason)
        note_joined(self._root, Joined(str(place)))

    def _belong(self, elected: Elected) -> None:
        """Be one of the cluster's: its roles may come, and another may lead one day."""
        engine = self._engine
        engine.node_keys = (*engine.node_keys, *elected.keys)
        engine.follower_keys = elected.keys
        self._replication.when_overtaken = self._overtaken
        log.info("joined a registry", extra={"registry": elected.place, "replica": self._name})
        self._joined(elected)

    async def close(self) -> None:
        """Give up what is under way."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task})


def _folder(place: RegistryAddress) -> str:
    return partition_folder(place.root, 0)


def _once(answer: Callable[[bytes], object]) -> Callable[[bytes], object]:
    """Whoever asked is answered once."""
    answers: list[bytes] = []

    def once(data: bytes) -> None:
        answers.append(data)
        if len(answers) == 1:
            answer(data)

    return once
