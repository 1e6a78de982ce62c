"""The job ``search``: reads what is new in the archive, without Spark, and gives it to an index."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable

from pixiu.model.ids import NODE_BITS, SEQUENCE_BITS, SNOWFLAKE_EPOCH_MS
from pixiu.pipeline.search.steps import STEP_EVENTS, Erased, Said, Step, Taken, steps_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pixiu.pipeline.lake.table import LakeTable
    from pixiu.pipeline.search.steps import Sink

__all__ = ["SearchFeed", "said_in", "taken_in"]

BATCH_ROWS = 8192
_MESSAGE = ["message_id", "event_id", "sender_id", "recipient_id", "group_id", "notice", "encryption", "text"]
_RECALL = ["about", "event_id", "user_id", "peer_id", "group_id", "what"]
_KEPT_FROM = "pixiu.kept_from"
"""The oldest day that retention has left in ``messages``, in days since 1970."""
_DAY_MS = 86_400_000


class SearchFeed:
    """Brings one index up to the archive."""

    def __init__(
        self,
        lake: Path,
        messages: LakeTable,
        changes: LakeTable,
        sink: Sink,
        *,
        tell: Callable[[int, int, int, float], object] = lambda added, through, end, seconds: None,
        reached: Callable[[str], object] = lambda point: None,
        step_events: int = STEP_EVENTS,
    ) -> None:
        """``tell`` hears of each step: documents added, through which event, the archive's end, seconds."""
        self._erasures = lake / "erasures"
        self._messages = messages
        self._changes = changes
        self._sink = sink
        self._tell = tell
        self._reached = reached
        self._step_events = step_events

    def run(self) -> int:
        """Index what is new. Returns how many documents were added."""
        for table in (self._messages, self._changes):
            table.refresh()
        state = self._sink.state()
        through = min(self._messages.through, self._changes.through)
        version, erased = self._erased()
        is_new = version != state.erasures
        state = state._replace(kept_from=max(state.kept_from, self._kept_from()), erasures=version)
        ends = [file.event_max for file in self._messages.files() if file.event_max is not None]
        ranges = list(steps_of(state.through, through, ends, self._step_events))
        if not ranges:
            if state != self._sink.state():
                self._sink.apply(Step((), (), erased if is_new else (), state))
            return 0
        added = 0
        for after, end in ranges:
            began = time.monotonic()
            is_last = end == ranges[-1][1]
            # What is erased goes with the last step, behind everything that it may concern.
            state = state._replace(through=end, erasures=version if is_last else self._sink.state().erasures)
            said = self._said(after, end, state.kept_from, {each.user: each.through for each in erased})
            step = Step(said, self._taken(after, end), erased if is_last and is_new else (), state)
            self._reached("search-before-step")
            count = self._sink.apply(step)
            self._reached("search-after-step")
            self._tell(count, end, through, time.monotonic() - began)
            added += count
        return added

    def _said(self, after: int, through: int, kept_from: int, erased: dict[int, int]) -> Iterator[Said]:
        for batch in _rows(self._messages, _MESSAGE, after, through):
            for said in said_in(batch):
                if said.message_id >= kept_from and said.event_id > erased.get(said.sender, 0):
                    yield said

    def _taken(self, after: int, through: int) -> list[Taken]:
        recalls = ds.field("what") == "recalled"
        return [each for batch in _rows(self._changes, _RECALL, after, through, recalls) for each in taken_in(batch)]

    def _kept_from(self) -> int:
        days = self._messages.position(_KEPT_FROM)
        return max(0, days * _DAY_MS - SNOWFLAKE_EPOCH_MS) << (NODE_BITS + SEQUENCE_BITS)

    def _erased(self) -> tuple[int, list[Erased]]:
        """The table of erasures: its version, and all users in it, each through the newest. There are few."""
        if not DeltaTable.is_deltatable(str(self._erasures)):
            return -1, []
        table = DeltaTable(str(self._erasures))
        through: dict[int, int] = {}
        if table.file_uris():
            for row in ds.dataset(table.file_uris(), format="parquet").to_table(["user", "event_id"]).to_pylist():
                through[row["user"]] = max(row["event_id"], through.get(row["user"], 0))
        return int(table.version()), [Erased(user, event_id) for user, event_id in sorted(through.items())]


def _rows(table: LakeTable, columns: list[str], after: int, through: int, also: Any = None) -> Iterator[Any]:
    """Batches of the rows within a range of events, from the files that have any; a few at a time in memory."""
    paths = [
        str(table.folder / file.path) for file in table.files() if file.event_max is None or file.event_max > after
    ]
    if not paths:
        return
    wanted = (ds.field("event_id") > after) & (ds.field("event_id") <= through)
    schema = pa.schema([table.schema.field(name) for name in columns])
    yield from ds.dataset(paths, format="parquet", schema=schema).to_batches(
        columns=columns, filter=wanted if also is None else wanted & also, batch_size=BATCH_ROWS, batch_readahead=2,
        fragment_readahead=1, use_threads=False,
    )  # fmt: skip


def said_in(batch: Any) -> Iterator[Said]:
    """The messages of a batch that can be found: plain text, in a conversation. What is encrypted has no text here."""
    has_text = pc.and_kleene(pc.is_valid(batch["text"]), pc.greater(pc.utf8_length(batch["text"]), 0))
    is_plain = pc.equal(batch["encryption"], 0)
    is_push = pc.fill_null(pc.equal(batch["notice"], "push"), fill_value=False)
    rows = batch.filter(pc.and_(pc.and_(pc.fill_null(has_text, fill_value=False), is_plain), pc.invert(is_push)))
    columns = [rows[name].to_pylist() for name in _MESSAGE if name not in ("notice", "encryption")]
    for message_id, event_id, sender, recipient, group, text in zip(*columns, strict=True):
        in_group = group if not recipient else 0
        if in_group or recipient:
            yield Said(message_id, event_id, sender, 0 if in_group else recipient, in_group, text)


def taken_in(batch: Any) -> Iterator[Taken]:
    """The recalls of a batch of changes."""
    for row in batch.to_pylist():
        if row["what"] == "recalled":
            group = row["group_id"] if not row["peer_id"] else 0
            yield Taken(row["about"], row["event_id"], row["user_id"], 0 if group else row["peer_id"], group)
