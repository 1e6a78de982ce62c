"""What became of an entry is told by the first row of the ledger that names it, and counted once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.backends.memory.stores import MemoryStores
from pixiu.roles.carrier.appliers import LANES
from pixiu.roles.carrier.audit import Audit, AuditReport
from pixiu.roles.carrier.cut import take_cut
from tests.roles.carrier.world import ANNA, BERT, Applied, from_system, ledger, people, rows

if TYPE_CHECKING:
    from pixiu.model.pixiu_pb2 import Record

MESSAGES = 6


def audited(*records: Record) -> AuditReport:
    """Messages wait for Anna and Bert, then this is said of them."""
    world = people(*(from_system(number) for _ in range(MESSAGES) for number in (ANNA, BERT)))
    for record in records:
        _apply(world, record)
    audit = Audit(MemoryStores())
    for logged in world.log:
        audit.take(logged)
    report = audit.close(take_cut(world.stores, len(world.log)))
    assert report.intended == 2 * MESSAGES
    return report


def _apply(world: Applied, record: Record) -> None:
    """As a carrier does: a record that cannot be applied is passed over."""
    try:
        world.apply(record)
    except ValueError:
        for lane in LANES:
            world.appliers.skip(lane, len(world.log))


def counted(report: AuditReport) -> tuple[int, int, int, int]:
    assert report.balanced
    return report.acked, report.expired, report.dead, report.waiting


def test_expired_and_dead_in_one_ledger_is_expired() -> None:
    """They are taken out in this order."""
    report = audited(ledger(["first"], dead=rows((ANNA, 0, 2, 4)), expired=rows((ANNA, 0, 1, 2))))
    assert counted(report) == (0, 2, 2, 2 * MESSAGES - 4)


def test_dead_twice_in_one_ledger_is_dead_once() -> None:
    report = audited(ledger(["first"], dead=rows((ANNA, 0, 1, 3), (ANNA, 0, 2, 4), (BERT, 0, 1, 1))))
    assert counted(report) == (0, 0, 5, 2 * MESSAGES - 5)


def test_what_has_left_before_is_not_counted_again() -> None:
    report = audited(
        ledger(["first"], acked=rows((ANNA, 0, 1, 2))),
        ledger(["first"], dead=rows((ANNA, 0, 1, 3)), acked=rows((ANNA, 0, 1, 4))),
    )
    assert counted(report) == (3, 0, 1, 2 * MESSAGES - 4)


def test_a_ledger_that_does_not_fit_together_is_passed_over() -> None:
    """Carriers pass over it: an audit does, and goes on."""
    unsound = ledger(["first"], dead=rows((ANNA, 5, 1, 1)), expired=rows((BERT, 0, 1, 1)))
    report = audited(unsound, ledger(["first"], dead=rows((BERT, 0, 2, 2))))
    assert report.undecodable == 1
    assert counted(report) == (0, 0, 1, 2 * MESSAGES - 1)


def test_resends_that_do_not_fit_together_change_nothing_else() -> None:
    """Nobody is moved by them."""
    said = ledger(["first"], dead=rows((ANNA, 0, 1, 1)))
    said.ledger.resent.user.append(ANNA)
    report = audited(said)
    assert (report.undecodable, report.resent) == (0, 0)
    assert counted(report) == (0, 0, 1, 2 * MESSAGES - 1)
