"""Probes over every path: what they measure, what they find broken, and that nobody else notices them."""

import random

import pytest

from pixiu.machines.probes import Alarm, Hop, Path, ProbeRules, Probes, read_probe, stamped, write_probe
from pixiu.testing.cluster.environment import texts
from pixiu.testing.cluster.world import Cluster, Environment, Node

RULES = ProbeRules(interval_ms=200, late_ms=300, failures=3)


def probed(seed: int = 1, *, relays: int = 0, environment: Environment | None = None) -> Cluster:
    cluster = Cluster(random.Random(seed), brokers=2, relays=relays, environment=environment)
    cluster.add_gateway()
    cluster.add_router()
    for partition in range(relays):
        cluster.add_relay(partition)
    for partition in range(2):
        for _ in range(2):
            cluster.add_broker(partition)
    cluster.add_proxy()
    cluster.add_proxy()
    assert cluster.run_until(cluster.is_settled)
    return cluster


@pytest.mark.sim
@pytest.mark.feature("X29")
@pytest.mark.parametrize("relays", [0, 1])
def test_every_proxy_partition_and_replica_is_probed_and_measured(relays: int) -> None:
    cluster = probed(relays=relays)
    node, probe = cluster.add_probe(RULES)
    left: dict[int, float] = {}
    truth: dict[Path, list[float]] = {}
    stamps: list[list[Hop]] = []
    gone, back = probe.probes.left, probe.probes.back

    def noted_left(number: int, path: Path, now_ms: float) -> None:
        left[number] = cluster.clock.now_us / 1000
        truth.setdefault(path, [])
        paths[number] = path
        gone(number, path, now_ms)

    def noted_back(number: int, hops: list[Hop], now_ms: float) -> None:
        truth[paths[number]].append(cluster.clock.now_us / 1000 - left[number])
        stamps.append(hops)
        back(number, hops, now_ms)

    paths: dict[int, Path] = {}
    probe.probes.left = noted_left  # type: ignore[method-assign]
    probe.probes.back = noted_back  # type: ignore[method-assign]
    cluster.run(12_000)
    assert len(truth) == 2 * 2 * 2
    rows = probe.rows()
    brokers = {(row["proxy"], row["broker"]) for row in rows}
    assert len(brokers) == 2 * 4, "every replica by way of every proxy"
    for path, row in zip(probe.probes.paths, rows, strict=True):
        ordered = sorted(truth[path])
        assert row["success"] == 1.0
        assert row["probes"] == len(ordered) > 20
        assert row["p50_ms"] == round(ordered[len(ordered) // 2], 3)
        assert row["p99_ms"] == round(ordered[min(int(0.99 * len(ordered)), len(ordered) - 1)], 3)
    assert {tuple(hop.role for hop in each) for each in stamps} == {("proxy", "broker", *["relay"] * relays)}
    assert all(hop.left_us >= hop.came_us for each in stamps for hop in each)
    assert not probe.alarms
    assert node.member.path


@pytest.mark.sim
@pytest.mark.feature("X29", "X31")
@pytest.mark.parametrize("kind", ["broker", "proxy"])
def test_what_stands_still_is_named(kind: str) -> None:
    cluster = probed(3)
    _, probe = cluster.add_probe(RULES)
    cluster.run(6_000)
    assert all(row["probes"] for row in probe.rows())
    frozen = (cluster.brokers if kind == "broker" else cluster.proxies)[0]
    frozen.freeze()
    assert cluster.run_until(lambda: bool(probe.alarms), within_ms=2_000)
    (alarm,) = probe.alarms
    assert alarm.kind == kind
    assert (alarm.proxy or alarm.broker) == frozen.boot
    assert probe.alarm_texts() == [f"{probe.name_of(frozen.boot)}: no probe comes back by way of it"]
    peers = [row for row in proxy_rows(cluster) if row["name"] == probe.name_of(frozen.boot)]
    cluster.run(2_500)
    peers = [row for row in proxy_rows(cluster) if row["name"] == probe.name_of(frozen.boot)]
    assert kind == "proxy" or all(float(str(row["success"])) < 0.5 for row in peers), "within five heartbeats"
    frozen.thaw()
    assert cluster.run_until(lambda: not probe.alarms, within_ms=10_000)


def proxy_rows(cluster: Cluster) -> list[dict[str, object]]:
    return [row for row in cluster.proxies[1].directory.rows() if row["role"] == "broker"]


def cut(cluster: Cluster, one: Node, other: Node) -> None:
    cluster.environment.cuts |= {(one.address, other.address)}


@pytest.mark.sim
@pytest.mark.feature("X29")
def test_a_way_that_alone_is_cut_is_named() -> None:
    cluster = probed(4)
    _, probe = cluster.add_probe(RULES)
    cluster.run(6_000)
    proxy, broker = cluster.proxies[1], cluster.brokers[0]
    cut(cluster, proxy, broker)
    assert cluster.run_until(lambda: bool(probe.alarms), within_ms=2_000)
    (alarm,) = probe.alarms
    assert alarm == Alarm("way", proxy.boot, broker.boot, 1)
    assert "only this way fails" in probe.alarm_texts()[0]


@pytest.mark.sim
@pytest.mark.feature("X30")
def test_nobody_else_hears_probes_and_rooms_go_on_as_before() -> None:
    cluster = probed(5)
    gateway = cluster.gateways[0]
    gateway.enter(1, "probe")  # a room of people may be called so
    gateway.enter(1, "lobby")
    heard = len(gateway.shown[1])
    reports: list[str] = []
    for broker in cluster.live_brokers:
        broker._report = lambda row: reports.append(row.room)
    cluster.add_probe(RULES)
    cluster.run(6_000)
    assert len(gateway.shown[1]) == heard
    gateway.say(1, "lobby", "text")
    cluster.run(2_000)
    assert texts(gateway, 1) == ["text"]
    assert set(reports) <= {"lobby", "probe"}
    assert not any(broker.early or broker.foreign for broker in cluster.live_brokers)


def test_a_probe_is_read_and_what_is_none_is_not() -> None:
    body = stamped(stamped(write_probe(7, 9), Hop("proxy", 1, 2, 3, 4)), Hop("broker", 5, 6, 7, 8))
    assert read_probe(body) == (7, 9, [Hop("proxy", 1, 2, 3, 4), Hop("broker", 5, 6, 7, 8)])
    for other in (b"", b"{}", body[:-1], b"XXXX" + body[4:], write_probe(7, 9) + b"\xff" * 29):
        assert read_probe(other) is None


def test_probes_that_come_late_or_for_paths_that_are_gone_are_nothing() -> None:
    probes = Probes(ProbeRules(late_ms=100, failures=2))
    one, other = Path(1, 0, 0), Path(2, 0, 0)
    probes.known([one, other])
    for number, path in enumerate((one, other, one, other)):
        probes.left(number, path, number * 1_000)
    probes.look(10_000)
    assert probes.alarms() == [Alarm("all", 0, 0, 2)]
    probes.back(0, [], 10_000)
    assert probes.came == 0, "it was given up"
    probes.left(9, other, 10_000)
    probes.back(9, [Hop("broker", 5, 0, 0, 0)], 10_050)
    assert probes.alarms() == [Alarm("proxy", 1, 0, 1)]
    probes.left(10, one, 10_000)
    probes.known([other])
    probes.back(10, [], 10_001)
    assert probes.alarms() == []
    probes.known(Path(number, 0, 0) for number in range(5_000))
    assert probes.left_out == 904
