"""The file that describes a cluster, and the address of a registry."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pixiu.config.cluster import read_cluster_file
from pixiu.config.registry import RegistryAddress
from pixiu.model.errors import ConfigError
from pixiu.node.cluster.layout import Layout

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("text", "hosts", "root"),
    [
        ("zk://a:1,b:2/pubsub", "a:1,b:2", "/pubsub"),
        ("zk://a", "a:2181", "/pubsub"),
        ("zk://a:1/x/y/", "a:1", "/x/y"),
        ("zk://[::1]:5/x", "[::1]:5", "/x"),
    ],
)
def test_the_address_of_a_registry(text: str, hosts: str, root: str) -> None:
    address = RegistryAddress.parse(text)
    assert (address.hosts, address.root) == (hosts, root)
    assert RegistryAddress.parse(str(address)) == address


@pytest.mark.parametrize(
    "text", ["", "a:1", "http://a", "zk://", "zk://a:0", "zk://a:x", "zk://a:1/..", "zk://a:1/b c"]
)
def test_what_is_no_address_of_a_registry_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        RegistryAddress.parse(text)


def write(folder: Path, text: str) -> Path:
    path = folder / "cluster.toml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "no roles"),
        ("name = 3\n[roles.shard]", "name must be a text"),
        ("name = 'A b'\n[roles.shard]", "small letters"),
        ("colour = 'red'\n[roles.shard]", "no colour"),
        ("secret = 'short'\n[roles.shard]", "16 characters"),
        ("zookeeper = { nodes = 2 }\n[roles.shard]", "must be odd"),
        ("zookeeper = { servers = 2 }\n[roles.shard]", "no zookeeper.servers"),
        ("zookeeper = 3\n[roles.shard]", "zookeeper is"),
        ("zookeeper = 'zk://a:x'\n[roles.shard]", "HOST:PORT"),
        ("secret = '#0123456789abcdef'\n[roles.shard]", "secret must be one line"),
        ('secret = """0123456789abcdef\nfedcba9876543210"""\n[roles.shard]', "secret must be one line"),
        ("secret = ' 0123456789abcdef'\n[roles.shard]", "secret must be one line"),
        ('[roles.gateway]\nreplicas = 2\nsettings = { "gateway.tcp_port" = 9000 }', "port 9000 .*gateway .*gateway"),
        ("[roles.shrad]", r"no role 'shrad'.*did you mean \[roles.shard\]"),
        ('[roles.shard]\nsettings = { "replication.min_irs" = 2 }', "roles.shard.settings: .*min_irs"),
        ("[roles.shard]\nreplicas = 0", "roles.shard.replicas must be 1 to"),
        ("[roles.shard]\nreplicas = true", "roles.shard.replicas"),
        ("[roles.shard]\npartitions = 2", "a cluster has one shard"),
        ("[roles.broker]\npartitions = 3", "power of two"),
        ("[roles.broker]\npartitions = 256\nreplicas = 32", "at most 512"),
        ("[roles.shard]\nport = 65535\nreplicas = 3", "no room for 3 ports"),
        ("[roles.shard]\nsettings = { a = [1] }", "settings must be like"),
        ("[roles.shard]\nfoo = 1", "no roles.shard.foo"),
        ("roles = 1", "no roles"),
        ("engines = 1\n[roles.shard]", "engines is a table"),
        ("[roles.shard]\n[engines]\nregistry = 'zk://a'", "no engines.registry"),
        ("[roles.shard]\n[engines]\nstore = 3", "engines.store must be a text"),
        ("[roles.gateway]\n[engines]\nstore = 'redis://a'", "engines.store is for shards"),
        ("[roles.gateway]\n[engines]\nlog = 'kafka://a'", "engines.log is for shards"),
        ("[roles]\nshard = 3", "must be a table"),
        ("[", "not TOML"),
        ("[roles.shard]\nport = 9000\nreplicas = 3\n[roles.gateway]\nport = 9002", "port 9002 .*shard .*gateway"),
        ('[roles.meta]\nreplicas = 2\nsettings = { "links.admin_port" = 9000 }', "port 9000 .*meta .*meta"),
        ("[roles.carrier]\n[roles.gateway]", r"no role 'carrier' any more.*\[roles.shard\]"),
        ("[roles.queue]", r"no role 'queue' any more.*\[roles.shard\]"),
        ("[roles.shard]\nreplicas = 10", "replicas must be 1 to 9"),
        ('[roles.shard]\nreplicas = 1\nsettings = { "replication.min_isr" = 2 }', "min_isr is 2, and there are 1"),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_the_key(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint) as raised:
        read_cluster_file(write(tmp_path, text))
    assert str(tmp_path) in str(raised.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*none\.toml"):
        read_cluster_file(tmp_path / "none.toml")


def test_partitions_and_replicas_become_processes_and_ports_and_the_secret_stay(tmp_path: Path) -> None:
    text = """
    zookeeper = "zk://127.0.0.1:2181/x"
    [roles.broker]
    partitions = 2
    replicas = 2
    port = 4000
    settings = { "log.level" = "warning", "queue.no_cache" = true }
    [roles.shard]
    replicas = 3
    settings = { "replication.min_isr" = 2 }
    """
    first = Layout(tmp_path / "c", read_cluster_file(write(tmp_path, text)))
    first.write_state()
    assert [plan.name for plan in first.plans] == [
        "shard-0-0", "shard-0-1", "shard-0-2", "broker-0-0", "broker-0-1", "broker-1-0", "broker-1-1",
    ]  # fmt: skip
    assert [plan.address for plan in first.plans[3:]] == [f"127.0.0.1:{port}" for port in range(4000, 4004)]
    assert {plan.min_others for plan in first.plans[:3]} == {2}
    command = first.plans[0].command
    assert command[command.index("--shard") + 1] == "0" and command[command.index("--replica") + 1] == "0"
    command = first.plans[-1].command
    assert command[command.index("--partition") + 1] == "1"
    assert "queue.no_cache=true" in command
    again = Layout(tmp_path / "c", read_cluster_file(write(tmp_path, text)))
    assert again.plans == first.plans
    assert first.secret_file.stat().st_mode & 0o777 == 0o600
    assert again.secret_file.read_text(encoding="utf-8") == first.secret_file.read_text(encoding="utf-8")


ON_ENGINES = """
zookeeper = "zk://127.0.0.1:2181/x"
[roles.gateway]
[roles.shard]
replicas = 2
{more}
[engines]
store = "{store}"
timelines = "cassandra://127.0.0.1"
"""


def test_shards_get_the_addresses_of_engines_in_the_environment_where_other_users_cannot_read_them(
    tmp_path: Path,
) -> None:
    text = ON_ENGINES.format(store="redis://:hidden@127.0.0.1", more="")
    *shards, gateway = Layout(tmp_path / "c", read_cluster_file(write(tmp_path, text))).plans
    assert not gateway.environment
    assert len(shards) == 2
    for shard in shards:
        assert shard.environment == {
            "PIXIU_ENGINES__STORE": "redis://:hidden@127.0.0.1", "PIXIU_ENGINES__TIMELINES": "cassandra://127.0.0.1",
        }  # fmt: skip
        assert "hidden" not in " ".join(shard.command)


def test_shards_get_the_address_of_the_log_in_kafka(tmp_path: Path) -> None:
    text = ON_ENGINES.format(store="redis://127.0.0.1", more="") + 'log = "kafka://127.0.0.1?prefix=talk"\n'
    *shards, gateway = Layout(tmp_path / "c", read_cluster_file(write(tmp_path, text))).plans
    assert {shard.environment["PIXIU_ENGINES__LOG"] for shard in shards} == {"kafka://127.0.0.1?prefix=talk"}
    assert not gateway.environment
    with pytest.raises(ConfigError, match="names no Kafka"):
        Layout(tmp_path / "c", read_cluster_file(write(tmp_path, text.replace("kafka://127.0.0.1", "nats://a"))))


@pytest.mark.parametrize(
    ("settings", "engines"),
    [("", '[engines]\nlog = "kafka://127.0.0.1"'), ('"engines.log" = "kafka://127.0.0.1", ', "")],
)
def test_copies_of_a_log_in_kafka_are_not_counted_by_the_processes_that_own_it(
    tmp_path: Path, settings: str, engines: str
) -> None:
    text = '[roles.shard]\nreplicas = 2\nsettings = {{ {settings}"replication.min_isr" = 3 }}\n{engines}'
    cluster = read_cluster_file(write(tmp_path, text.format(settings=settings, engines=engines)))
    file = replace(cluster, zookeeper_nodes=0, registry=RegistryAddress.parse("zk://127.0.0.1"))
    assert [plan.min_others for plan in Layout(tmp_path / "c", file).plans] == [0, 0]


@pytest.mark.parametrize(
    ("store", "more", "complaint"),
    [
        ("mysql://a", "", "store must be redis://"),
        ("redis://a", "settings = { 'replication.name' = 'Not so' }", "replication.name"),
        ("redis://a", "settings = { 'engines.timelines' = 'mysql://a' }", "timelines must be embedded"),
    ],
)
def test_engines_that_shards_could_not_use_are_refused_before_anything_starts(
    tmp_path: Path, store: str, more: str, complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        Layout(tmp_path / "c", read_cluster_file(write(tmp_path, ON_ENGINES.format(store=store, more=more))))
