"""The books of a cluster are those of its partitions, added up; one that is missing or wrong spoils them."""

from typing import Any

import pytest

from pixiu.node.processes.gateway.audit import sum_reports
from pixiu.roles.carrier.audit import AuditReport


def report(partition: int, *, count: int = 2, waiting: int = 1, **more: Any) -> dict[str, Any]:
    books = AuditReport(cut=100 + partition, accepted=5, intended=10, acked=9, waiting=waiting, **more)
    return {**books.as_json(), "partition": partition, "partitions": count, "name": f"carrier-{partition}-0"}


def test_what_balances_everywhere_balances() -> None:
    total = sum_reports([report(1), report(0)], 2)
    assert total["balanced"]
    assert (total["accepted"], total["intended"], total["acked"], total["waiting"]) == (10, 20, 18, 2)
    assert total["cut"] == 100 and total["missing"] == []
    assert [row["name"] for row in total["partitions"]] == ["carrier-0-0", "carrier-1-0"]


@pytest.mark.parametrize(
    "reports",
    [
        [report(0)],
        [report(0), report(0)],
        [report(0), report(1, waiting=0)],
        [report(0, waiting=0), report(1, waiting=2)],
        [report(0), report(1, count=4)],
        [report(0), report(1, lost=[{"message_id": "1"}], lost_count=1)],
        [],
    ],
)
def test_whatever_is_missing_or_wrong_in_one_of_them_is_seen(reports: list[dict[str, Any]]) -> None:
    """Also where what one has too much would make up for what another has too little."""
    assert not sum_reports(reports, 2)["balanced"]
