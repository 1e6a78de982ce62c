"""A long log of private messages and their acks, made by the real writer's own classes without a server around them."""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks.queue.servers import ServerError
from pixiu.model.ids import SNOWFLAKE_EPOCH_MS, Snowflakes
from pixiu.model.inbox import FIRST
from pixiu.model.pixiu_pb2 import Ledger, Record, Rows, UserChanged
from pixiu.model.plain_record import plain_record
from pixiu.queue.batch import Batch, Numbered
from pixiu.queue.storage.journal import Journal
from pixiu.queue.storage.messages import key_digest, numbered
from pixiu.queue.storage.record import Kind
from pixiu.runtime.files import SystemFiles

__all__ = ["make_log"]

VERSION = 4
"""Of the messages below: a log of another one that was kept is made again."""
USERS = 10_000
BEGAN_MS = SNOWFLAKE_EPOCH_MS + 216_864_000_000
SKEW = 0.25
"""The busiest inbox gets a sixth of all messages, the second a tenth, the others the fewer the higher their number."""
PER_COMMIT = 256
MINUTE_MS = 60_000
TEXT_WORDS, PIECE_MAX = 500_000, 260
SEGMENT_BYTES = 256 * 2**20


def make_log(data: Path, count: int, per_minute: int, tell: Callable[[int], object] = lambda made: None) -> None:
    """Write ``count`` messages of about 300 bytes, unless the folder has them already.

    Once in a minute of the log's own clock, and at the end, a ledger says that all of them were handed over and acked.
    """
    note = data / "made.json"
    made_of = {"version": VERSION, "count": count, "per_minute": per_minute}
    if note.exists():
        held = json.loads(note.read_text())
        if held | made_of == held and "events" in held:
            return
        shutil.rmtree(data / "queue", ignore_errors=True)
    elif data.exists() and any(data.iterdir()):
        raise ServerError(f"{data} is not empty, and not a log of this benchmark: name another folder with --log")
    data.mkdir(parents=True, exist_ok=True)
    note.write_text(json.dumps(made_of))
    dice = random.Random(7)
    ids = Snowflakes(1)
    journal = Journal(SystemFiles(data), segment_bytes=SEGMENT_BYTES)
    topic: Any = SimpleNamespace(name=b"pixiu.main", create_event_id=1)
    next_event_id, now_ms, made = 1, BEGAN_MS, 0
    text = _text(dice)
    users = [
        Record(at=BEGAN_MS, user=UserChanged(user=n, public_id=f"u{n}")).SerializeToString() for n in range(1, USERS)
    ]
    inboxes = dict.fromkeys(range(1, USERS), 0)
    acked, noted = dict(inboxes), 0
    step_ms = max(1, MINUTE_MS * PER_COMMIT // per_minute)
    while made < count or users:
        batch = Batch(
            next_event_id=next_event_id, position=journal.begin(next_event_id), epoch=1,
            flushed_through=next_event_id - 1, now_ms=now_ms,
        )  # fmt: skip
        if next_event_id == 1:
            batch.change(Kind.CREATE, b"pixiu.main", bytes(8))
        for _ in range(PER_COMMIT):
            if users:
                body, key = users.pop(), b""
            else:
                sender = dice.randrange(1, USERS)
                to = min(int(dice.paretovariate(SKEW)), USERS - 1)
                body = plain_record(
                    _piece(text, dice), b"%d" % made, now_ms, sender, to, 0, "phone", 7, 1
                )  # fmt: skip
                key = b"%d/%d" % (sender, made)
                made += 1
                for user in {sender, to}:
                    inboxes[user] += 1
            message_id = ids.next(now_ms)
            digest = key_digest(key) if key else b""
            batch.append(topic, Numbered([numbered(0, body, message_id, key)], [message_id], [key], [digest], [body]))
        if made - noted >= per_minute or (made >= count and not users):
            ledger, noted = _ledger(inboxes, acked, now_ms), made
            batch.append(topic, Numbered([numbered(0, ledger, 0, b"")], [0], [b""], [b""], [ledger]))
        batch.close_run()
        journal.append(batch.frames(), batch.entries(), batch.last_event_id)
        next_event_id = batch.last_event_id + 1
        now_ms += step_ms
        tell(made)
    journal.close()
    note.write_text(json.dumps({**made_of, "events": next_event_id - 1}))


def _text(dice: random.Random) -> bytes:
    """Words, not twice in the same order: what people write is not made smaller much by a compression."""
    letters = "etaoinshrdlcumwfgypbvk"
    words = ["".join(dice.choices(letters, k=dice.randrange(2, 10))) for _ in range(4_000)]
    return " ".join(dice.choices(words, k=TEXT_WORDS)).encode()


def _piece(text: bytes, dice: random.Random) -> bytes:
    start = int(dice.random() * (len(text) - PIECE_MAX))
    return text[start : start + 100 + int(dice.random() * (PIECE_MAX - 100))]


def _ledger(inboxes: dict[int, int], acked: dict[int, int], now_ms: int) -> bytes:
    """What came since the last one was handed over, and is acked."""
    rows = Rows()
    for user, latest in inboxes.items():
        if latest > acked[user]:
            rows.user.append(user)
            rows.platform.append(0)
            rows.first.append(acked[user] + 1)
            rows.through.append(latest)
            acked[user] = latest
    return Record(at=now_ms, ledger=Ledger(platforms=[FIRST], handed=rows, acked=rows)).SerializeToString()
