"""Kafka and Cassandra behind TLS and a login, each by its one line: real servers with certificates of our own."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("confluent_kafka")
pytest.importorskip("cassandra")

from pixiu.backends.cassandra.address import Address
from pixiu.backends.cassandra.checks import examine
from pixiu.backends.cassandra.link import connect_once
from pixiu.backends.kafka import topics as topics_module
from pixiu.backends.kafka.address import client_options, parse_address
from pixiu.backends.kafka.topics import Topics
from pixiu.config import EngineSettings, Settings
from pixiu.model.errors import ConfigError, Unavailable
from pixiu.node.embedded import EmbeddedNode
from tests.certificates import Authority
from tests.engines import require_cassandra
from tests.kafka import new_prefix, require_kafka

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tools.cassandra_server import CassandraServer
    from tools.kafka_server import KafkaServer

pytestmark = [pytest.mark.engines, pytest.mark.timeout(300)]

PASSWORD = "only-for-tests"
_ENCRYPTION = """client_encryption_options:
  enabled: true
  optional: false
  keystore: {folder}/server.p12
  keystore_password: {password}
  truststore: {folder}/trusted.p12
  truststore_password: {password}
  store_type: PKCS12
  require_client_auth: true
"""


class Certified:
    """A folder with the authority, the servers' keystores, our own pair, and a password."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority(folder, "pixiu-test")
        self.authority.keystore(folder / "server.p12", PASSWORD)
        self.authority.truststore(folder / "trusted.p12", PASSWORD)
        self.authority.certify(folder / "own.pem", folder / "own-key.pem")
        (folder / "password").write_text(PASSWORD + "\n", encoding="utf-8")

    @property
    def ca(self) -> str:
        return f"tls=yes&ca={self.authority.path}"

    @property
    def own(self) -> str:
        return f"certificate={self.folder}/own.pem&key={self.folder}/own-key.pem"

    @property
    def login(self) -> str:
        return f"user=pixiu&password_file={self.folder}/password"


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Certified:
    return Certified(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory, certified: Certified) -> Iterator[KafkaServer]:
    """Clients log in, over TLS."""
    keystore = {
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": f"{certified.folder}/server.p12",
        "ssl.keystore.password": PASSWORD,
        "ssl.key.password": PASSWORD,
    }
    users = {"pixiu": PASSWORD}
    folder = tmp_path_factory.mktemp("kafka")
    with require_kafka(folder, more=keystore, protocol="SASL_SSL", users=users) as server:
        yield server


@pytest.fixture(scope="module")
def cassandra(tmp_path_factory: pytest.TempPathFactory, certified: Certified) -> Iterator[CassandraServer]:
    """It wants to know who comes."""
    context = ssl.create_default_context(cafile=str(certified.authority.path))
    context.load_cert_chain(certified.folder / "own.pem", certified.folder / "own-key.pem")
    more = _ENCRYPTION.format(folder=certified.folder, password=PASSWORD)
    with require_cassandra(tmp_path_factory.mktemp("cassandra"), more=more, tls=context) as server:
        yield server


async def test_a_node_talks_over_tls_to_both_of_them(
    kafka: KafkaServer, cassandra: CassandraServer, certified: Certified, tmp_path: Path
) -> None:
    log = f"kafka://{kafka.hosts}?prefix={new_prefix()}&{certified.ca}&{certified.login}"
    timelines = f"cassandra://{cassandra.address}?{certified.ca}&{certified.own}"
    settings = Settings(engines=EngineSettings(log=log, timelines=timelines))
    for texts in (["hello"], ["hello", "again"]):  # the second start finds both where the first left them
        async with EmbeddedNode(tmp_path, settings=settings, creates_users=True) as node:
            await node.send("alice", to="bob", text=texts[-1])
            await node.host.applied()
            page = await node.act("bob", "history", **{"with": "alice"})
            assert sorted(message["text"] for message in page["messages"]) == sorted(texts)
            assert (await node.audit())["balanced"]
    assert PASSWORD not in (tmp_path / "log.json").read_text(encoding="utf-8")


def test_kafka_is_looked_at_over_tls_release_and_all(kafka: KafkaServer, certified: Certified) -> None:
    text = f"kafka://{kafka.hosts}?prefix={new_prefix()}&{certified.ca}&{certified.login}"
    found = Topics(parse_address(text), {}).look()
    assert found[0].state == "ok" and "release 4.1" in found[0].text
    options = client_options(
        f"security.protocol=SASL_SSL; ssl.ca.location={certified.authority.path}; sasl.mechanism=SCRAM-SHA-512; "
        f"sasl.username=pixiu; sasl.password={PASSWORD}"
    )
    assert Topics(parse_address(f"kafka://{kafka.hosts}"), options).brokers() == 1


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("no TLS", "Kafka at"),
        ("not trusted", "certificate verify failed"),
        ("wrong password", "(?i)authentication failed"),
        ("no login", "Kafka at"),
    ],
)
def test_kafka_takes_nobody_who_does_not_fit(
    kafka: KafkaServer, certified: Certified, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str, said: str
) -> None:
    # A reason comes by itself, however busy the machine is; who gives none is waited for.
    monkeypatch.setattr(topics_module, "ADMIN_SECONDS", 3 if said == "Kafka at" else 15)
    (tmp_path / "wrong").write_text("another", encoding="utf-8")
    options = {
        "no TLS": certified.login,
        "not trusted": f"tls=yes&{certified.login}",
        "wrong password": f"{certified.ca}&user=pixiu&password_file={tmp_path}/wrong",
        "no login": certified.ca,
    }
    address = parse_address(f"kafka://{kafka.hosts}?{options[case]}")
    for ask in (Topics(address, {}).brokers, Topics(address, {}).identity):
        with pytest.raises(Unavailable, match=said):
            ask()


def test_who_trusts_everyone_needs_no_authority(kafka: KafkaServer, certified: Certified) -> None:
    for verify in (f"{certified.ca}&verify=chain", "tls=yes&verify=no"):
        assert Topics(parse_address(f"kafka://{kafka.hosts}?{verify}&{certified.login}"), {}).brokers() == 1


def test_what_the_driver_does_not_take_is_told_as_a_wrong_setting(kafka: KafkaServer, tmp_path: Path) -> None:
    address = parse_address(f"kafka://{kafka.hosts}?tls=yes&ca={tmp_path}/none.pem")
    with pytest.raises(ConfigError, match=r"ssl\.ca\.location"):
        Topics(address, {})
    with pytest.raises(ConfigError, match=r"no\.such\.option"):
        Topics(parse_address(f"kafka://{kafka.hosts}"), client_options("no.such.option=1"))


@pytest.mark.parametrize(
    ("case", "said"), [("no TLS", None), ("not trusted", "certificate verify failed"), ("not certified", None)]
)
def test_cassandra_takes_nobody_who_does_not_fit(
    cassandra: CassandraServer, certified: Certified, case: str, said: str | None
) -> None:
    options = {"no TLS": "", "not trusted": f"tls=yes&{certified.own}", "not certified": certified.ca}
    with pytest.raises(Unavailable, match=said):
        connect_once(Address.parse(f"cassandra://{cassandra.address}?{options[case]}"))


def test_cassandra_is_looked_at_over_tls(cassandra: CassandraServer, certified: Certified) -> None:
    for verify in ("yes", "chain"):
        text = f"cassandra://{cassandra.address}?{certified.ca}&{certified.own}&verify={verify}"
        found = {each.name: each for each in examine(Address.parse(text))}
        assert found["timelines engine"].state == "ok", found
