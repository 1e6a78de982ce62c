"""Whole clusters of rooms under everything at once: loss, repeats, reordering, crashes, freezes, netsplits, doublings.

Every seed ends with a calm in which nobody enters, nobody is restarted, and everything must come right by itself.
"""

import random

import pytest

from pixiu.model.errors import PixiuError
from pixiu.testing.cluster_world import Cluster, GatewayNode, Node, Weather
from tests.roles.cluster.test_rooms import churn, texts

pytestmark = pytest.mark.sim


class Trouble:
    """One seed's cluster, and what happens to it."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        weather = Weather(
            loss=rng.choice((0, 0.05, 0.2)), repeat=rng.choice((0, 0.1)), reorder=rng.choice((0, 0.2)),
            delay_ms_max=rng.choice((1, 20, 200)), watch_loss=rng.choice((0, 0.5, 1.0)),
        )  # fmt: skip
        self.counts = {"broker": rng.choice((1, 2)), "router": rng.choice((1, 2))}
        self.cluster = cluster = Cluster(
            rng, weather=weather, brokers=self.counts["broker"], routers=self.counts["router"]
        )
        for partition in range(self.counts["router"]):
            for _ in range(2):
                cluster.add_router(partition)
        for partition in range(self.counts["broker"]):
            for _ in range(2):
                cluster.add_broker(partition)
        for _ in range(3):
            cluster.add_gateway()
        for _ in range(2):
            cluster.add_proxy()
        self.answers: list[list[object]] = []
        self.sayer = cluster.gateways[0]  # lives to the end, with a session that stays
        self.sayer.enter(1, "stay")
        cluster.gateways[1].enter(2, "stay")
        assert cluster.run_until(cluster.is_settled, within_ms=60_000)

    def restart(self, node: Node) -> None:
        cluster = self.cluster
        if node.role == "router":
            cluster.add_router(node.partition)
        elif node.role == "broker":
            cluster.add_broker(node.partition)
        elif node.role == "proxy":
            cluster.add_proxy()
        else:
            cluster.add_gateway()

    def strike(self) -> None:
        """One piece of trouble."""
        rng, cluster = self.rng, self.cluster
        nodes = [node for node in cluster.nodes_by_address.values() if node.role != "publisher"]
        mortal = [node for node in nodes if node not in cluster.gateways[:2]]
        kind = rng.choice(("crash", "freeze", "cut", "session", "calm"))
        if kind == "crash":
            node = rng.choice(mortal)
            if node.is_frozen:
                node.thaw()
            node.crash()
            cluster.scheduler.after(rng.random() * 3_000, lambda: self.restart(node))
        elif kind == "freeze":
            node = rng.choice(nodes)
            node.freeze()
            cluster.scheduler.after(rng.random() * 6_000, lambda: None if node.is_dead else node.thaw())
        elif kind == "cut":
            half = set(rng.sample(nodes, len(nodes) // 2))
            cuts = {(a.address, b.address) for a in nodes for b in nodes if (a in half) != (b in half)}
            cuts = (
                cuts if rng.random() < 0.5 else set(rng.sample(sorted(cuts), len(cuts) // 3))
            )  # one way, some of them
            cluster.weather.cuts |= cuts
            cluster.scheduler.after(rng.random() * 8_000, lambda: cluster.weather.cuts.difference_update(cuts))
        elif kind == "session":
            rng.choice(nodes).session.expire()

    def double(self, role: str) -> None:
        """The new half is started; the flip comes when all of it runs, as the operator's tool has it."""
        cluster, count = self.cluster, self.counts[role]
        for partition in range(count, 2 * count):
            cluster.add_broker(partition) if role == "broker" else cluster.add_router(partition)
        is_ready = cluster.run_until(cluster.is_settled, within_ms=60_000)
        if is_ready and not isinstance(cluster.double(role), PixiuError):
            self.counts[role] = 2 * count

    def run(self) -> None:
        rng, cluster = self.rng, self.cluster
        doubles = rng.choice((None, "broker", "router"))
        for step in range(12):
            self.strike()
            churn(cluster, rng, 8)
            if len(self.answers) < 40:
                self.answers.append(self.sayer.say(1, "stay", f"text {len(self.answers)}", is_reliable=True))
            cluster.run(rng.random() * 2_000)
            if step == 8 and doubles:
                self.calm()
                self.double(doubles)

    def calm(self) -> None:
        cluster = self.cluster
        cluster.run(10_000)
        cluster.weather.cuts.clear()
        cluster.weather.loss = min(cluster.weather.loss, 0.05)


def check(seed: int) -> None:
    trouble = Trouble(seed)
    trouble.run()
    trouble.calm()
    cluster = trouble.cluster
    assert cluster.run_until(cluster.is_settled, within_ms=120_000), "routes are as the gateways say"
    assert cluster.run_until(lambda: all(trouble.answers), within_ms=600_000), "every sender has an answer"
    accepted = [f"text {number}" for number, answer in enumerate(trouble.answers) if isinstance(answer[0], dict)]
    gateways: list[tuple[GatewayNode, int]] = [(cluster.gateways[0], 1), (cluster.gateways[1], 2)]
    for gateway, session_id in gateways:
        heard = texts(gateway, session_id)
        assert len(set(heard)) == len(heard), "shown once"
        # Who is at a gateway that was taken for dead is not in the room throughout.
        expected = (
            accepted if gateway.boot not in cluster.declared_dead else [each for each in accepted if each in heard]
        )
        assert [text for text in heard if text in accepted] == expected, "all that was accepted, in order"


@pytest.mark.feature("X13", "X15", "X28", "X34", "X40", "X74")
def test_one_seed() -> None:
    check(34)  # a gateway is taken for dead, and comes back


@pytest.mark.long
@pytest.mark.feature("X13", "X15", "X28", "X34", "X40", "X73", "X74")
@pytest.mark.timeout(7_200)
def test_many_seeds() -> None:
    for seed in range(1_000):
        try:
            check(seed)
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
