"""A cluster that could not listen where its file says: told at once, before anything is started."""

import asyncio
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from pixiu.config.cluster import read_cluster_file
from pixiu.model.errors import ConfigError, PixiuError, Unavailable
from pixiu.node.cluster.door import ask_supervisor
from pixiu.node.cluster.layout import STATE, ChildPlan, HeldPlaces, Layout
from pixiu.node.cluster.supervisor import Supervisor, has_others
from pixiu.ports.registry import Entry
from pixiu.runtime.binding import cannot_listen, why_not_bind
from pixiu.runtime.ports import ephemeral_ports, free_ports, is_free

ELSEWHERE = "192.0.2.7"
"""An address for documents: no machine has it."""


def write(folder: Path, text: str) -> Path:
    path = folder / "cluster.toml"
    path.write_text('zookeeper = "zk://127.0.0.1:2181"\n' + text, encoding="utf-8")
    return path


def refused(tmp_path: Path, text: str) -> PixiuError:
    """What ``pixiu cluster up`` says."""
    with pytest.raises(PixiuError) as told:
        Supervisor(tmp_path / "c", read_cluster_file(write(tmp_path, text)), say=print)
    assert "nothing was started" in str(told.value)
    return told.value


@pytest.mark.parametrize("host", [ELSEWHERE, "no-such-host.invalid"])
def test_an_address_of_another_machine_is_named_with_its_setting(tmp_path: Path, host: str) -> None:
    error = refused(tmp_path, f'[roles.shard]\nbind = "{host}"\n')
    assert isinstance(error, ConfigError)
    assert f"{host} is no address of this machine" in str(error)
    assert "roles.shard.bind" in str(error) and "127.0.0.1" in str(error)


