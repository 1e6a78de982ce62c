"""The live-room roles of a cluster in virtual time.

Proxies, brokers, routers, relays, gateways and publishers communicate over a network that loses, repeats and reorders
datagrams. The registry may lose hints. Processes crash, are frozen, and start again.

The code of the roles is that of production, down to the sealed datagram. Only sockets, ZooKeeper and the connections of
clients are replaced. A test compares what each session was shown with what each gateway knows of its own sessions.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from pixiu.backends.memory.registry import MemoryRegistry
from pixiu.config.rooms import RoomSettings
from pixiu.im.draft import Actor
from pixiu.links.bigrooms import BigRooms
from pixiu.links.directory import Directory, DirectoryRules
from pixiu.links.endpoint import Endpoint
from pixiu.links.member import Member, ensure_count
from pixiu.links.publishing import Publishing, PublishingRules
from pixiu.links.splitting import flip
from pixiu.links.wire import WireWay
from pixiu.machines.listeners import Listeners
from pixiu.machines.rooms import room_number
from pixiu.machines.view import PeerState, ViewRules
from pixiu.model.errors import PixiuError
from pixiu.roles.broker.cluster import ClusterBroker
from pixiu.roles.gateway.cluster import ClusterRooms
from pixiu.roles.probe.probe import Probe
from pixiu.roles.proxy.rooms import RoomProxy
from pixiu.roles.relay.rooms import ClusterRelay
from pixiu.roles.router.router import Router
from pixiu.testing.cluster.process import Process
from pixiu.testing.cluster.wires import SECRETS, Environment, SimulatedBulk, SimulatedDatagrams
from pixiu.testing.scheduler import SimulatedClock, SimulatedScheduler

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from pixiu.links.splitting import Stand
    from pixiu.machines.probes import ProbeRules
    from pixiu.machines.room_link import Ack, Frame

__all__ = ["Cluster", "Environment", "GatewayNode", "Node"]

ROOT = "/pubsub"


class Node(Process):
    """One process that sends and receives datagrams."""

    def __init__(self, cluster: Cluster, role: str, partition: int = 0) -> None:
        super().__init__(cluster, role, partition)
        self.bulk = SimulatedBulk(cluster, self)
        self.way = WireWay(SECRETS, self.boot, self.clock, self.bulk)  # type: ignore[arg-type]
        self.way.datagrams = SimulatedDatagrams(cluster, self)
        self.endpoint = Endpoint(self.boot, self.way, self.clock, self.scheduler)
        self.directory = Directory(self.registry, self.endpoint, self.clock, self.scheduler, ROOT, cluster.rules)
        self.member = Member(
            self.registry, self.scheduler, ROOT,
            role=role, partition=partition, boot=self.boot, address=self.address,
        )  # fmt: skip
        self.bigs = BigRooms(self.registry, self.clock, self.scheduler, ROOT, cluster.rules.poll_ms)
        self.lives = 0
        self.directory.when_gone.append(lambda info: cluster.declared_dead.add(info.boot))

    def datagram(self, data: bytes, address: str) -> None:
        """A datagram arrives."""
        if self.is_frozen:
            self.held.append(partial(self.datagram, data, address))
        elif not self.is_dead:
            self.way.datagram(data, address)

    def new_life(self) -> int:
        """Return a number above all earlier ones."""
        self.lives += 1
        return self.boot + self.lives


class GatewayNode(Node):
    """A gateway whose clients are in the test: ``shown`` is what was written to each session, in order."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster, "gateway")
        self.publishing = cluster.publishing(self)
        self.rooms = ClusterRooms(
            self.endpoint, self.directory, self.publishing, self.clock, self.scheduler, cluster.settings,
            user_name=lambda actor: str(actor.user), new_life=self.new_life, bigs=self.bigs,
        )  # fmt: skip
        self.rooms.joined = lambda version: self.member.tell(big=version)
        self.listeners = Listeners(cluster.settings)
        self.shown: dict[int, list[bytes]] = {}
        self.rooms.receive = self._receive
        self.rooms.sessions_in = self.listeners.sessions
        self.rooms.join = self._join
        self.rooms.overlaps_no_more = self.listeners.overlaps_no_more
        self.directory.start()
        self.bigs.start()
        self.rooms.start()
        self.endpoint.state = PeerState.RUNNING
        self.member.state = PeerState.RUNNING
        self.member.register()

    def enter(self, session_id: int, room: str) -> None:
        """A session enters."""
        self.rooms.act(Actor(session_id, session_id=session_id), "enter", {"room": room}, _fail)
        self.listeners.enter(room_number(room), session_id)
        self.shown.setdefault(session_id, [])

    def enter_as(self, user: int, session_id: int, room: str) -> None:
        """A session of a user who may have others elsewhere enters."""
        self.rooms.act(Actor(user, session_id=session_id), "enter", {"room": room}, _fail)
        self.listeners.enter(room_number(room), session_id)
        self.shown.setdefault(session_id, [])

    def leave(self, session_id: int, room: str) -> None:
        """A session leaves."""
        self.rooms.act(Actor(session_id, session_id=session_id), "leave", {"room": room}, _fail)
        self.listeners.leave(room_number(room), session_id)

    def say(
        self, session_id: int, room: str, text: str, *, is_reliable: bool = False, priority: str = "normal"
    ) -> list[object]:
        """A session sends a room message. Returns a list that will hold the answer."""
        answers: list[object] = []
        talk_class = "reliable" if is_reliable else "live"
        params: dict[str, object] = {"room": room, "text": text, "class": talk_class, "priority": priority}
        self.rooms.act(Actor(session_id, session_id=session_id), "say", params, answers.append)
        return answers

    def _join(self, room: int, piece: int, _name: str, session_id: int, overlaps: bool) -> None:
        self.listeners.join(room, piece, session_id, overlaps=overlaps)

    def _receive(self, source: str, frame: Frame) -> Ack | None:
        deliveries, ack = self.listeners.receive(source, frame, self.clock.monotonic_us() // 1000)
        for delivery in deliveries:
            for session_id in delivery.sessions:
                self.shown[session_id] += [body for body in delivery.bodies if b'"push":"message"' in body]
        return ack


class Cluster:
    """All processes, the network and the registry, driven by one seed."""

    def __init__(
        self, rng: random.Random, *, environment: Environment | None = None, brokers: int = 1, routers: int = 1,
        poll_ms: int = 5_000, relays: int = 0, grace_ms: int = 12_000, heartbeat_ms: int = 500,
        settings: RoomSettings | None = None,
    ) -> None:  # fmt: skip
        """``brokers``, ``routers`` and ``relays`` are partition counts; without relays brokers send to gateways."""
        self.is_relayed = relays > 0
        self.rng = rng
        self.environment = environment or Environment()
        self.clock = SimulatedClock()
        self.scheduler = SimulatedScheduler(self.clock, rng, slow_us=0, pause_chance=0)
        self.registry = MemoryRegistry(self.scheduler)
        self.settings = settings or RoomSettings(says_per_second=0, resend_ms=100)
        self.rules = DirectoryRules(
            ViewRules(heartbeat_ms, suspect_ms=3 * heartbeat_ms, dead_ms=5 * heartbeat_ms, grace_ms=3_000),
            poll_ms, grace_ms,
        )  # fmt: skip
        self.boots = 0
        self.is_registry_down = False
        self.nodes_by_address: dict[str, Process] = {}
        self.routers: list[Node] = []
        self.brokers: list[Node] = []
        self.proxies: list[Node] = []
        self.relays: list[Node] = []
        self.relays_by_node: dict[int, ClusterRelay] = {}
        self.gateways: list[GatewayNode] = []
        self.brokers_by_node: dict[int, ClusterBroker] = {}
        self.routers_by_node: dict[int, Router] = {}
        self.datagrams = 0
        self.declared_dead: set[int] = set()
        """Boot ids of processes that another process has declared dead, for a while or for good."""
        self._due: dict[tuple[str, str], float] = {}
        setup = self.registry.open()
        for role, count in (("broker", brokers), ("router", routers), ("relay", max(relays, 1))):
            ensure_count(setup, self.scheduler, ROOT, role, count, lambda: None)
        self.run(10)

    # Its processes.

    def add_router(self, partition: int = 0) -> Node:
        """Start a router."""
        node = Node(self, "router", partition)
        router = Router(
            node.endpoint, node.directory, node.member, node.clock, node.scheduler,
            new_life=node.new_life, patience_ms=3_000,
        )  # fmt: skip
        self.routers.append(node)
        self.routers_by_node[node.boot] = router
        node.directory.start()
        router.start()
        return node

    def add_broker(self, partition: int = 0) -> Node:
        """Start a broker."""
        node = Node(self, "broker", partition)
        broker = ClusterBroker(
            node.endpoint, node.directory, node.member, node.clock, node.scheduler, self.settings,
            node_id=self.boots % 1000, bigs=node.bigs, settle_ms=3_000,
            lasts_ms=self.rules.grace_ms + self.rules.poll_ms, by_relay=self.is_relayed,
        )  # fmt: skip
        self.brokers.append(node)
        self.brokers_by_node[node.boot] = broker
        node.directory.start()
        node.bigs.start()
        broker.start()
        return node

    def add_relay(self, partition: int = 0) -> Node:
        """Start a relay."""
        node = Node(self, "relay", partition)
        relay = ClusterRelay(
            node.endpoint, node.directory, node.member, node.clock, node.scheduler, self.settings,
            new_life=node.new_life, patience_ms=3_000,
        )  # fmt: skip
        self.relays.append(node)
        self.relays_by_node[node.boot] = relay
        node.directory.start()
        relay.start()
        return node

    def add_proxy(self) -> Node:
        """Start a proxy."""
        node = Node(self, "proxy")
        proxy = RoomProxy(node.endpoint, node.directory, node.scheduler, node.bigs)
        self.proxies.append(node)

        def ready() -> None:
            node.endpoint.state = node.member.state = PeerState.RUNNING
            node.member.register()

        proxy.when_ready = ready
        node.directory.start()
        node.bigs.start()
        proxy.start()
        return node

    def add_gateway(self) -> GatewayNode:
        """Start a gateway."""
        node = GatewayNode(self)
        self.gateways.append(node)
        return node

    def add_probe(self, rules: ProbeRules | None = None) -> tuple[Node, Probe]:
        """Start a probe. Other processes treat it as a gateway."""
        node = Node(self, "gateway")
        probe = Probe(
            node.endpoint, node.directory, node.member, node.clock, node.scheduler, node.bigs,
            new_life=node.new_life, rules=rules,
        )  # fmt: skip
        node.endpoint.state = node.member.state = PeerState.RUNNING
        node.directory.start()
        node.bigs.start()
        probe.start()
        node.member.register()
        return node, probe

    def add_publisher(self) -> tuple[Node, Publishing]:
        """Start a publisher."""
        node = Node(self, "publisher")
        publishing = self.publishing(node)
        node.directory.start()
        return node, publishing

    def publishing(self, node: Node) -> Publishing:
        """The publishing end of a process."""
        return Publishing(
            node.endpoint, node.directory, node.clock, node.scheduler,
            PublishingRules(taken_ms=1_000, resend_ms=100, reliable_ms=60_000),
            node_id=self.boots % 1000, pick=self.rng.randrange,
        )  # fmt: skip

    def double(self, role: str, *, replicas: int = 1) -> Stand | PixiuError:
        """Double the partitions of a role, as the operator's tool does. Returns the reason if that is refused."""
        answers: list[Stand | PixiuError] = []
        session = self.registry.open()
        flip(
            session, ROOT, role, answers.append, replicas=replicas, now_ms=self.clock.now_ms(),
            lasts_ms=self.rules.grace_ms + self.rules.poll_ms,
        )  # fmt: skip
        self.run(10)
        return answers[0]

    # The registry.

    def stop_registry(self) -> None:
        """From now on the registry answers no process."""
        self.is_registry_down = True
        for node in self.nodes_by_address.values():
            node.session.suspend()

    def start_registry(self, *, has_expired: bool = False) -> None:
        """The registry answers again. ``has_expired``: it has forgotten all sessions, with their nodes."""
        self.is_registry_down = False
        for node in self.nodes_by_address.values():
            if has_expired:
                node.session.expire()
            else:
                node.session.resume()

    # Time and network.

    def run(self, milliseconds: float) -> None:
        """Let time pass."""
        self.scheduler.run_for(milliseconds)

    def run_until(self, condition: Callable[[], bool], *, within_ms: float = 30_000) -> bool:
        """Let time pass until a condition holds; False if it does not hold in time."""
        until_us = self.clock.now_us + int(within_ms * 1000)
        while not condition():
            if self.clock.now_us >= until_us:
                return False
            self.run(50)
        return True

    def delay_ms(self) -> float:
        """How long a datagram takes."""
        environment = self.environment
        rng = self.rng
        if environment.late and rng.random() < environment.late:
            return environment.late_ms_max * rng.random()
        return environment.delay_ms_min + (environment.delay_ms_max - environment.delay_ms_min) * rng.random()

    def is_cut(self, source: Process, target: Process) -> bool:
        """Whether the network from one process to the other is cut."""
        return (source.address, target.address) in self.environment.cuts

    def carry(self, source: Node, address: str, data: bytes) -> None:
        """One datagram on its way."""
        self.datagrams += 1
        target, environment, chance = self.nodes_by_address.get(address), self.environment, self.rng.random
        key = (source.address, address)
        if not isinstance(target, Node) or source.is_dead or key in environment.cuts:
            return
        arrive = partial(target.datagram, data, source.address)
        for _ in range(2 if chance() < environment.repeat else 1):
            if chance() < environment.loss:
                continue
            delay_ms = self.delay_ms()
            if delay_ms > environment.delay_ms_max:
                pass  # late, and overtaken
            elif chance() < environment.reorder:
                delay_ms += environment.delay_ms_max * 5 * chance()
            elif environment.delay_ms_max:  # in order: never before the one before it
                now_ms = self.clock.now_us / 1000
                due, before = now_ms + delay_ms, self._due.get(key, 0.0)
                self._due[key] = due = due if due > before else before
                delay_ms = due - now_ms
            self.scheduler.after(delay_ms, arrive)

    # What must be so.

    @property
    def truth(self) -> set[tuple[int, int, int]]:
        """Which session is in which room at which gateway, as the running gateways know it."""
        return {
            (row.room, row.session_id, row.gateway)
            for gateway in self.gateways
            if not gateway.is_dead
            for row in gateway.rooms.table.rows()
        }

    def known_to(self, tables: Sequence[Any]) -> set[tuple[int, int, int]]:
        """The same, as some tables have it."""
        return {(row.room, row.session_id, row.gateway) for table in tables for row in table.rows()}

    @property
    def live_brokers(self) -> list[ClusterBroker]:
        """Brokers that have not crashed."""
        return [self.brokers_by_node[node.boot] for node in self.brokers if not node.is_dead]

    def is_settled(self) -> bool:
        """Whether all brokers run, and know of their rooms exactly what the gateways know."""
        truth = self.truth
        for node in self.brokers:
            broker = self.brokers_by_node[node.boot]
            if node.is_dead:
                continue
            count = broker._brokers.counts.count
            mine = {row for row in truth if row[0] % count == node.partition % count}
            if not broker.replica.life.takes_work or self.known_to([broker.table]) != mine:
                return False
        others: list[Router | ClusterRelay] = [*self.routers_by_node.values(), *self.relays_by_node.values()]
        dead = {node.boot for node in (*self.routers, *self.relays) if node.is_dead}
        return all(each.replica.life.takes_work for each in others if each._endpoint.boot not in dead)


def _fail(answer: object) -> None:
    if isinstance(answer, PixiuError):
        raise answer
