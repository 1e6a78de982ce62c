"""Erasing a user from a real data directory: no byte of what was written is left, and nothing else has changed."""

import asyncio
import os
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from pixiu.im.draft import Actor
from pixiu.model.redaction import is_blank
from pixiu.node.embedded import EmbeddedNode
from pixiu.node.erasure import erase_stopped, places_of_journal, places_of_stores, redact_stopped
from pixiu.node.stores import audit_stopped, open_stores, rebuild_stores
from pixiu.ports.log import LogRecord
from pixiu.queue.storage.redact import INTENT, finish_redaction
from pixiu.queue.storage.verify import Verifier
from pixiu.runtime.datadir import DataDirectory
from pixiu.runtime.files import SystemFiles

MARK = "marked-words"
ROOT = Path(__file__).resolve().parents[2]


async def talk(root: Path) -> None:
    """Alice writes marked words wherever one can write; Bob and Carol write others."""
    async with EmbeddedNode(root) as node:
        for name in ("alice", "bob", "carol"):
            await node.create_user(name)
        await node.act("alice", "create_user", user="alice", name=f"{MARK} name", avatar=f"http://{MARK}", town=MARK)
        alice = Actor(node.messaging.proxy.context.directory.user("alice"), "ios", f"{MARK} device")
        params: dict[str, object] = {"provider": "fcm", "token": f"{MARK} token"}
        node.messaging.act(alice, "register_push", params, lambda answer: None)
        await node.create_group("alice", "tea", members=["bob", "carol"])
        await node.create_group("bob", "old", members=["alice"])
        phone = await node.connect("bob", platform="ios")
        for number in range(30):
            await node.send("alice", to="bob", text=f"{MARK} private {number}", send_id=f"s{number}")
            await node.send("bob", to="alice", text=f"plain answer {number}")
            await node.gsend("alice", group="tea", text=f"{MARK} group {number} 貔貅")
            await node.gsend("carol", group="tea", text=f"plain talk {number}")
        await node.act("alice", "send", to="carol", body="AAECAw==", kind="image", fields={MARK: MARK})
        await node.gsend("alice", group="old", text=f"{MARK} old")
        await node.act("alice", "quit", group="old")
        await node.act("alice", "schedule", to="bob", text=f"{MARK} later", at=node.host.engine.clock.now_ms() + 10**8)
        dropped = await node.act(
            "alice", "schedule", to="bob", text=f"{MARK} never", at=node.host.engine.clock.now_ms() + 10**8
        )
        await node.act("alice", "unschedule", schedule_id=dropped["schedule_id"])
        for _ in range(5):
            await phone.receive(timeout_seconds=5)
        phone.ack()
        await phone.leave()


def found(root: Path, text: str = MARK) -> list[str]:
    """The files that hold a text, in any form that the disk would show."""
    return [
        str(path.relative_to(root)) for path in root.rglob("*") if path.is_file() and text.encode() in path.read_bytes()
    ]


def rows(root: Path) -> dict[bytes, bytes]:
    """Everything in the messaging stores, but for what lives outside of the log."""
    store, stores = open_stores(root)
    try:
        kept = dict(store.dump())
    finally:
        stores.close()
    return {key: value for key, value in kept.items() if not key.startswith(b"\x01")}


def meaning(root: Path) -> dict[str, Any]:
    """What the stores answer: commits of other sizes put the same rows into other blocks."""
    _, stores = open_stores(root)
    try:
        users = stores.users.all()
        groups = [number for name in ("tea", "old") if (number := stores.groups.number_of(name)) is not None]
        private: Any = {user: stores.timelines.private_forward(user, limit=10**6) for user in users}
        group: Any = {number: stores.timelines.group_forward(number, limit=10**6) for number in groups}
        ids = sorted({row.message_id for page in (*private.values(), *group.values()) for row in page})
        return {
            "users": [stores.users.get(user) for user in users],
            "contacts": [stores.contacts.of(user) for user in users],
            "groups": [(stores.groups.get(number), stores.groups.members(number)) for number in groups],
            "private": private,
            "group": group,
            "bodies": {each: (stores.bodies.references(each), stores.bodies.get([each])) for each in ids},
            "unread": [stores.unread.of(user) for user in users],
            "inboxes": [
                (state, stores.inboxes.after(state.user, state.platform, 0, 10**6)) for state in stores.inboxes.states()
            ],
        }
    finally:
        stores.close()


def sound(root: Path) -> bool:
    return Verifier(SystemFiles(root), lambda count: None).run().is_sound


@pytest.fixture(scope="module")
def talked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("erasure") / "data"
    asyncio.run(talk(root))
    assert found(root)
    return root


