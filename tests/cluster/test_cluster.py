"""Whole clusters of real processes with a real ZooKeeper: leaders and servers die and stand still under load."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

import httpx
import pytest

from pixiu.model.errors import Conflict, Unavailable
from pixiu.node.cluster.door import ask_supervisor
from tests.cluster.processes import SHARD_ONLY, BlockingRegistry, Cluster, Load
from tests.servers import wait_for

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.serial

RESUMES_S = 3.0
THREE = SHARD_ONLY.format(zookeepers=3, replicas=3, min_isr=2)


@pytest.mark.timeout(120)
@pytest.mark.feature("X43", "X48", "X51", "X54")
def test_a_leader_that_is_killed_is_replaced_or_comes_back_and_nothing_accepted_is_lost(tmp_path: Path) -> None:
    with Cluster(tmp_path, THREE) as cluster:
        cluster.wait_in_sync(3)
        leader = cluster.leader()
        others = {"shard-0-0", "shard-0-1", "shard-0-2"} - {leader}
        registry = BlockingRegistry(cluster.registry)
        wait_for(
            lambda: all("admin" in row for row in registry.told("shard/partition0").values()),
            what="the addresses of health",
        )
        for name, row in registry.told("shard/partition0").items():
            health = [httpx.get(f"http://{row['admin']}/{path}") for path in ("healthz", "readyz", "metrics")]
            assert [answer.status_code for answer in health] == [200, 200, 200], (name, health[1].text)
            assert f"pixiu_queue_is_leader {int(name == leader)}" in health[2].text
        with Load(cluster.registry) as load:
            load.wait_for_more()
            cluster.run("kill", leader, "--json")
            load.wait_for_more()
            cluster.wait_in_sync(3)
            assert cluster.leader() in (min(others), leader), "the next in sync, or itself if it was back sooner"
            load.wait_for_more()
            load.stop()
            assert not load.errors
            load.check()
            print(f"writes resumed after {load.longest_gap_s():.2f} s")
            assert load.longest_gap_s() < RESUMES_S
        assert cluster.nodes()[leader]["restarts"] == 1
    status = cluster.call("status")
    assert status.returncode == 1
    assert "no cluster runs" in status.stderr


@pytest.mark.long
@pytest.mark.timeout(180)
@pytest.mark.feature("X43", "X48", "X50", "X51")
def test_a_leader_that_stands_still_is_replaced_and_comes_back_as_a_follower(tmp_path: Path) -> None:
    with Cluster(tmp_path, THREE) as cluster:
        cluster.wait_in_sync(3)
        leader = cluster.leader()
        with Load(cluster.registry) as load:
            load.wait_for_more()
            cluster.ask("freeze", leader)
            load.wait_for_more()
            others = {"shard-0-0", "shard-0-1", "shard-0-2"} - {leader}
            assert cluster.leader() == min(others), "the smallest that was in sync"
            cluster.ask("thaw", leader)
            cluster.wait_in_sync(3)
            assert cluster.leader() != leader
            load.wait_for_more()
            load.stop()
            assert not load.errors
            load.check()
            assert load.longest_gap_s() < RESUMES_S


@pytest.mark.long
@pytest.mark.engines
@pytest.mark.timeout(180)
def test_each_server_of_zookeeper_may_die_in_turn(tmp_path: Path) -> None:
    with Cluster(tmp_path, THREE) as cluster:
        cluster.wait_in_sync(3)
        with Load(cluster.registry) as load:
            for number in (1, 2, 3):
                name = f"zookeeper-{number}"
                load.wait_for_more()
                cluster.ask("kill", name)
                load.wait_for_more(100)
                wait_for(lambda name=name: cluster.nodes()[name]["state"] == "running", timeout_s=30, what=name)  # type: ignore[misc]
            load.wait_for_more()
            load.stop()
            assert not load.errors
            load.check()


@pytest.mark.long
@pytest.mark.timeout(180)
def test_a_server_of_zookeeper_that_stands_still_costs_time_and_nothing_else(tmp_path: Path) -> None:
    with Cluster(tmp_path, THREE) as cluster:
        cluster.wait_in_sync(3)
        with Load(cluster.registry) as load:
            for name in ("zookeeper-2", "zookeeper-3"):
                load.wait_for_more()
                cluster.ask("freeze", name)
                time.sleep(5)  # whoever is connected there has to notice
                load.wait_for_more(timeout_s=60)
                cluster.ask("thaw", name)
            load.wait_for_more()
            load.stop()
            assert not load.errors
            load.check()
            print(f"longest pause {load.longest_gap_s():.2f} s")


@pytest.mark.timeout(180)
def test_frozen_zookeeper_stops_no_write_and_replaces_no_leader(tmp_path: Path) -> None:
    with Cluster(tmp_path, THREE) as cluster:
        cluster.wait_in_sync(3)
        leader = cluster.leader()
        servers = ("zookeeper-1", "zookeeper-2", "zookeeper-3")
        with Load(cluster.registry) as load:
            load.wait_for_more()
            for name in servers:
                os.kill(cluster.nodes()[name]["pid"], signal.SIGSTOP)
            before = len(load.answers)
            for _ in range(15):
                time.sleep(1)
                load.wait_for_more(timeout_s=5)
            assert not load.errors
            assert len(load.answers) > before + 100
            for name in servers:
                os.kill(cluster.nodes()[name]["pid"], signal.SIGCONT)
            time.sleep(10)  # sessions expire and are opened again
            load.wait_for_more()
            cluster.wait_in_sync(3)
            load.stop()
            assert not load.errors
            load.check()
            print(f"{len(load.answers)} writes, longest pause {load.longest_gap_s():.2f} s")
            assert load.longest_gap_s() < RESUMES_S
        assert cluster.leader() == leader


@pytest.mark.long
@pytest.mark.timeout(180)
def test_a_leader_that_is_drained_hands_over_at_once_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with Cluster(tmp_path, THREE) as cluster:
        cluster.wait_in_sync(3)
        leader = cluster.leader()
        with Load(cluster.registry) as load:
            load.wait_for_more()
            cluster.ask("drain", leader)
            load.wait_for_more(100)
            load.stop()
            load.check()
        registered = BlockingRegistry(cluster.registry).places("shard/partition0")
        assert leader not in registered and len(registered) == 2
        nodes = cluster.nodes()
        assert (nodes[leader]["state"], nodes[leader]["pid"]) == ("drained", None)
        assert cluster.leader() != leader
        refused = cluster.call("drain", cluster.leader())
        assert refused.returncode == 1
        assert "nothing was done" in refused.stderr
        assert cluster.call("start", leader).returncode == 0
        cluster.wait_in_sync(3)
        assert "not drained" in cluster.call("start", leader).stderr


@pytest.mark.long
@pytest.mark.timeout(180)
def test_followers_that_die_one_by_one_and_all_at_once_cost_nothing_accepted(tmp_path: Path) -> None:
    with Cluster(tmp_path, THREE) as cluster:
        cluster.wait_in_sync(3)
        with Load(cluster.registry) as load:
            load.wait_for_more()
            for name in ("shard-0-0", "shard-0-1", "shard-0-2"):
                cluster.ask("kill", name)
            load.wait_for_more()
            cluster.wait_in_sync(3)
            load.wait_for_more()
            load.stop()
            load.check()


@pytest.mark.timeout(60)
def test_a_role_that_is_started_wrongly_is_said_at_once_and_nothing_is_left(tmp_path: Path) -> None:
    text = 'zookeeper = "zk://127.0.0.1:1/x"\n[roles.shard]\nsettings = { "replication.min_isr" = 0 }\n'
    cluster = Cluster(tmp_path, text)
    done = cluster.call("up", str(cluster.file), timeout_s=50)
    assert done.returncode == 2
    assert "replication.min_isr must be at least 1" in done.stderr
    assert cluster.call("status").returncode == 1


@pytest.mark.long
@pytest.mark.timeout(120)
def test_what_a_killed_supervisor_leaves_is_ended_by_the_next_command(tmp_path: Path) -> None:
    with Cluster(tmp_path, SHARD_ONLY.format(zookeepers=1, replicas=1, min_isr=1)) as cluster:
        with pytest.raises(Conflict, match="there is no 'queue-9'"):
            ask_supervisor(cluster.folder, {"action": "kill", "name": "queue-9"})
        with pytest.raises(Conflict, match="there is no action"):
            ask_supervisor(cluster.folder, {"action": "explode", "name": "shard-0-0"})
        twice = cluster.call("up", str(cluster.file))
        assert twice.returncode == 1
        assert "runs in" in twice.stderr
        pids = [row["pid"] for row in cluster.nodes().values()]
        os.kill(int(cluster.up["pid"]), signal.SIGKILL)
        wait_for(lambda: cluster.call("status").returncode == 1, what="the supervisor's end")
        with pytest.raises(Unavailable):
            ask_supervisor(cluster.folder, {"action": "status"})
        again = cluster.run("up", str(cluster.file), "--detach", "--json", timeout_s=120)
        assert {row["state"] for row in again["nodes"]} == {"running"}
        assert not set(pids) & {row["pid"] for row in again["nodes"]}
        for pid in pids:
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)
