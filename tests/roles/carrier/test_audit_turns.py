"""An audit beside other work: it does a little, then lets others have their turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.backends.memory.stores import MemoryStores
from pixiu.roles.carrier.audit import AUDIT_TURN, Audit
from pixiu.roles.carrier.cut import take_cut
from tests.roles.carrier.test_replay import logged
from tests.roles.carrier.world import opened, send, user

if TYPE_CHECKING:
    from pixiu.model.pixiu_pb2 import Record

USERS = 2 * AUDIT_TURN + 10


def script() -> list[Record]:
    people = range(1, USERS + 1)
    return [
        *(user(number) for number in people),
        *(opened(number, "web") for number in people),
        *(send(number, number % USERS + 1) for number in people),
    ]


def test_nobody_waits_for_more_than_a_turn() -> None:
    records = [record for record, _ in logged(script())]
    audit = Audit(MemoryStores())
    turns = list(audit.taking(records))
    assert len(turns) >= len(records) // AUDIT_TURN
    cut = take_cut(audit._reference, records[-1].event_id)
    assert len(list(audit.closing(cut))) >= USERS // AUDIT_TURN
    assert audit.report.balanced and audit.report.accepted >= USERS
    assert audit.report.waiting == audit.report.intended > 0