@pytest.fixture
def root(talked: Path, tmp_path: Path) -> Path:
    shutil.copytree(talked, tmp_path / "data")
    return tmp_path / "data"


@pytest.mark.feature("R20")
def test_no_byte_of_what_an_erased_user_wrote_is_left_and_the_books_balance(root: Path) -> None:
    before = (
        (root / "queue/journal").stat(),
        sum(path.stat().st_size for path in (root / "queue/journal").glob("*.log")),
    )
    erased, report = erase_stopped(root, "alice")
    assert found(root) == []
    assert found(root, "plain answer 7") and found(root, "plain talk 7")
    after = sum(path.stat().st_size for path in (root / "queue/journal").glob("*.log"))
    assert after > before[1]  # the erasure's own records, and nothing else
    assert erased["found"]["private_messages"] == 31 and erased["found"]["group_messages"] == 31
    assert set(erased["remains"].values()) == {0}
    assert report.messages >= 64 and report.topic_messages >= 62 and report.segments == 1
    assert sound(root)
    with DataDirectory.open(root):
        assert audit_stopped(root).balanced
    for place in (*places_of_stores(erased), *places_of_journal(asdict(report))):
        assert place.found == place.removed and not place.remains


def test_a_rebuild_from_the_redacted_log_gives_the_same_stores(root: Path) -> None:
    erase_stopped(root, "alice")
    before = meaning(root)
    with DataDirectory.open(root):
        assert rebuild_stores(root) == 0
    assert meaning(root) == before
    assert found(root) == []
    with DataDirectory.open(root):
        again = redact_stopped(root)
    assert (again.messages, again.topic_messages, again.delays, again.bytes) == (0, 0, 0, 0)


def test_records_that_were_redacted_are_known_as_such(root: Path) -> None:
    erase_stopped(root, "alice")

    async def read() -> tuple[list[LogRecord], list[dict[str, Any]]]:
        async with EmbeddedNode(root) as node:
            history = await node.history("bob", with_="alice", limit=100)
            records = [record for batch in node.host.log.scan(node.host.log.committed, 1000) for record in batch]
            assert (await node.audit())["balanced"]
            return records, history["messages"]

    from pixiu.model.pixiu_pb2 import MsgChat, Record

    records, history = asyncio.run(read())
    assert sum(each.get("recalled", False) for each in history) == 30
    assert sum(each.get("text", "").startswith("plain answer") for each in history) == 30
    blank = [
        record
        for record in records
        if record.topic == "pixiu.main" and is_blank(MsgChat.FromString(Record.FromString(record.payload).chat).data)
    ]
    assert len(blank) == 62


@pytest.mark.crash
@pytest.mark.parametrize("point", ["intent-written", "write", "written", "flushed", "stores"])
def test_a_redaction_that_is_killed_is_finished_by_the_next_start(root: Path, point: str) -> None:
    async def erase() -> None:
        async with EmbeddedNode(root) as node:
            await node.act(None, "erase_user", user="alice")

    asyncio.run(erase())
    died = subprocess.run(
        [sys.executable, "-m", "tests.node.test_erasure", str(root), point], cwd=ROOT, check=False, timeout=60
    )
    assert died.returncode == -9
    assert (root / INTENT).exists() == (point not in ("stores",))
    if point == "write":
        assert not sound(root)  # in the middle of a frame: nobody may be told so
        with DataDirectory.open(root):
            assert audit_stopped(root).balanced
        assert not (root / INTENT).exists()
    finish_redaction(SystemFiles(root))
    assert sound(root)
    with DataDirectory.open(root):
        redact_stopped(root)
        assert audit_stopped(root).balanced
    assert found(root) == []


class _Dying:
    """Files of which one dies in the middle of a write."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, data: bytes, position: int) -> None:
        self._file.write(data[: len(data) // 2], position)
        os.kill(os.getpid(), 9)


def die_at(root: Path, point: str) -> None:
    """Redact, and be killed on the way."""
    if point == "write":
        opened = SystemFiles.open

        def open_dying(files: SystemFiles, path: str, *, create: bool = False) -> Any:
            file = opened(files, path, create=create)
            return _Dying(file) if (root / INTENT).exists() and path.endswith(".log") else file

        SystemFiles.open = open_dying  # type: ignore[method-assign, assignment]

    def reached(name: str) -> None:
        if name == point:
            os.kill(os.getpid(), 9)

    with DataDirectory.open(root):
        redact_stopped(root, reached=reached)


if __name__ == "__main__":
    die_at(Path(sys.argv[1]), sys.argv[2])
