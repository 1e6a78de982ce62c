"""The stored messages of a simulated cluster: the replicas of its shard, people who write, and the judge.

| | |
|---|---|
| I1, I2, I3 | what was accepted was shown to its receiver, once, under one id, in the order of the log |
| I4 | ids of the log rise |
| I6 | at most one replica holds the lease, by their own clocks; no other acknowledges, accepts gateways or pushes |
| I7 | replicas have equal journals, and equal stores, which are what follows from the log |
| I8 | a healed world comes to rest: all replicas in sync and up to date, every request answered |
| NotYet | a replica that begins to serve has applied everything that was acknowledged before |
| tasks | every notification is performed, and none after the log has named it as finished |
| audit | audits during the run and at the end balance |
| clients | a gateway closes no client that has a session, unless the gateway or the leader was frozen |
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from pixiu.backends.memory.stores import MemoryStores
from pixiu.links.member import ensure_count
from pixiu.model.errors import PixiuError
from pixiu.model.pixiu_pb2 import Task
from pixiu.queue.replication.control import SHARD
from pixiu.roles.carrier.rebuild import rebuild
from pixiu.testing.cluster.committed import CommittedLog
from pixiu.testing.cluster.gateways import GatewayDisk, MessagingGateway
from pixiu.testing.cluster.people import Person
from pixiu.testing.cluster.shards import ROOT, MachineDisk, ShardNode, Watcher, settings_of
from pixiu.testing.messaging.compare import describe_stores, difference
from pixiu.testing.messaging.model import Model

if TYPE_CHECKING:
    import asyncio
    import random
    from collections.abc import Callable

    from pixiu.node.host import MessagingHost
    from pixiu.testing.cluster.world import Cluster, GatewayNode

__all__ = ["Durable"]

PEOPLE = 6
QUIET_MS = 1_000
LOOK_MS = 20
"""Between two looks which replicas hold the lease; every act of a leader is looked at besides."""
PUSH_GRACE_US = 100_000
"""How long after the end of its leadership a replica may still push: its roles stop within a few turns."""
AUDIT_TRIES = 6
RESTART_MS = 50
RESYNC, NEW_SESSION = "resync", "new_session"


class Durable(Watcher):
    """All of it."""

    def __init__(
        self, cluster: Cluster, rng: random.Random, *, replicas: int, has_retention: bool = False, fill_bytes: int = 0
    ) -> None:
        self.log = CommittedLog()
        self.nodes: dict[str, ShardNode] = {}
        """Replicas that run, by name."""
        self.disks: dict[str, MachineDisk] = {}
        self.gateways: list[MessagingGateway] = []
        self.people: list[Person] = []
        self.violation = ""
        self.failovers = 0
        self.acknowledged = 0
        """The last event that a leader has committed, and so acknowledged."""
        self._auditing: list[tuple[ShardNode, asyncio.Task[None]]] = []
        self._cluster = cluster
        self._rng = rng
        self._sent = 0
        self._settings = settings_of(has_retention=has_retention, fill_bytes=fill_bytes)
        self._has_retention = has_retention
        self._all_nodes: list[ShardNode] = []
        self._free_disks: list[GatewayDisk] = []
        self._compared: dict[ShardNode, int] = {}
        self._served_since_us: dict[ShardNode, int] = {}
        self._needed: dict[ShardNode | MessagingHost, int] = {}
        """What was acknowledged when a replica began to lead, or when its host was made."""
        self._last_leader = ""
        self._notified: list[tuple[int, tuple[int, int]]] = []
        """(the last event that its replica had applied, (user, message_id)) of each notification."""
        ensure_count(cluster.registry.open(), cluster.scheduler, ROOT, SHARD, 1, lambda: None)
        cluster.run(10)
        for number in range(replicas):
            name = f"shard-0-{number}"
            self.disks[name] = MachineDisk(cluster, rng, speed=0.9 + 0.2 * rng.random())
            self.start(name)
        for gateway in cluster.gateways:
            self.gateways.append(MessagingGateway(cluster, gateway, GatewayDisk()))
        for number in range(PEOPLE):
            person = Person(cluster, rng, str(7001 + number), self._open_gateways)
            person.when_missed, person.served_since = self._missed, self._served_since
            person.when_closed = self._closed
            self.people.append(person)
        self._look()

    # Its processes.

    def start(self, name: str) -> None:
        """Start a replica on the disk that it has."""
        if name not in self.nodes:
            node = ShardNode(self._cluster, name, self.disks[name], self._settings, self)
            self.nodes[name] = node
            self._all_nodes.append(node)

    def crash(self, node: ShardNode, *, loses_power: bool = False) -> None:
        """Kill a replica, or with ``loses_power`` its machine."""
        node.crash(loses_power=loses_power)
        del self.nodes[node.name]

    def stop(self, node: ShardNode, done: Callable[[], object]) -> None:
        """Stop a replica in order."""

        def stopped() -> None:
            if self.nodes.get(node.name) is node:
                del self.nodes[node.name]
            done()

        node.stop(stopped)

    def lose_disk(self, name: str) -> bool:
        """Replace the disk of a replica that is down by an empty one. False: it may be the only one with all messages.

        A member of the in-sync set may lead, so its disk must not come back empty. It leaves the set while it is away.
        """
        found = self._cluster.registry.read(f"{ROOT}/{SHARD}/partition0/ctl").get("")
        if found is None or name in found.data["in_sync"]:  # type: ignore[operator]
            return False
        self.disks[name] = MachineDisk(self._cluster, self._rng, speed=self.disks[name].clock.speed)
        return True

    @property
    def leader(self) -> ShardNode | None:
        """The replica that holds the lease."""
        return next((node for node in self.nodes.values() if node.holds_lease()), None)

    @property
    def snapshots(self) -> int:
        """How many snapshots were installed."""
        return sum(disk.snapshots for disk in self.disks.values())

    def _open_gateways(self) -> list[MessagingGateway]:
        return [each for each in self.gateways if not each.node.is_dead]

    def gateway_gone(self, node: GatewayNode) -> None:
        """A gateway has died; the next one that starts gets its machine."""
        self._free_disks += [each.disk for each in self.gateways if each.node is node]

    def gateway_came(self) -> None:
        """Give gateways that have started their links."""
        known = {each.node.boot for each in self.gateways}
        for node in self._cluster.gateways:
            if node.boot not in known:
                disk = self._free_disks.pop(0) if self._free_disks else GatewayDisk()
                self.gateways.append(MessagingGateway(self._cluster, node, disk))

    def end(self) -> None:
        """The world is over."""
        for node in self._all_nodes:
            node.abandon()

    # Traffic.

    def talk(self, count: int) -> None:
        """Let some people write to some others."""
        for _ in range(count):
            sender, to = self._rng.sample(self.people, 2)
            self._sent += 1
            text = f"{sender.user} says {self._sent}"
            if self._rng.random() < 0.1:
                sender.schedule(to.user, text)
            else:
                sender.send(to.user, text)
        if self._rng.random() < 0.3:
            self._rng.choice(self.people).go_away(self._rng.random() * 4_000)

    def audit(self, node: ShardNode, when_done: Callable[[], object] = lambda: None) -> None:
        """Start an audit, beside all else. Anything that it names is a violation."""

        async def run() -> None:
            host = node.host
            if host is None:
                return
            try:
                report = await host.audit()
            except (PixiuError, TimeoutError):
                return  # it lost the lead, or the start of its log was removed
            when_done()
            if not report.balanced:
                named = [*report.lost, *report.duplicates, "the sums differ"][0]
                self._violated(
                    f"audit: {node.name} lacks {report.lost_count}, has {report.duplicate_count} more: {named}"
                )

        node.hear(lambda: self._auditing.append((node, node.loop.create_task(run()))))

    # What replicas do.

    def _violated(self, words: str) -> None:
        if not self.violation:
            self.violation = f"{words} ({self._cluster.clock.now_us // 1000} ms)"

    def _look(self) -> None:
        self._check_lease()
        self._cluster.scheduler.after(LOOK_MS, self._look)

    def _check_lease(self) -> None:
        holders = [node.name for node in self.nodes.values() if node.holds_lease()]
        if len(holders) > 1:
            self._violated(f"I6: {' and '.join(holders)} hold the lease at one time")

    def committed(self, node: ShardNode) -> None:
        """Compare journals. A leader that commits acknowledges, which takes the lease."""
        self._compared[node] = self.log.compare(node.engine, self._compared.get(node, 0))
        if self.log.violation:
            self._violated(self.log.violation)
        if node.engine.is_leader:
            self._check_lease()
            if not node.holds_lease():
                self._violated(f"I6: {node.name} acknowledges without its lease")
            self.acknowledged = max(self.acknowledged, node.engine.commit_event_id)

    def began_to_serve(self, node: ShardNode, host: MessagingHost) -> None:
        """Everything that was acknowledged before this leadership, or before this host, must be in its stores."""
        applied, needed = host.messaging.carrier.applied_all, max(self._needed[node], self._needed[host])
        if applied < needed:
            self._violated(f"NotYet: {node.name} serves, has applied {applied} of {needed} events")
        self.failovers += self._last_leader not in ("", node.name)
        self._last_leader = node.name
        self._served_since_us[node] = self._cluster.clock.now_us

    def began_to_lead(self, node: ShardNode) -> None:
        """Note what was acknowledged before."""
        self._needed[node] = self.acknowledged

    def made_host(self, node: ShardNode, host: MessagingHost) -> None:
        """Note what was acknowledged before."""
        self._needed[host] = self.acknowledged

    def accepted_gateway(self, node: ShardNode) -> None:
        """It takes the lease to accept a gateway."""
        self._check_lease()
        if not node.holds_lease():
            self._violated(f"I6: {node.name} accepts a gateway without its lease")

    def pushed(self, node: ShardNode) -> None:
        """A former leader stops pushing once it has lost the lead."""
        if node.led_until_us:
            since_us = max(node.led_until_us, node.thawed_us)
            if self._cluster.clock.now_us - since_us > PUSH_GRACE_US:
                self._violated(f"I6: {node.name} lost the lead, and still pushes to its sessions")

    def notified(self, node: ShardNode, host: MessagingHost, user: int, message_id: int) -> None:
        """Note what was performed, and how far the log was applied then."""
        self._notified.append((host.messaging.carrier.applied_all, (user, message_id)))

    def wants_restart(self, node: ShardNode) -> None:
        """It has a snapshot: the process opens everything again."""

        def restart() -> None:
            if self.nodes.get(node.name) is node and not node.is_ending:
                self.stop(node, lambda: self.start(node.name))

        self._cluster.scheduler.after(RESTART_MS, restart)

    # What people notice.

    def _served_since(self) -> float:
        return min(
            (self._served_since_us.get(node, inf) for node in self.nodes.values() if node.is_serving), default=inf
        )

    def _missed(self, person: Person, text: str, accepted_us: int) -> None:
        if self._served_since() > accepted_us:
            self._violated(f"NotYet: the history of {person.user} lacks {text!r}, which was accepted")

    def _closed(self, gateway: MessagingGateway, reason: str) -> None:
        """A gateway or a replica that was frozen for longer than its lease closes a share of its clients (B18).

        A login that was late on its way, through a gateway where the user is no more, ends the session of today.
        """
        if NEW_SESSION in reason:
            return
        if RESYNC not in reason or not any(node.thawed_us for node in (gateway.node, *self.nodes.values())):
            self._violated(f"clients: a gateway that was not frozen has closed a client: {reason}")

    # What must be so in the end.

    def unsettled(self) -> str:
        """Why it is not at rest, or the empty string."""
        serving = [node for node in self.nodes.values() if node.is_serving]
        if len(serving) != 1 or len(self.nodes) != len(self.disks):
            return f"{[node.name for node in serving]} serve, of {sorted(self.nodes)}: {self._problems()}"
        leader = serving[0]
        if leader.replication.in_sync_count != len(self.nodes):
            return f"{leader.replication.in_sync_count} replicas are in sync: {self._problems()}"
        for node in self.nodes.values():
            host, committed = node.host, leader.engine.commit_event_id
            if host is None or min(node.engine.commit_event_id, host.messaging.carrier.applied_all) < committed:
                return f"{node.name} is behind: {self._problems()}"
        for person in self.people:
            if person.open_count or person.is_away:
                return f"{person.user} waits for {person.open_count} answers"
            if len(person.received) < len(self._wanted(person)) + len(self._scheduled_for(person)):
                return f"{person.user} was shown {len(person.received)} of {len(self._wanted(person))}"
        return ""

    def _problems(self) -> dict[str, list[str]]:
        return {node.name: [*node.replication.problems(), *node.shard.problems()] for node in self.nodes.values()}

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
        errors = [error for node in self._all_nodes for error in node.loop.errors]
        if errors:
            return f"a bug: {errors[0]}"
        return (
            self._judge_people() or self._judge_log() or self._judge_stores() or self._judge_tasks()
            or self._judge_audits()
        )  # fmt: skip

    def _wanted(self, person: Person) -> list[tuple[str, str]]:
        """What was accepted for a person, in the order of the log."""
        mine = [
            (message_id, text)
            for sender in self.people
            for text, message_id in sender.accepted.items()
            if sender.sent_to(text) == person.user
        ]
        return sorted(mine, key=lambda pair: int(pair[0]))

    def _scheduled_for(self, person: Person) -> set[str]:
        return {
            text for sender in self.people for text in sender.scheduled if sender.sent_to(text) == person.user
        }  # fmt: skip

    def _judge_people(self) -> str:
        for person in self.people:
            if person.problem:
                return person.problem
            received, scheduled = person.received, self._scheduled_for(person)
            texts = [text for _, text in received]
            if len(set(texts)) != len(texts):
                return f"I2: {person.user} was shown something twice"
            at_once, wanted = [pair for pair in received if pair[1] not in scheduled], self._wanted(person)
            if at_once != wanted or not scheduled <= set(texts):
                missing = [*(text for text in wanted if text not in at_once), *(scheduled - set(texts))]
                extra = [text for text in at_once if text not in wanted]
                return f"I1, I3: {person.user} lacks {missing[:3]}, has {extra[:3]} too much, or not in order"
            ids = [int(message_id) for message_id, _ in received]
            if ids != sorted(ids):
                return f"I3: {person.user} was shown messages out of order"
        return ""

    def _judge_log(self) -> str:
        ids = [record.message_id for record in self.log.records if record.message_id]
        return "" if ids == sorted(set(ids)) else "I4: ids of the log do not rise"

    def _judge_stores(self) -> str:
        """I7: every replica holds what follows from the log."""
        model, expected = Model.of(self.log.records), MemoryStores()
        rebuild(self.log, expected)  # type: ignore[arg-type]
        wanted = describe_stores(expected, model)
        for node in self.nodes.values():
            if node.host is None:
                return f"I7: {node.name} has no stores: {self._problems()}"
            if differs := difference(describe_stores(node.host.stores, model), wanted):
                return f"I7: {node.name} holds {differs}"
        return ""

    def _judge_tasks(self) -> str:
        events = {}
        for record in self.log.notifications():
            notify = Task.FromString(record.payload).notify
            events[notify.user, notify.message_id] = record.event_id
        performed = {task for _, task in self._notified}
        if missing := [task for task in events if task not in performed]:
            return f"tasks: {len(missing)} notifications were not performed, as {missing[0]}"
        for applied, task in self._notified:
            if task in events and events[task] <= self.log.tasks_finished_at(applied):
                return f"tasks: {task} was performed again, though the log says that it was finished"
        return ""

    def _judge_audits(self) -> str:
        """The serving replica is audited a last time. One whose leadership ends meanwhile returns nothing."""
        done: list[bool] = []
        for _ in range(AUDIT_TRIES):
            leader = self.leader
            if leader is not None and leader.engine.journal.first_event_id > 1:
                done.append(False)  # no audit without the beginning of the log
            elif leader is not None and leader.is_serving:
                self.audit(leader, when_done=lambda: done.append(True))
            if self._cluster.run_until(lambda: bool(self.violation or done), within_ms=10_000):
                break
        self._cluster.run_until(lambda: not self._hanging(), within_ms=20_000)  # what is late may be seconds late
        if self.violation or (done and not self._hanging()):
            return self.violation
        return f"audit: the audits of {self._hanging() or 'the leader'} never end"

    def _hanging(self) -> list[str]:
        return [node.name for node, task in self._auditing if not task.done() and not node.is_dead]