def test_a_taken_port_is_named_with_its_holder(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        error = refused(tmp_path, f"[roles.shard]\nport = {port}\n")
    assert isinstance(error, Unavailable)
    assert f"shard-0-0 cannot listen on 127.0.0.1:{port}" in str(error)
    assert f"in use by pid {os.getpid()}" in str(error) and "roles.shard.port" in str(error)


def test_a_taken_port_of_the_map_is_named_by_its_setting(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        error = refused(tmp_path, f'[roles.shard]\n[roles.meta]\nsettings = {{ "links.admin_port" = {port} }}\n')
    assert 'roles.meta.settings."links.admin_port"' in str(error)


@pytest.mark.parametrize("key", ["gateway.tcp_port", "gateway.grpc_port"])
def test_a_taken_port_of_a_gateway_is_named_by_its_setting(tmp_path: Path, key: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        text = f'[roles.shard]\n[roles.gateway]\nsettings = {{ "{key}" = {taken.getsockname()[1]} }}\n'
        assert f'roles.gateway.settings."{key}"' in str(refused(tmp_path, text))


@pytest.mark.parametrize("options", [[], ["--detach", "--json"]])
def test_the_command_says_so_at_once(tmp_path: Path, options: list[str]) -> None:
    file = write(tmp_path, f'[roles.shard]\nbind = "{ELSEWHERE}"\n')
    command = [sys.executable, "-m", "pixiu", "cluster", "up", str(file), "--data", str(tmp_path / "c"), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2, done.stderr
    assert f"{ELSEWHERE} is no address of this machine" in done.stderr
    assert len(done.stderr.splitlines()) == 1, "one line"


def test_after_a_refusal_the_folder_is_free(tmp_path: Path) -> None:
    refused(tmp_path, f'[roles.shard]\nbind = "{ELSEWHERE}"\n')
    refused(tmp_path, f'[roles.shard]\nbind = "{ELSEWHERE}"\n')


def test_a_stored_port_that_another_process_uses_is_chosen_again(tmp_path: Path) -> None:
    file = write(tmp_path, "[roles.shard]\nreplicas = 3\n")
    first = Layout(tmp_path / "c", read_cluster_file(file))
    first.write_state()
    places = [plan.address for plan in first.plans]
    assert [plan.address for plan in Layout(tmp_path / "c", read_cluster_file(file)).plans] == places
    ports = [int(place.rpartition(":")[2]) for place in places]
    with socket.create_server(("127.0.0.1", ports[0])), socket.socket(type=socket.SOCK_DGRAM) as datagrams:
        datagrams.bind(("127.0.0.1", ports[1]))
        again = Layout(tmp_path / "c", read_cluster_file(file))
        assert [plan.address == place for plan, place in zip(again.plans, places, strict=True)] == [False, False, True]
        held = HeldPlaces()
        for plan in again.plans:
            held.hold(plan)
        held.release_all()
    assert (tmp_path / "c" / STATE).exists()


def test_a_stored_port_inside_the_ephemeral_range_stays_while_it_is_free(tmp_path: Path) -> None:
    """Folders of earlier versions have such ports, and clients may know them."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        free, used = found.getsockname()[1], 0
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        used = client.getsockname()[1]  # as the source port of a connection
        (tmp_path / "c").mkdir()
        (tmp_path / "c" / STATE).write_text(json.dumps({"ports": {"shard-0-0": free, "shard-0-1": used}}))
        file = read_cluster_file(write(tmp_path, "[roles.shard]\nreplicas = 2\n"))
        supervisor = Supervisor(tmp_path / "c", file, say=print)
        first, second = (int(plan.address.rpartition(":")[2]) for plan in supervisor.layout.plans)
        asyncio.run(supervisor.down())
    assert first == free
    assert second != used and second not in ephemeral_ports()


def test_no_outgoing_connection_can_take_a_port_of_a_cluster_that_runs(tmp_path: Path) -> None:
    file = read_cluster_file(write(tmp_path, "[roles.shard]\nreplicas = 3\n[roles.broker]\n[roles.node]\n"))
    supervisor = Supervisor(tmp_path / "c", file, say=print)
    ports = [int(place.rpartition(":")[2]) for plan in supervisor.layout.plans for place in (plan.address, *plan.also)]
    assert len(set(ports)) == 6
    assert not set(ports) & set(ephemeral_ports())
    assert not any(map(is_free, ports)), "held while no process listens there yet"
    asyncio.run(supervisor.down())
    assert all(map(is_free, ports))


def test_no_two_processes_have_one_port(tmp_path: Path) -> None:
    (asked,) = free_ports(1)
    text = f"[roles.shard]\nreplicas = 9\n[roles.gateway]\nreplicas = 1\nport = {asked}\n"
    layout = Layout(tmp_path / "c", read_cluster_file(write(tmp_path, text)))
    places = [plan.address for plan in layout.plans]
    assert len(set(places)) == 10, places


def test_a_folder_with_one_port_for_two_processes_is_repaired(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / STATE).write_text(json.dumps({"ports": {"shard-0-0": port, "shard-0-1": port}}))
    layout = Layout(tmp_path / "c", read_cluster_file(write(tmp_path, "[roles.shard]\nreplicas = 2\n")))
    first, second = (plan.address for plan in layout.plans)
    assert first == f"127.0.0.1:{port}" and second != first


def test_what_is_in_the_way_of_a_listener() -> None:
    assert why_not_bind("127.0.0.1", 0) is None
    assert why_not_bind("", 0) is None
    assert why_not_bind("localhost", 0) is None
    denied = cannot_listen("127.0.0.1", 80, PermissionError(13, "Permission denied"))
    assert isinstance(denied, ConfigError) and "1024" in str(denied)
    other = cannot_listen("127.0.0.1", 8400, OSError(24, "Too many open files"))
    assert isinstance(other, Unavailable) and str(other).endswith("Too many open files")


def test_the_only_gateway_is_known_by_both_of_its_addresses() -> None:
    """It registers the one for peers, and tells the one for clients, which the cluster's file names."""
    plan = ChildPlan("gateway-0-0", "gateway", 0, 0, (), "127.0.0.1:8401")
    own = Entry({"address": "127.0.0.1:41234", "node": "127.0.0.1:8401"}, 0)
    other = Entry({"address": "127.0.0.1:41235", "node": "127.0.0.1:8402"}, 0)
    assert not has_others({"gateway/partition0/0000000001": own}, plan)
    assert has_others({"gateway/partition0/0000000001": own, "gateway/partition0/0000000002": other}, plan)
    assert not has_others({"gateway/partition1/0000000002": other, "gateway/partition0/ctl": other}, plan)


def test_a_supervisor_that_was_killed_is_told_from_a_cluster_that_is_down(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    folder.mkdir()
    command = [sys.executable, "-c", "print(flush=True); input()", str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as left:
        assert left.stdout is not None and left.stdout.readline(), "before that its command line may not be told yet"
        rows = [{"name": "shard-0-0", "pid": left.pid}, {"name": "broker-0-0", "pid": None}]
        (folder / STATE).write_text(json.dumps({"socket": str(folder / "gone"), "nodes": rows}), encoding="utf-8")
        with pytest.raises(Unavailable, match="1 of its processes run on") as told:
            ask_supervisor(folder, {"action": "status"})
        assert "shard-0-0" in str(told.value) and "pixiu cluster down" in str(told.value)
        left.kill()
    with pytest.raises(Unavailable, match="no cluster runs"):
        ask_supervisor(folder, {"action": "status"})
