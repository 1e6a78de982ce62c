"""The audit of a cluster adds up those of its shards; it balances only if every shard has a report that balances."""

from typing import Any

import pytest

from pixiu.node.processes.gateway.audit import sum_reports
from pixiu.roles.carrier.audit import AuditReport


def report(shard: int, *, waiting: int = 1, **more: Any) -> dict[str, Any]:
    found = AuditReport(cut=100 + shard, accepted=5, intended=10, acked=9, waiting=waiting, **more)
    return {**found.as_json(), "name": f"shard-{shard}-0"}


def test_audit_balances_if_every_shard_balances() -> None:
    total = sum_reports({1: report(1), 0: report(0)}, 2)
    assert total["balanced"]
    assert (total["accepted"], total["intended"], total["acked"], total["waiting"]) == (10, 20, 18, 2)
    assert total["cut"] == 100 and total["missing"] == []
    assert total["shards"] == [
        {"shard": n, "name": f"shard-{n}-0", "cut": 100 + n, "intended": 10, "waiting": 1, "balanced": True}
        for n in (0, 1)
    ]


def test_audit_of_one_shard_keeps_its_counts() -> None:
    found = report(0)
    total = sum_reports({0: found}, 1)
    assert {name: total[name] for name in total if name in found} == {
        name: found[name] for name in total if name in found
    }
    assert total["balanced"]


@pytest.mark.parametrize(
    "reports",
    [
        {0: report(0)},
        {0: report(0), 1: report(1, waiting=0)},
        {0: report(0, waiting=0), 1: report(1, waiting=2)},
        {0: report(0), 1: report(1, lost=[{"message_id": "1"}], lost_count=1)},
        {},
    ],
)
def test_audit_does_not_balance_if_a_shard_is_missing_or_differs(reports: dict[int, dict[str, Any]]) -> None:
    """Also where one shard has too much and another too little."""
    total = sum_reports(reports, 2)
    assert not total["balanced"]
    assert total["missing"] == [shard for shard in (0, 1) if shard not in reports]


def test_audit_of_no_shard_does_not_balance() -> None:
    assert not sum_reports({}, 0)["balanced"]
