"""Rows of a ledger, as whoever applies or audits one takes them: both must judge a ledger alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pixiu.model.pixiu_pb2 import Ledger, Rows

__all__ = ["check_ledger", "ledger_rows"]


def ledger_rows(rows: Rows) -> Iterator[tuple[int, int, int, int]]:
    """User, place of the platform, first and last useq."""
    return zip(rows.user, rows.platform, rows.first, rows.through, strict=True)


def check_ledger(ledger: Ledger) -> None:
    """Raise before anything is applied, if columns by which entries leave do not fit together."""
    platform_count = len(ledger.platforms)
    for rows in (ledger.expired, ledger.dead, ledger.acked):
        count = len(rows.user)
        if not len(rows.platform) == len(rows.first) == len(rows.through) == count:
            raise ValueError("the columns of a ledger differ in length")
        if count and max(rows.platform) >= platform_count:
            raise ValueError(f"a ledger names platform {max(rows.platform)} of {platform_count}")
