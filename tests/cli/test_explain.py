"""``pixiu explain``: one message's way on a real node, running and stopped, from the log and from the lake."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import pixiu
from pixiu.cli.explain import waterfall_lines
from pixiu.cli.main import main
from pixiu.config import MessagingSettings, Settings
from pixiu.model.errors import NotFound
from pixiu.model.ids import SEQUENCE_BITS
from pixiu.node import explain_stopped
from pixiu.node.explain import explaining


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["explain", *words])
    said = capsys.readouterr()
    return int(ended.value.code or 0), said.out, said.err


def explained(data: Path, message_id: int) -> dict[str, Any]:
    return dict(explain_stopped(data, message_id))


async def sent(node: Any, text: str, *, to: str = "bob") -> int:
    return int((await node.send("alice", to=to, text=text))["message_id"])


async def talked(data: Path, settings: Settings | None = None) -> dict[str, int]:
    """A phone is there for the first message, acks it, and leaves; the second waits for it; the third for ever."""
    async with pixiu.Node.embedded(data, creates_users=True, settings=settings) as node:
        phone = await node.connect("bob", platform="ios")
        ids = {"live": await sent(node, "hello")}
        assert (await phone.receive(timeout_seconds=10))["message_id"] == str(ids["live"])
        phone.ack()
        await phone.leave()
        ids["away"] = await sent(node, "you are away")
        await asyncio.sleep(0.01)  # so that the session is younger than the message
        phone = await node.connect("bob", platform="ios")
        await phone.receive(timeout_seconds=10)
        phone.ack()
        await phone.leave()
        ids["waiting"] = await sent(node, "and again")
        await node.create_group("alice", "team", members=["bob"])
        ids["group"] = int((await node.gsend("alice", group="team", text="all"))["message_id"])
        assert any(explaining(node.host.log, node.host.stores, ids["live"]))  # while it runs
    return ids


def test_a_messages_way(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data"
    ids = asyncio.run(talked(data))
    live = explained(data, ids["live"])
    assert [hop["hop"] for hop in live["hops"]] == ["write", "flush", "store"]
    assert all(0 <= hop["ms"] < 10_000 for hop in live["hops"])
    (inbox,) = live["inboxes"]
    assert (inbox["user"], inbox["platform"], inbox["gateway"]) == ("bob", "ios", "local")
    assert (inbox["outcome"], inbox["waited"], inbox["is_exact"]) == ("acked", False, True)
    assert live["accepted_at"] <= inbox["handed_at"] <= inbox["acked_at"]
    away = explained(data, ids["away"])["inboxes"]
    assert [(each["outcome"], each["waited"]) for each in away] == [("acked", True)]
    assert explain_stopped(data, ids["waiting"])["inboxes"] == []
    assert explain_stopped(data, ids["group"])["group"] == "team"

    code, out, _ = run(capsys, str(ids["live"]), "--data", str(data), "--json")
    assert code == 0
    assert json.loads(out) == live
    code, out, _ = run(capsys, str(ids["away"]), "--data", str(data))
    assert code == 0
    assert "waited for a session" in out
    assert "│" in out


def test_what_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data"
    ids = asyncio.run(talked(data, Settings(messaging=MessagingSettings(hop_sample=0))))
    of_another_node = 5 << SEQUENCE_BITS  # its neighbours may be messages of the same millisecond
    for number in (1, ids["live"] - of_another_node, ids["live"] + of_another_node, 2**62):
        with pytest.raises(NotFound, match=r"there is no message|is the number of a change"):
            explain_stopped(data, number)
    code, _, err = run(capsys, "77", "--data", str(data))
    assert code == 1
    assert err.startswith("pixiu: there is no message 77")
    for wrong in ("abc", "0", "1.5", "9" * 30):
        code, _, err = run(capsys, wrong, "--data", str(data))
        assert (code, "a message id is a number such as" in err) == (2, True), wrong
    code, _, err = run(capsys, "77", "--data", str(tmp_path / "none"))
    assert code == 1
    assert "there is no log" in err
    without = explained(data, ids["live"])
    assert [hop["hop"] for hop in without["hops"]] == ["write"]
    assert any(line.startswith("flush and stores: not in the log") for line in waterfall_lines(without))
    assert without["inboxes"][0]["outcome"] == "acked"


def test_the_lake_tells_the_same(tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    pytest.importorskip("deltalake")
    from pixiu.pipeline.explain import explain_from_lake
    from pixiu.pipeline.lake.local import fill_lake

    data = tmp_path / "data"
    ids = asyncio.run(talked(data))
    fill_lake(data)
    for number in ids.values():
        found, other = explain_from_lake(data, number), explained(data, number)
        assert found is not None
        for each in (found, other):
            del each["source"], each["read_through"], each["bytes"]
        assert found == other
    assert explain_from_lake(data, 77) is None
