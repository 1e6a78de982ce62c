"""Records as rows, against protobuf and against what the node itself says."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa

from pixiu.model.pixiu_pb2 import IMAGE, Ledger, MsgChat, PushTokenChanged, Record, Rows
from pixiu.pipeline.records.schema import SCHEMAS
from pixiu.pipeline.records.unfold import Records, unfold
from pixiu.pipeline.source.decode import Wanted, decode
from pixiu.pipeline.source.journal import JournalFolder
from pixiu.pipeline.source.schema import FULL
from tests.pipeline.logs import small_segments, talk, with_node


def rows_of(data: Path, table: str) -> list[dict[str, Any]]:
    folder = JournalFolder(data)
    wanted = Wanted.rows_of(table)
    batches = [batch for part in folder.plan(0, folder.end().event_id) for batch in decode(part, wanted)]
    rows: list[dict[str, Any]] = pa.Table.from_batches(batches, schema=SCHEMAS[table]).to_pylist()
    return rows


def batch_of(*payloads: tuple[int, bytes]) -> Any:
    """Source rows with these message ids and payloads."""
    count = len(payloads)
    columns = [
        list(range(1, count + 1)), [number for number, _ in payloads], ["pixiu.main"] * count, [129] * count,
        [0] * count, [0] * count, [len(payload) for _, payload in payloads], [b""] * count,
        [payload for _, payload in payloads],
    ]  # fmt: skip
    return pa.RecordBatch.from_arrays(
        [pa.array(values, field.type) for values, field in zip(columns, FULL, strict=True)], schema=FULL
    )


def test_messages_say_what_history_says(data: Path) -> None:
    async def work(node: Any) -> list[dict[str, Any]]:
        await talk(node)
        shown = (await node.history("bob", with_="alice", limit=100))["messages"]
        shown += (await node.history("bob", group="team", limit=100))["messages"]
        assert isinstance(shown, list)
        return shown

    shown = with_node(data, work, settings=small_segments())
    rows = {row["message_id"]: row for row in rows_of(data, "messages")}
    for message in shown:
        row = rows[int(message["message_id"])]
        if not message.get("recalled"):
            assert int(row["accepted_at"].timestamp() * 1000 + 0.5) == message["at"]
            assert row["send_id"] == message.get("send_id")
            assert row["kind"] == message["kind"]
            assert (row["text"] or None) == (message.get("text") or None)
    assert sum(row["notice"] == "push" for row in rows.values()) == 2


def test_every_record_is_accounted_for(data: Path) -> None:
    with_node(data, talk)
    folder = JournalFolder(data)
    messages, changes, deliveries, traces = (
        rows_of(data, name) for name in ("messages", "changes", "deliveries", "traces")
    )
    for part in folder.plan(0, folder.end().event_id):
        for batch in decode(part, Wanted(topics=frozenset({"pixiu.main"}))):
            for event_id, message_id, payload in zip(
                *(batch.column(name).to_pylist() for name in ("event_id", "message_id", "payload")), strict=True
            ):
                record = Record.FromString(payload)
                what = record.WhichOneof("what")
                said = [row for row in messages if row["event_id"] == event_id]
                assert [row["message_id"] for row in said] == ([message_id] if record.chat else [])
                ledger = sum(len(rows.user) for _, rows in record.ledger.ListFields() if hasattr(rows, "user"))
                assert sum(row["event_id"] == event_id for row in deliveries) == ledger
                assert any(row["event_id"] == event_id for row in changes) == (what not in (None, "ledger", "traces"))
                assert any(row["event_id"] == event_id for row in traces) == (what == "traces")
    assert {row["what"] for row in changes} >= {
        "user", "group", "founder", "inbox", "recalled", "seen", "delivered", "quit", "push",
    }  # fmt: skip


def test_what_nobody_can_read_is_a_row() -> None:
    good = Record(at=5, actor=1, to=2, chat=MsgChat(data=b"hi").SerializeToString()).SerializeToString()
    batch = batch_of((7, good), (8, b"\xff\xff"), (0, good), (9, good[:-1]))
    assert unfold(Records.of_rows(batch), "messages").column("message_id").to_pylist() == [7]
    rows = unfold(Records.of_rows(batch), "changes").to_pylist()
    assert [(row["event_id"], row["what"]) for row in rows] == [
        (2, "undecodable"),
        (3, "undecodable"),
        (4, "undecodable"),
    ]


def test_a_push_token_is_told_of_and_not_kept() -> None:
    change = PushTokenChanged(user=7, platform="ios", device="d", provider="apns", token="secret", is_registered=True)
    batch = batch_of(
        (0, Record(at=1, actor=7, push_token=change).SerializeToString()),
        (0, Record(at=2, push_token=PushTokenChanged(user=7, platform="ios", token="secret")).SerializeToString()),
    )
    rows = unfold(Records.of_rows(batch), "changes").to_pylist()
    assert [(row["what"], row["user_id"], row["platform"]) for row in rows] == [
        ("register_push", 7, "ios"),
        ("unregister_push", 7, "ios"),
    ]
    assert "secret" not in str(rows) + str(unfold(Records.of_rows(batch), "messages").to_pylist())


def test_a_chat_that_nobody_can_read_is_kept_as_it_is() -> None:
    record = Record(at=5, actor=1, to=2, chat=b"\xff\xff").SerializeToString()
    fine = Record(
        at=5, actor=1, to=2, chat=MsgChat(data=b"\xff", msgType=IMAGE).SerializeToString()
    ).SerializeToString()
    text = Record(at=5, actor=1, to=2, chat=MsgChat(data=b"caf\xff").SerializeToString()).SerializeToString()
    rows = unfold(Records.of_rows(batch_of((1, fine), (2, record), (3, text))), "messages").to_pylist()
    assert [(row["kind"], row["text"], row["body"]) for row in rows] == [
        ("image", None, b"\xff"),
        ("unreadable", None, b"\xff\xff"),
        ("text", "caf\ufffd", None),
    ]


def test_ledgers_become_rows_in_the_order_in_which_they_are_applied() -> None:
    handed = Rows(
        user=[4, 5], platform=[1, 0], first=[1, 2], through=[1, 3], message=[90, -10], gateway=[1, 0],
        waited=[True, False],
    )  # fmt: skip
    unstamped = Rows(user=[4], platform=[0], first=[9], through=[9])
    one = Ledger(platforms=["ios", "web"], gateways=["a", "b"], handed=handed, acked=unstamped, dead=unstamped)
    wrong = Rows(user=[1], platform=[1], first=[1], through=[1])
    other = Ledger(platforms=["web"], expired=wrong, resent=unstamped)
    batch = batch_of(*((0, Record(at=at, ledger=ledger).SerializeToString()) for at, ledger in ((5, one), (6, other))))
    found = unfold(Records.of_rows(batch), "deliveries").to_pylist()
    names = ("event_id", "part", "what", "user_id", "platform", "first_useq", "through_useq", "message_id")
    assert [tuple(row[name] for name in (*names, "gateway", "waited")) for row in found] == [
        (1, 0, "dead", 4, "ios", 9, 9, 0, None, None),
        (1, 1, "handed", 4, "web", 1, 1, 90, "b", True),
        (1, 2, "handed", 5, "ios", 2, 3, 80, "a", False),
        (1, 3, "acked", 4, "ios", 9, 9, 0, None, None),
        (2, 0, "resent", 4, "web", 9, 9, 0, None, None),
    ]
    assert [row["noted_at"].timestamp() for row in found] == [0.005] * 4 + [0.006]


def test_an_empty_batch_is_an_empty_batch() -> None:
    for table, schema in SCHEMAS.items():
        empty = unfold(Records.of_rows(batch_of()), table)
        assert empty.num_rows == 0
        assert empty.schema == schema
