"""The way to the control record of a registry, for a leader of its own log."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from pixiu.backends.memory.registry import MemoryRegistry
from pixiu.machines.replication import Control, ControlSeen
from pixiu.model.errors import ConfigError, CorruptData
from pixiu.node.joined import Joined, check_alone, forget_joined, joined_of, note_joined
from pixiu.node.joining import Joining
from pixiu.ports.registry import Write
from pixiu.queue.replication.control import RegistryControl
from pixiu.queue.replication.joining import Join
from pixiu.runtime.clock import SystemClock
from pixiu.runtime.scheduler import LoopScheduler

if TYPE_CHECKING:
    from pathlib import Path

    from pixiu.queue.engine import Engine

FOLDER = "/pubsub/shard/partition0"
WANTED = Control(5, "a", frozenset({"a"}))


async def joined(there: Control | None, *, wanted: Control | None = WANTED) -> tuple[ControlSeen | None, str]:
    """Join a registry with this record; what became of it."""
    scheduler = LoopScheduler(asyncio.get_running_loop())
    tree = MemoryRegistry(scheduler)
    session = tree.open()
    if there is not None:
        row = {"epoch": there.epoch, "leader": there.leader, "in_sync": sorted(there.in_sync)}
        session.write(Write(f"{FOLDER}/ctl", row, -1), lambda _version: None)
    control = RegistryControl(session, scheduler, folder=FOLDER, name="a", address="a:1")
    outcome: asyncio.Future[tuple[ControlSeen | None, str]] = asyncio.get_running_loop().create_future()
    engine = cast("Engine", SimpleNamespace(clock=SystemClock(), scheduler=scheduler))  # asked for time alone
    join = Join(control, engine, lambda: wanted, lambda seen, reason: outcome.set_result((seen, reason)))
    join.start()
    try:
        async with asyncio.timeout(5):
            return await outcome
    finally:
        join.stop()
        scheduler.close()


async def test_where_there_is_no_record_it_is_made() -> None:
    seen, reason = await joined(None)
    assert seen is not None and not reason
    assert (seen.version, seen.control, seen.is_granted) == (1, WANTED, True)


async def test_an_answer_that_was_lost_is_asked_for_again() -> None:
    seen, _ = await joined(WANTED)
    assert seen is not None and (seen.version, seen.is_granted) == (2, True), "its own record, renewed"


@pytest.mark.parametrize("there", [Control(9, "b", frozenset("b")), Control(6, "a", frozenset("a"))])
async def test_a_log_that_is_there_already_is_left_alone(there: Control) -> None:
    seen, reason = await joined(there)
    assert seen is None and "has a log there already" in reason


async def test_who_leads_no_more_does_not_join() -> None:
    seen, reason = await joined(None, wanted=None)
    assert seen is None and "does not lead" in reason


def test_a_directory_that_has_joined_is_not_led_alone(tmp_path: Path) -> None:
    check_alone(tmp_path)
    note_joined(tmp_path, Joined("zk://h:1/p", is_founding=True))
    assert joined_of(tmp_path) == Joined("zk://h:1/p", is_founding=True)
    with pytest.raises(ConfigError, match="pixiu role shard --registry zk://h:1/p --data"):
        check_alone(tmp_path)
    forget_joined(tmp_path)
    check_alone(tmp_path)
    (tmp_path / "joined").write_text("{}")
    with pytest.raises(CorruptData):
        joined_of(tmp_path)


async def test_who_asks_while_a_node_joins_is_told_where_it_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nobody(_place: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr("pixiu.node.processes.cluster_end.open_session", nobody)
    replication: Any = SimpleNamespace(why_not_join=lambda: "")
    told: list[bytes] = []
    joining = Joining(
        cast("Any", None), replication, root=tmp_path, name="a", address="127.0.0.1:1", bind="127.0.0.1",
        listen=cast("Any", None), joined=print, overtaken=print,
    )  # fmt: skip
    joining.asked("zk://127.0.0.1:1/wrong", "", told.append)
    joining.asked("zk://127.0.0.1:2181/right", "", told.append)
    assert len(told) == 1 and b"zk://127.0.0.1:1/wrong" in told[0]
    await joining.close()
