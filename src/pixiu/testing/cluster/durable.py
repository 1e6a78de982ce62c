"""What is stored in a simulated cluster: the log, carriers with replicas, people who write; and its judge.

I1 what was accepted was shown to its receiver; I2 once, under one id; I3 in the order of the log; I4 ids of the log
rise; I6 of the replicas of a partition one serves, at every moment; I7 every user is in one partition, and every
replica holds exactly what the log says of its own; I8 a healed world comes to rest. Audits that are taken meanwhile,
and at the end, find nothing amiss.
"""

from __future__ import annotations

from functools import partial
from math import inf
from typing import TYPE_CHECKING

from pixiu.backends.memory.stores import MemoryStores
from pixiu.links.member import ensure_count
from pixiu.model.errors import PixiuError
from pixiu.model.partitions import Share, user_partition
from pixiu.ports.stores import Lane
from pixiu.roles.carrier.rebuild import rebuild
from pixiu.testing.cluster.carriers import ROLE, ROOT, CarrierNode, Operator, StoreDisk
from pixiu.testing.cluster.log import SharedLog
from pixiu.testing.cluster.people import Door, Person
from pixiu.testing.messaging.compare import describe_stores, difference
from pixiu.testing.messaging.model import Model

if TYPE_CHECKING:
    import asyncio
    import random
    from collections.abc import Callable

    from pixiu.node.processes.carrier.host import CarrierHost
    from pixiu.testing.cluster.world import Cluster

__all__ = ["Durable"]

PEOPLE = 6
QUIET_MS = 1_000
BOOKS_TRIES = 6


