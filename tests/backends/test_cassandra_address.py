"""What ``timelines = "cassandra://…"`` may say, and what of the backend needs no server."""

import ssl
import sys
from pathlib import Path

import pytest

from pixiu.backends.cassandra.address import Address
from pixiu.backends.cassandra.layout import ID_MAX, bucket_of, content_of, pk_of
from pixiu.backends.cassandra.timelines import CassandraTimelines
from pixiu.backends.memory.stores import MemoryStores
from pixiu.backends.mixed import MixedStores
from pixiu.backends.tls import tls_context
from pixiu.model.errors import ConfigError
from pixiu.model.pixiu_pb2 import HistoryTrimmed, MsgChat
from pixiu.model.timeline import PrivateRow
from pixiu.ports.stores import Lane
from pixiu.roles.carrier.apply_erasure import TimelineErasure
from pixiu.roles.carrier.apply_trim import TimelineTrim
from pixiu.roles.carrier.reached import Reached
from pixiu.roles.carrier.releases import Releases
from tests.certificates import Authority


def test_an_address_has_hosts_a_keyspace_and_options() -> None:
    assert Address.parse("cassandra://db1") == Address(hosts=("db1",), port=9042, keyspace="chatdata")
    given = "cassandra://db1:1,db2:1/other?layout=seed&user=u&password_file=/p&datacenter=dc1&replicas=2&timeout_ms=99"
    assert Address.parse(given) == Address(
        hosts=("db1", "db2"), port=1, keyspace="other", layout="seed", user="u", password_file="/p", datacenter="dc1",
        replicas=2, timeout_ms=99,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cassandra://", "must be cassandra://HOST"),
        ("cassandra://u:p@db1", "must be cassandra://HOST"),
        ("cassandra://db1:x", "must be cassandra://HOST"),
        ("cassandra://db1:70000", "must be cassandra://HOST"),
        ("cassandra://,", "must be cassandra://HOST"),
        ("cassandra://db1:1,db2:2", "same port"),
        ("cassandra://db1/Chat;drop", "a keyspace has"),
        ("cassandra://db1?layout=wide", "default, seed, bucketed"),
        ("cassandra://db1?replicas=0", "1 to 9"),
        ("cassandra://db1?timeout_ms=soon", "50 to 60000"),
        ("cassandra://db1?password=secret", "knows no option 'password'"),
        ("cassandra://db1?tls=1", "tls of timelines must be yes or no"),
        ("cassandra://db1?verify=no", "tls=yes alone"),
        ("cassandra://db1?tls=yes&verify=perhaps", "yes, chain, no"),
        ("cassandra://db1?tls=yes&key=/k.pem", "certificate and key"),
    ],
)
def test_a_wrong_address_is_refused_with_what_is_wrong(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Address.parse(text)


def test_tls_checks_what_it_is_told_to(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "pixiu-test")
    authority.certify(tmp_path / "own.pem", tmp_path / "own-key.pem")
    files = f"ca={authority.path}&certificate={tmp_path}/own.pem&key={tmp_path}/own-key.pem"
    modes = {}
    for verify in ("yes", "chain", "no"):
        tls = Address.parse(f"cassandra://db1?tls=yes&{files}&verify={verify}").tls
        context = tls_context(tls, "timelines")
        assert context is not None and context.minimum_version >= ssl.TLSVersion.TLSv1_2
        modes[verify] = (context.check_hostname, context.verify_mode)
    assert modes == {
        "yes": (True, ssl.CERT_REQUIRED), "chain": (False, ssl.CERT_REQUIRED), "no": (False, ssl.CERT_NONE),
    }  # fmt: skip
    assert tls_context(Address.parse("cassandra://db1").tls, "timelines") is None
    missing = Address.parse(f"cassandra://db1?tls=yes&ca={tmp_path}/none.pem").tls
    with pytest.raises(ConfigError, match=r"none\.pem"):
        tls_context(missing, "timelines")


@pytest.mark.feature("C19")
def test_pk_is_signed_and_buckets_rise() -> None:
    assert [pk_of(number) for number in (0, 1, 32767, 32768, 65535, 65536, 2**48 - 1)] == [
        0,
        1,
        32767,
        -32768,
        -1,
        0,
        -1,
    ]
    assert bucket_of(0) == 0
    assert 0 < bucket_of(2**61) < bucket_of(ID_MAX) < 2**31


def test_content_that_cannot_be_read_is_none() -> None:
    nothing = content_of(5, None)
    assert content_of(5, b"\xff\xff") == nothing
    assert nothing.draf == b""


@pytest.mark.feature("C17")
def test_usid_is_the_decimal_send_id_or_a_64_bit_hash_of_it() -> None:
    def usid(send_id: str) -> int:
        return content_of(5, MsgChat(sendId=send_id, data=b"x").SerializeToString()).usid

    decimals = ["42", "-7", "0", "0" * 30, "9223372036854775807", "-9223372036854775808"]
    assert [usid(each) for each in decimals] == list(map(int, decimals))
    assert usid("") == 0, "a send without a send_id"
    others = ["s-1", "9223372036854775808", "٤٢", "1_0", "+5", "a" * 64]
    hashes = [usid(each) for each in others]
    assert len(set(hashes)) == len(others) and 0 not in hashes
    assert all(-(2**63) <= each < 2**63 for each in hashes)
    assert usid("s-1") == 226042384122961421, "stored rows hold it: it must not change"


def test_without_the_driver_one_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name == "cassandra" or name.startswith("cassandra.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cassandra", None)
    with pytest.raises(ConfigError, match="install it with: make setup"):
        CassandraTimelines(Address(hosts=("127.0.0.1",), port=1), lambda _: {})


class _Behind:
    """A part that knows nothing yet."""

    def applied(self, _: Lane) -> int:
        return 0


@pytest.mark.parametrize("is_trim", [False, True])
@pytest.mark.parametrize(("already", "left"), [(0, 1), (3, 2)])
def test_an_erasure_or_a_trim_that_is_applied_again_releases_bodies_once(
    already: int, left: int, is_trim: bool
) -> None:
    """The embedded stores had committed it, another engine's timelines had not."""
    base = MemoryStores()
    base.commit(dict.fromkeys(Lane, already))
    mixed = MixedStores(base, [_Behind()], timelines=base.timelines)  # type: ignore[list-item]
    reached = Reached(mixed)
    reached.rosters = reached.inboxes = 3
    body = MsgChat(msgId=70, fromId=1, toId=2, data=b"x").SerializeToString()
    base.bodies.put(70, body, 2)
    base.timelines.put_private(2, PrivateRow(70, 1, is_incoming=True))
    releases = Releases(base.bodies, mixed.bodies_applied(Lane.TIMELINES))
    if is_trim:
        TimelineTrim(mixed, reached, releases).trim(HistoryTrimmed(through=70, users=[2]), 3)
    else:
        TimelineErasure(mixed, reached, releases).erase(2, 3)
    assert base.bodies.references(70) == left
    assert base.timelines.private_forward(2) == []
