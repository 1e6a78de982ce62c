"""The tables are the seed's: its columns, its keys, and its queries with unchanged WHERE clauses, by plain CQL."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from pixiu.backends.cassandra.address import Address
from pixiu.backends.cassandra.checks import examine
from pixiu.backends.cassandra.layout import pk_of, usid_of
from pixiu.backends.cassandra.timelines import CassandraTimelines
from pixiu.model.errors import ConfigError, Unavailable
from pixiu.model.pixiu_pb2 import AES, GROUP, IMAGE, P2P, SYSTEM, TEXT, MsgChat
from pixiu.model.timeline import GroupRow, PrivateRow, State
from pixiu.ports.stores import Lane
from tools.cassandra_server import CassandraServer

pytestmark = pytest.mark.engines

Cql = Callable[..., list[Any]]

PCHAT = {
    "pk": "smallint", "uid1": "bigint", "uid2": "bigint", "id": "bigint", "usid": "bigint", "tm": "bigint",
    "tm1": "bigint", "tm2": "bigint", "io": "tinyint", "st": "tinyint", "ct": "tinyint", "mt": "tinyint",
    "draf": "blob", "pr": "varint", "ref": "varint",
}  # fmt: skip
GCHAT = {
    "pk": "smallint", "gid": "bigint", "uid": "bigint", "id": "bigint", "usid": "bigint", "tm": "bigint",
    "res": "tinyint", "st": "tinyint", "ct": "tinyint", "mt": "tinyint", "draf": "blob", "pr": "varint",
    "ref": "varint",
}  # fmt: skip

ALICE, BOB, TEAM = 7, 2**16 + 40_000, 2**40 + 3
IDS = [2**40 + 10 * number for number in range(1, 41)]


@contextmanager
def timelines(
    server: CassandraServer, keyspace: str, layout: str, bodies: dict[int, bytes] | None = None
) -> Iterator[CassandraTimelines]:
    address = Address(hosts=(server.host,), port=server.port, keyspace=keyspace, layout=layout, timeout_ms=10_000)
    found = bodies or {}
    part = CassandraTimelines(address, lambda ids: {each: found[each] for each in ids if each in found})
    try:
        yield part
    finally:
        part.close()


def say(part: CassandraTimelines) -> None:
    """Forty messages from Alice to Bob, forty in a group."""
    for count, number in enumerate(IDS):
        part.put_private(ALICE, PrivateRow(number, BOB, is_incoming=False))
        part.put_private(BOB, PrivateRow(number, ALICE, is_incoming=True))
        part.put_group(TEAM, GroupRow(number, ALICE, IDS[count - 1] if count else 0))
    part.commit({})
    part.flush()


@pytest.mark.feature("B08", "B09")
@pytest.mark.parametrize("layout", ["default", "seed"])
def test_every_find_of_the_seed_runs_with_its_where_clause(
    cassandra: CassandraServer, cql: Cql, keyspace: str, layout: str
) -> None:
    with timelines(cassandra, keyspace, layout) as part:
        say(part)
    little, big, page = IDS[9], IDS[29], 7
    back = "ORDER BY id DESC"
    users = f"SELECT id FROM {keyspace}.pchat WHERE pk=%s AND uid1=%s"
    group = f"SELECT id FROM {keyspace}.gchat WHERE pk=%s AND gid=%s"
    falling, below = IDS[::-1], IDS[28::-1]
    finds = {
        "FindPChatMsg": (users, ALICE, "AND id>%s", (little,), IDS[10:]),
        "FindPChatMsgForwardBetween": (users, ALICE, "AND id>%s AND id<%s", (little, big), IDS[10:29]),
        "FindPChatMsgBackward": (users, ALICE, back, (), falling),
        "FindPChatMsgBackwardFrom": (users, ALICE, f"AND id<%s {back}", (big,), below),
        "FindPChatMsgBackwardTo": (users, ALICE, f"AND id>%s {back}", (little,), falling[:30]),
        "FindPChatMsgBackwardBetween": (users, ALICE, f"AND id>%s AND id<%s {back}", (little, big), below[:19]),
        "FindGChatMsgBackwardTo": (group, TEAM, f"AND id>%s {back}", (little,), falling[:30]),
        "FindGChatMsgBackwardBetween": (group, TEAM, f"AND id>%s AND id<%s {back}", (little, big), below[:19]),
    }
    for name, (head, owner, rest, values, expected) in finds.items():
        for limit in (page, 100):
            rows = cql(f"{head} {rest} LIMIT {limit}", pk_of(owner), owner, *values)
            assert [row.id for row in rows] == expected[:limit], name


@pytest.mark.feature("B01", "B02")
@pytest.mark.parametrize("layout", ["default", "seed", "bucketed"])
def test_columns_and_keys_are_the_seeds(cassandra: CassandraServer, cql: Cql, keyspace: str, layout: str) -> None:
    with timelines(cassandra, keyspace, layout) as part:
        say(part)
    keys = {
        "default": (["pk", "uid1"], ["id"]),
        "seed": (["pk"], ["uid1", "id"]),
        "bucketed": (["pk", "uid1", "bucket"], ["id"]),
    }
    for table, columns, owner in (("pchat", PCHAT, "uid1"), ("gchat", GCHAT, "gid")):
        asked = "SELECT column_name, type, kind, position FROM system_schema.columns WHERE keyspace_name=%s"
        found = cql(f"{asked} AND table_name=%s", keyspace, table)
        types = {row.column_name: row.type for row in found}
        more = {name: types.pop(name) for name in set(types) - set(columns)}
        assert types == columns
        extra = {"default": {"prev"}, "seed": set(), "bucketed": {"bucket", "prev"}}[layout]
        assert set(more) == (extra if table == "gchat" else extra - {"prev"})
        partition = sorted((row.position, row.column_name) for row in found if row.kind == "partition_key")
        clustering = sorted((row.position, row.column_name) for row in found if row.kind == "clustering")
        expected = [[owner if name == "uid1" else name for name in names] for names in keys[layout]]
        assert [[name for _, name in partition], [name for _, name in clustering]] == expected
    assert cql(f"SELECT COUNT(*) FROM {keyspace}.pchat")[0][0] == 2 * len(IDS)
    assert cql(f"SELECT COUNT(*) FROM {keyspace}.gchat")[0][0] == len(IDS)


@pytest.mark.feature("B01", "B02")
@pytest.mark.parametrize("layout", ["default", "seed", "bucketed"])
def test_a_row_has_the_content_and_both_sides_come_in_one_batch(
    cassandra: CassandraServer, cql: Cql, keyspace: str, layout: str
) -> None:
    number = IDS[0]
    chat = MsgChat(
        msgId=number, fromId=ALICE, toId=BOB, tm=1234567, sendId="42", msgType=IMAGE, data=b"\x00pic", refMessageId=99,
        encType=AES, chatType=P2P, keyPrint=2**62,
    )  # fmt: skip
    notice = MsgChat(msgId=number + 1, tm=5, chatType=SYSTEM, sendId="s-1", msgType=TEXT, data=b"hello")
    said = MsgChat(msgId=number + 2, tm=6, chatType=GROUP, data=b"all")
    bodies = {each.msgId: each.SerializeToString() for each in (chat, notice, said)}
    with timelines(cassandra, keyspace, layout, bodies) as part:
        before = part.link.requests
        part.put_private(ALICE, PrivateRow(number, BOB, is_incoming=False))
        part.put_private(BOB, PrivateRow(number, ALICE, is_incoming=True))
        part.commit({})
        part.flush()
        new_buckets = 2 if layout == "bucketed" else 0
        assert part.link.requests == before + 2 + new_buckets, "how high ids go, and one batch"
        part.put_private(BOB, PrivateRow(number + 1, 0, is_incoming=True))
        part.put_group(TEAM, GroupRow(number + 2, ALICE, 0))
        part.commit({Lane.TIMELINES: 9})
        part.flush()
    rows = {(row.uid1, row.id): row for row in cql(f"SELECT * FROM {keyspace}.pchat")}
    assert set(rows) == {(ALICE, number), (BOB, number), (BOB, number + 1)}
    out, into, told = (rows[each] for each in ((ALICE, number), (BOB, number), (BOB, number + 1)))
    assert (out.pk, out.uid2, out.io, into.pk, into.uid2, into.io) == (7, BOB, 0, 40_000 - 65_536, ALICE, 1)
    for row in (out, into):
        assert (row.usid, row.tm, row.tm1, row.tm2, row.st, row.ct, row.mt) == (42, 1234567, 0, 0, 0, 2, 1)
        assert (row.draf, row.pr, row.ref) == (b"\x00pic", 2**62, 99)
    assert (told.usid, told.tm, told.ct, told.draf) == (usid_of("s-1"), 5, 1, b"hello")
    (row,) = cql(f"SELECT * FROM {keyspace}.gchat")
    assert (row.pk, row.gid, row.uid, row.id, row.ct, row.mt, row.draf, row.res) == (
        3, TEAM, ALICE, number + 2, 0, 0, b"all", 0,
    )  # fmt: skip


@pytest.mark.feature("B06", "B07")
@pytest.mark.parametrize("layout", ["default", "seed", "bucketed"])
def test_receipts_and_recalls_change_rows_in_place(
    cassandra: CassandraServer, cql: Cql, keyspace: str, layout: str
) -> None:
    bodies = {number: MsgChat(msgId=number, tm=1, data=b"secret", sendId="3").SerializeToString() for number in IDS}
    with timelines(cassandra, keyspace, layout, bodies) as part:
        say(part)
        assert part.mark(ALICE, IDS[0], delivered_at=100)
        assert part.mark(ALICE, IDS[0], read_at=200)
        for owner in (ALICE, BOB):
            assert part.recall_private(owner, IDS[1])
        assert part.recall_group(TEAM, IDS[1])
        part.commit({})
        part.flush()
        assert [row.state for row in part.private_forward(BOB, limit=3, peer=ALICE)] == [0, State.RECALLED, 0]
    users = f"SELECT * FROM {keyspace}.pchat"
    rows = {(row.uid1, row.id): row for row in cql(users)}
    marked, other_side = rows[ALICE, IDS[0]], rows[BOB, IDS[0]]
    assert (marked.st, marked.tm1, marked.tm2, marked.draf) == (State.READ, 100, 200, b"secret")
    assert (other_side.st, other_side.tm1, other_side.tm2) == (0, 0, 0)
    in_group = {row.id: row for row in cql(f"SELECT * FROM {keyspace}.gchat")}
    for row in (rows[ALICE, IDS[1]], rows[BOB, IDS[1]], in_group[IDS[1]]):
        assert (row.st, row.draf, row.usid) == (State.RECALLED, b"", 0)
    assert in_group[IDS[2]].draf == b"secret"


def test_what_is_dropped_is_dropped_from_every_table(cassandra: CassandraServer, cql: Cql, keyspace: str) -> None:
    for layout in ("default", "seed", "bucketed"):
        with timelines(cassandra, f"{keyspace}{layout}", layout) as part:
            say(part)
            assert part.drop_private(ALICE, through=2**63 - 1) == IDS
            assert part.drop_group(TEAM, through=IDS[-1]) == IDS
            part.commit({})
            part.flush()
        for table, left in (("pchat", len(IDS)), ("gchat", 0), ("pixiu_topic", len(IDS)), ("pixiu_prev", 0)):
            if table != "pixiu_prev" or layout == "seed":
                assert len(cql(f"SELECT * FROM {keyspace}{layout}.{table}")) == left, (layout, table)
        cql(f"DROP KEYSPACE {keyspace}{layout}")


@pytest.mark.parametrize("layout", ["default", "seed"])
def test_the_largest_messages_fit(cassandra: CassandraServer, cql: Cql, keyspace: str, layout: str) -> None:
    large = {number: MsgChat(msgId=number, tm=1, data=b"x" * 65_536).SerializeToString() for number in IDS}
    with timelines(cassandra, keyspace, layout, large) as part:
        say(part)
        assert len(part.private_forward(ALICE, peer=BOB)) == len(IDS)
        assert [row.previous for row in part.group_forward(TEAM)] == [0, *IDS[:-1]]
    for table in ("pchat", "gchat"):
        assert {len(row.draf) for row in cql(f"SELECT draf FROM {keyspace}.{table}")} == {65_536}


def test_a_keyspace_of_another_layout_is_refused(cassandra: CassandraServer, keyspace: str) -> None:
    with timelines(cassandra, keyspace, "seed"):
        pass
    with pytest.raises(ConfigError, match="not that of layout default"), timelines(cassandra, keyspace, "default"):
        pass


def test_later_writes_win_although_the_clock_was_set_back(cassandra: CassandraServer, cql: Cql, keyspace: str) -> None:
    with timelines(cassandra, keyspace, "default") as part:
        part.link._clock.last += 3_600_000_000  # an hour ahead
        say(part)
        part.commit({Lane.TIMELINES: 1})
        part.flush()
    with timelines(cassandra, keyspace, "default") as part:
        assert part.recall_group(TEAM, IDS[0])
        part.commit({})
        part.flush()
    rows = cql(f"SELECT id, st FROM {keyspace}.gchat WHERE pk=%s AND gid=%s LIMIT 1", pk_of(TEAM), TEAM)
    assert [row.st for row in rows] == [State.RECALLED]


def test_the_doctor_names_the_version_and_what_loses_data(cassandra: CassandraServer, cql: Cql, keyspace: str) -> None:
    address = Address(hosts=(cassandra.host,), port=cassandra.port, keyspace=keyspace)
    found = {each.name: each for each in examine(address)}
    assert found["timelines engine"].text == "Cassandra 5.0.5"
    assert "not there yet" in found["timelines keyspace"].text
    with timelines(cassandra, keyspace, "default") as part:
        part.commit({Lane.TIMELINES: 5})
        part.flush()
    cql(f"ALTER KEYSPACE {keyspace} WITH durable_writes = false")
    named = f"timelines keyspace {keyspace}"
    findings = list(examine(address))
    (copies, durable) = [each for each in findings if each.name == named]
    assert (copies.state, "replication_factor': 3" in copies.advice) == ("warn", True)
    assert (durable.state, "durable_writes = true" in durable.advice) == ("fail", True)
    assert any("event 5" in each.text for each in findings)


def test_the_doctor_says_that_nobody_answers() -> None:
    (finding,) = examine(Address(hosts=("127.0.0.1",), port=1, timeout_ms=500))
    assert (finding.name, finding.state) == ("timelines", "fail")


def test_a_start_without_a_server_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pixiu.backends.cassandra.link.CONNECT_ATTEMPTS", 1)
    with pytest.raises(Unavailable, match=r"cassandra at 127\.0\.0\.1:1"):
        CassandraTimelines(Address(hosts=("127.0.0.1",), port=1, timeout_ms=500), lambda _: {})
