"""One message's way, found in the log of a node, running or not."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from pixiu.model.errors import NotFound, PixiuError
from pixiu.node.stores import stopped_messaging
from pixiu.ports.log import MAIN
from pixiu.roles.carrier.appliers import parse
from pixiu.roles.carrier.explain import RECORDS_MAX, waterfall_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pixiu.im.draft import Answer
    from pixiu.node.logs import NodeLog
    from pixiu.ports.stores import Stores

__all__ = ["explain_stopped", "explaining"]

BATCH = 2_000
"""Records looked at before others get their turn."""


def explaining(
    log: NodeLog, stores: Stores, message_id: int, *, records_max: int = RECORDS_MAX
) -> Iterator[Answer | None]:
    """Look for a message and what was noted behind it; yields None between batches, and the answer at the end.

    Raises ``NotFound`` for what is no message of this log.
    """
    record = log.find(message_id)
    if record is None or record.topic != MAIN:
        raise NotFound(f"there is no message {message_id} in the log")
    try:
        parsed = parse(record)
    except (DecodeError, ValueError) as error:
        raise NotFound(f"message {message_id} cannot be read: {error}") from error
    if not parsed.chat:
        raise NotFound(f"{message_id} is the number of a change that says nothing, and not of a message")
    waterfall = waterfall_of(record, parsed, stores)
    left = records_max
    for records in log.scan_after(record.event_id, log.committed, BATCH):
        for each in records:
            waterfall.take(each)
        left -= len(records)
        if waterfall.is_settled:
            break
        if left <= 0:
            waterfall.is_whole = False
            break
        yield None

    def user_name(number: int) -> str:
        with suppress(PixiuError):
            profile = stores.users.get(number)
            return profile.public_id if profile is not None else str(number)
        return str(number)

    def group_name(number: int) -> str:
        with suppress(PixiuError):
            group = stores.groups.get(number)
            return group.public_id if group is not None else str(number)
        return str(number)

    yield waterfall.as_json(user_name, group_name)


def explain_stopped(root: Path, message_id: int) -> Answer:
    """The same for a data directory that nobody serves."""
    with stopped_messaging(root) as (log, stores):
        for answer in explaining(log, stores, message_id):
            if answer is not None:
                return answer
    raise AssertionError("an explanation ends with an answer")
