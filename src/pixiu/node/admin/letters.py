"""Records as an admin sees them: what and for whom, never what was said."""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from pixiu.model.message import message_view
from pixiu.model.pixiu_pb2 import Record, Task
from pixiu.ports.log import MAIN, SCHEDULE
from pixiu.roles.carrier.dead_letters import DeadLetter

if TYPE_CHECKING:
    from pixiu.im.draft import Answer
    from pixiu.model.message import PublicNames
    from pixiu.ports.log import LogRecord

__all__ = ["letter_view", "record_view", "scheduled_view"]

_METADATA = ("from", "to", "group", "kind")


def letter_view(letter: DeadLetter, names: PublicNames) -> Answer:
    """A dead letter: what and why."""
    task = letter.task
    what = task.WhichOneof("what") or "unknown"
    view: Answer = {"id": str(letter.event_id), "at": letter.at, "what": what, "reason": task.reason}
    view["attempt"] = task.attempt
    if what == "notify":
        view["user"] = names.user_name(task.notify.user)
        view["message_id"] = str(task.notify.message_id)
        view["platforms"] = list(task.notify.platforms)
    elif what in ("kick", "flush"):
        view["user"] = names.user_name(task.kick.user if what == "kick" else task.flush.user)
    elif what == "refused":
        view["code"] = task.refused.code
        view["user"] = names.user_name(Record.FromString(task.refused.record).actor)
    return view


def scheduled_view(record: bytes, names: PublicNames) -> Answer:
    """Of a send that waits for its time: between whom, and of which kind."""
    view = message_view(Record.FromString(record).chat, names)
    return {name: view[name] for name in _METADATA if name in view}


def record_view(record: LogRecord, names: PublicNames) -> Answer:
    """Of a record of one of Pixiu's own topics."""
    try:
        if record.topic == MAIN:
            return _main_view(Record.FromString(record.payload), names)
        if record.topic == SCHEDULE:
            return {"what": "scheduled", **scheduled_view(record.payload, names)}
        view = letter_view(DeadLetter(record.event_id, record.at, Task.FromString(record.payload)), names)
        return {name: view[name] for name in ("what", "reason", "user", "message_id", "code") if view.get(name)}
    except (DecodeError, ValueError):
        return {"what": "undecodable"}


def _main_view(record: Record, names: PublicNames) -> Answer:
    view: Answer = {"what": record.WhichOneof("what") or "message"}
    if record.actor:
        view["from"] = names.user_name(record.actor)
    if record.to:
        view["to"] = names.user_name(record.to)
    if record.group:
        view["group"] = names.group_name(record.group)
    return view