class Durable:
    """All of it."""

    def __init__(self, cluster: Cluster, rng: random.Random, *, partitions: int, replicas: int) -> None:
        self.partitions = partitions
        self.log = SharedLog(cluster)
        self.nodes: dict[str, CarrierNode] = {}
        """Replicas that live, by name."""
        self.disks: dict[str, StoreDisk] = {}
        self.doors: list[Door] = []
        self.people: list[Person] = []
        self.violation = ""
        self.snapshots = 0
        self.failovers = 0
        self._auditing: list[tuple[CarrierNode, asyncio.Task[None]]] = []
        self._cluster = cluster
        self._rng = rng
        self._replicas = replicas
        self._said = 0
        self._operator: Operator | None = None
        self._dead: list[CarrierNode] = []
        self._last_server: dict[int, str] = {}
        ensure_count(cluster.registry.open(), cluster.scheduler, ROOT, ROLE, partitions, lambda: None)
        cluster.run(10)
        for partition in range(partitions):
            self.start_partition(partition)
        for gateway in cluster.gateways:
            self.doors.append(Door(cluster, gateway))
        self.people = [
            Person(cluster, rng, str(7001 + number), self._open_doors) for number in range(PEOPLE)
        ]  # fmt: skip
        for person in self.people:
            person.when_missed, person.served_since = self._missed, self._served_since

    # Its processes.

    def start_partition(self, partition: int) -> None:
        """All replicas of one partition."""
        for replica in range(self._replicas):
            self.start(f"{ROLE}-{partition}-{replica}", partition)

    def start(self, name: str, partition: int) -> None:
        """One replica, with the disk that it has."""
        disk = self.disks.setdefault(name, StoreDisk())
        node = CarrierNode(self._cluster, self.log, name, partition, disk)
        node.when_asked = self._asked
        self.nodes[name] = node

    def crash(self, node: CarrierNode, *, loses_disk: bool) -> None:
        """One replica is gone. Its disk goes along only if another has everything."""
        self.snapshots += node.life.snapshots
        node.crash()
        self._dead.append(node)
        del self.nodes[node.name]
        if loses_disk and self._has_heir(node):
            self.disks[node.name] = StoreDisk()

    def _has_heir(self, lost: CarrierNode) -> bool:
        """Has another one written down all that the log has forgotten?"""
        return any(
            node.partition == lost.partition and node.host is not None and _written(node.host) >= self.log.first - 1
            for node in self.nodes.values()
        )

    def trim(self) -> int:
        """Retention: the log forgets what some live replica of every partition has written down.

        Those of a doubling that has begun count: behind the flip nobody else has what was theirs.
        """
        through = self.log.committed
        for partition in range(self.partitions if self._operator is None else 2 * self.partitions):
            durable = [
                _written(node.host)
                for node in self.nodes.values()
                if node.partition == partition and node.host is not None
            ]
            through = min(through, max(durable, default=0))
        self.log.first = max(self.log.first, through + 1)
        return self.log.first

    def double(self) -> None:
        """The new half starts; the tool flips as soon as it may. What has doubled may double again."""
        if self._operator is not None:
            self._operator.loop.abandon()
            self.partitions = self._operator.count
        for partition in range(self.partitions, 2 * self.partitions):
            self.start_partition(partition)
        self._operator = Operator(self._cluster, self.log, replicas=self._replicas)
        self._operator.double()

    @property
    def has_doubled(self) -> bool:
        """Has the tool said so?"""
        return self._operator is None or self._operator.count > 0

    @property
    def count(self) -> int:
        """How many partitions there are, by the log."""
        flips = [node.host.messaging.partitions for node in self.nodes.values() if node.host is not None]
        return max([self.partitions, *flips])

    def _open_doors(self) -> list[Door]:
        return [door for door in self.doors if not door.node.is_dead]

    def came(self) -> None:
        """Gateways that have come get their links."""
        known = {door.node.boot for door in self.doors}
        for gateway in self._cluster.gateways:
            if gateway.boot not in known:
                self.doors.append(Door(self._cluster, gateway))

    def end(self) -> None:
        """The world is over."""
        for node in [*self.nodes.values(), *self._dead]:
            node.disk.let_go()
            node.loop.abandon()
        if self._operator is not None:
            self._operator.loop.abandon()

    # Traffic.

    def talk(self, count: int) -> None:
        """Some people say something to some others."""
        for _ in range(count):
            sender, to = self._rng.sample(self.people, 2)
            self._said += 1
            sender.send(to.user, f"{sender.user} says {self._said}")

    def audit(self, node: CarrierNode, when_done: Callable[[], object] = lambda: None) -> None:
        """Have one that serves take its books, while everything goes on; whatever it names is a violation."""

        async def take() -> None:
            host = node.host
            if host is None:
                return
            try:
                report = await host.audit()
            except (PixiuError, TimeoutError):
                return  # the log is out of reach
            when_done()
            if not report.balanced and not self.violation:
                named = [*report.lost, *report.duplicates, "the sums differ"][0]
                self.violation = (
                    f"books: {node.name} lacks {report.lost_count}, has {report.duplicate_count} more: {named}"
                )

        node.hear(lambda: self._auditing.append((node, node.loop.create_task(take()))))

    # What must be so.

    def _asked(self, node: CarrierNode) -> None:
        """I6, at the moment at which somebody acts as the one that serves."""
        if self._last_server.get(node.partition) != node.name:
            self.failovers += node.partition in self._last_server
            self._last_server[node.partition] = node.name
        for other in self.nodes.values():
            if other is node or other.partition != node.partition:
                continue
            if other.life.serving.is_serving(other.clock.monotonic_us() // 1000):
                self.violation = self.violation or f"I6: {node.name} and {other.name} serve at one time"

    def _answering(self, user: str) -> list[CarrierNode]:
        """Who answers a user: two, while one that serves has not heard of a flip yet."""
        return [node for node in self.nodes.values() if node.life.is_serving and _takes(node, int(user))]

    def _served_since(self, user: str) -> float:
        return min((node.chosen_us for node in self._answering(user)), default=inf)

    def _missed(self, person: Person, text: str, accepted_us: int) -> None:
        """Whoever begins to serve has everything that was accepted before; one that served then owes nothing new."""
        if self._served_since(person.user) > accepted_us:
            for node in self._answering(person.user):
                self.violation = self.violation or f"NotYet: {node.name} serves, and has not applied {text!r}"

    def unsettled(self) -> str:
        """Why it is not at rest, or the empty string."""
        if not self.has_doubled:
            return "the carriers have not doubled"
        for partition in range(self.count):
            replicas = [node for node in self.nodes.values() if node.partition == partition]
            serving = [node.name for node in replicas if node.life.is_serving]
            if len(serving) != 1:
                return f"partition {partition} is served by {serving}"
            for node in replicas:
                host = node.host
                if host is None or host.messaging.carrier.applied_all < self.log.committed:
                    return f"{node.name} is behind: {node.life.problems()}"
        for person in self.people:
            if person.open_count:
                return f"{person.user} waits for {person.open_count} answers"
            wanted = self._wanted(person)
            if len(person.heard) < len(wanted):
                return f"{person.user} was shown {len(person.heard)} of {len(wanted)}"
        return ""

    def rests(self) -> bool:
        """Is it at rest, and does nothing move?"""
        if self.violation or self.unsettled():
            return bool(self.violation)
        before = self.log.committed
        self._cluster.run(QUIET_MS)
        return self.log.committed == before and not self.unsettled()

    def judge(self) -> str:
        """The first promise that is broken; nothing if all are kept."""
        if self.violation:
            return self.violation
        errors = [error for node in [*self.nodes.values(), *self._dead] for error in node.loop.errors]
        if errors:
            return f"a bug: {errors[0]}"
        return self._judge_people() or self._judge_log() or self._judge_stores() or self._judge_books()

    def _judge_books(self) -> str:
        """Whoever serves takes its books a last time: they balance. Whose turn ends meanwhile says nothing more."""
        left = set(range(self.count))
        for _ in range(BOOKS_TRIES):
            for node in self.nodes.values():
                if node.life.is_serving and node.partition in left:
                    self.audit(node, when_done=partial(left.discard, node.partition))
            if self._cluster.run_until(lambda: bool(self.violation) or not left, within_ms=10_000):
                break
        self._cluster.run_until(lambda: not self._hanging(), within_ms=20_000)  # what is late may be seconds late
        if self.violation or not (left or self._hanging()):
            return self.violation
        return f"books: the audits of {sorted(left) or self._hanging()} never end"

    def _hanging(self) -> list[str]:
        return [node.name for node, task in self._auditing if not task.done() and not node.is_dead]

    def _wanted(self, person: Person) -> list[tuple[str, str]]:
        """What was accepted for someone, in the order of the log."""
        mine = [
            (message_id, text)
            for sender in self.people
            for text, message_id in sender.accepted.items()
            if sender.sent_to(text) == person.user
        ]
        return sorted(mine, key=lambda pair: int(pair[0]))

    def _judge_people(self) -> str:
        for person in self.people:
            if person.problem:
                return person.problem
            wanted, heard = self._wanted(person), person.heard
            if heard == wanted:
                continue
            if len(set(heard)) != len(heard):
                return f"I2: {person.user} was shown something twice"
            missing = [text for text in wanted if text not in heard]
            extra = [text for text in heard if text not in wanted]
            return f"I1, I3: {person.user} lacks {missing[:3]}, has {extra[:3]} too much, or not in order"
        return ""

    def _judge_log(self) -> str:
        ids = [record.message_id for record in self.log.records if record.message_id]
        return "" if ids == sorted(set(ids)) else "I4: ids of the log do not rise"

    def _judge_stores(self) -> str:
        """I7: every replica holds what follows from the log for its users, and nothing of others."""
        model, count = Model.of(self.log.records), self.count
        for partition in range(count):
            share = Share(partition, count)
            expected = MemoryStores()
            rebuild(self.log, expected, owns=share)
            wanted = describe_stores(expected, model)
            for node in self.nodes.values():
                if node.partition != partition or node.host is None:
                    continue
                found = describe_stores(node.host.stores, model)
                # Keys and empty inboxes of those who have moved may stay: nobody asks for them.
                found["send keys"] = {
                    key: sent
                    for key, sent in found["send keys"].items()
                    if key in wanted["send keys"] or _sender_is_in(key, share)
                }
                found["inboxes"] = {
                    key: inbox for key, inbox in found["inboxes"].items() if key in wanted["inboxes"] or _holds(inbox)
                }
                found["platforms"] = {
                    user: platforms if share(_number(user)) else wanted["platforms"].get(user)
                    for user, platforms in found["platforms"].items()
                }
                if differs := difference(found, wanted):
                    return f"I7: {node.name} of {count} holds {differs}"
        return ""


def _takes(node: CarrierNode, user: int) -> bool:
    """Is this user its own, as far as it knows?"""
    return node.host is not None and user_partition(user, node.host.messaging.partitions) == node.partition


def _holds(inbox: object) -> bool:
    assert isinstance(inbox, tuple)
    return bool(inbox[3])


def _number(user: object) -> int:
    assert isinstance(user, int)
    return user


def _sender_is_in(key: object, share: Share) -> bool:
    assert isinstance(key, bytes)
    return user_partition(int.from_bytes(key[:8], "big"), share.count) == share.partition


def _written(host: CarrierHost) -> int:
    """The event through which it is all on the disk."""
    return min(host.stores.applied(lane) for lane in (Lane.ROSTERS, Lane.INBOXES, Lane.TIMELINES))
