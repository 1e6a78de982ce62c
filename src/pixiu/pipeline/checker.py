"""The audit once more, by other means: SQL in DuckDB, written from the rules and not from the Spark job.

It asks for each entry directly which row of the ledger took it out, where the job sorts and scans. It is slower and
simpler: a second opinion, not a second product.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pixiu.pipeline.query import open_duckdb
from pixiu.roles.carrier.reached import Limits

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["check_audit"]

_INBOXES = """
CREATE TEMP TABLE inboxes AS
WITH opened AS (
    SELECT user_id, 'first' AS platform, event_id FROM lake_changes WHERE what = 'user'
    UNION ALL SELECT user_id, platform, event_id FROM lake_changes WHERE what = 'inbox'
    UNION ALL SELECT user_id, unnest(platforms), event_id FROM lake_changes WHERE what = 'push'
), named AS (
    SELECT user_id, platform, min(event_id) AS named_event FROM opened WHERE platform <> 'first' GROUP BY ALL
), ranked AS (
    SELECT *, row_number() OVER (PARTITION BY user_id ORDER BY named_event, platform) AS rank FROM named
), begun AS (SELECT user_id, min(event_id) AS first_event FROM opened GROUP BY user_id)
SELECT b.user_id, coalesce(r.platform, 'first') AS platform,
       CASE WHEN coalesce(r.rank, 1) = 1 THEN b.first_event ELSE r.named_event END AS opened_event,
       coalesce(r.named_event, b.first_event) AS named_event
FROM begun b LEFT JOIN ranked r ON r.user_id = b.user_id
"""

_ENTRIES = """
CREATE TEMP TABLE entries AS
WITH said AS (
    SELECT message_id, event_id, accepted_at, sender_id, recipient_id, group_id, notice FROM lake_messages
    WHERE event_id <= $cut
), open_groups AS (
    SELECT s.* FROM said s LEFT JOIN chat_groups g ON g.group_id = s.group_id
    WHERE s.recipient_id = 0 AND s.group_id > 0
      AND (s.notice IS NULL OR s.notice IN ('recalled', 'group_info', 'member'))
      AND NOT coalesce(g.large_since_event <= s.event_id, false)
), people AS (
    SELECT event_id, recipient_id AS user_id FROM said
    WHERE recipient_id > 0 AND (notice IS NULL OR notice NOT IN ('push', 'user', 'inbox', 'receipt', 'read', 'limits'))
    UNION SELECT event_id, sender_id FROM said
    WHERE recipient_id > 0 AND sender_id > 0
      AND (notice IS NULL OR notice NOT IN ('push', 'user', 'inbox', 'receipt', 'read', 'limits'))
    UNION SELECT s.event_id, m.user_id FROM open_groups s JOIN members m ON m.group_id = s.group_id
        AND m.joined_event <= s.event_id AND (m.left_event IS NULL OR s.event_id < m.left_event)
    UNION SELECT s.event_id, c.user_id FROM open_groups s JOIN lake_changes c
        ON c.event_id = s.event_id AND c.what = 'quit'
), meant AS (
    SELECT p.event_id, i.user_id, i.platform FROM people p JOIN inboxes i
        ON i.user_id = p.user_id AND i.opened_event <= p.event_id
    UNION ALL
    SELECT c.event_id, i.user_id, i.platform FROM lake_changes c JOIN inboxes i
        ON i.user_id = c.user_id AND i.opened_event <= c.event_id
    WHERE c.what = 'push' AND CASE
        WHEN len(c.platforms) > 0
        THEN list_contains(c.platforms, CASE WHEN c.event_id < i.named_event THEN 'first' ELSE i.platform END)
        ELSE NOT list_contains(
            c.without_platforms, CASE WHEN c.event_id < i.named_event THEN 'first' ELSE i.platform END)
        END
)
SELECT m.user_id, m.platform, s.message_id, s.event_id, s.accepted_at,
       row_number() OVER (PARTITION BY m.user_id, m.platform ORDER BY s.event_id) AS useq
FROM meant m JOIN said s ON s.event_id = m.event_id
"""

_GONE = """
CREATE TEMP TABLE gone AS
WITH ledger AS (
    SELECT i.user_id, i.platform, d.event_id, d.part, d.what, d.first_useq, d.through_useq
    FROM lake_deliveries d JOIN inboxes i ON i.user_id = d.user_id
        AND d.platform = CASE WHEN d.event_id < i.named_event THEN 'first' ELSE i.platform END
    WHERE d.what IN ('acked', 'expired', 'dead') AND d.event_id <= $cut
)
SELECT e.user_id, e.platform, e.useq, e.message_id, e.event_id, e.accepted_at,
       min(l.event_id) AS gone_event, arg_min(l.what, l.event_id * 1000000 + l.part) AS how
FROM entries e LEFT JOIN ledger l ON l.user_id = e.user_id AND l.platform = e.platform AND l.event_id > e.event_id
    AND e.useq <= l.through_useq AND (l.what = 'acked' OR e.useq >= l.first_useq)
GROUP BY ALL
"""

_EVICTED = """
CREATE TEMP TABLE evicted AS
WITH limits AS (
    SELECT event_id, platform, number FROM lake_changes WHERE what = 'limit'
    UNION ALL SELECT 0, '', $default_limit
), steps AS (
    SELECT user_id, platform, event_id, 1 AS step FROM gone
    UNION ALL SELECT user_id, platform, gone_event, -1 FROM gone WHERE gone_event IS NOT NULL
), waits AS (
    SELECT user_id, platform, sum(step) OVER (
        PARTITION BY user_id, platform ORDER BY event_id, step ROWS UNBOUNDED PRECEDING) AS waiting
    FROM steps
), crowded AS (
    SELECT user_id, platform FROM waits GROUP BY ALL
    HAVING max(waiting) > (SELECT coalesce(min(number) FILTER (number >= 0), 1 << 62) FROM limits)
), adds AS (
    SELECT g.*, (
        SELECT arg_max(coalesce(own.number, general.number), general.event_id) FROM limits general
        LEFT JOIN limits own ON own.event_id = general.event_id
            AND own.platform = CASE WHEN g.event_id < i.named_event THEN 'first' ELSE g.platform END
        WHERE general.platform = '' AND general.event_id <= g.event_id
    ) AS room
    FROM gone g JOIN crowded USING (user_id, platform) JOIN inboxes i USING (user_id, platform)
), held AS (
    SELECT k.user_id, k.platform, k.useq, n.event_id, n.room, count(*) AS waiting
    FROM adds k
    JOIN adds n ON n.user_id = k.user_id AND n.platform = k.platform AND n.useq >= k.useq
    JOIN adds j ON j.user_id = k.user_id AND j.platform = k.platform AND j.useq BETWEEN k.useq AND n.useq
        AND (j.gone_event IS NULL OR j.gone_event > n.event_id)
    GROUP BY ALL
)
SELECT user_id, platform, useq, min(event_id) AS event_id FROM held WHERE room >= 0 AND waiting > room GROUP BY ALL
"""

_COUNTS = """
WITH ended AS (
    SELECT g.user_id, g.platform, g.useq, g.message_id,
           CASE WHEN e.event_id IS NOT NULL AND (g.gone_event IS NULL OR e.event_id < g.gone_event) THEN 'expired'
                ELSE g.how END AS how
    FROM gone g LEFT JOIN evicted e USING (user_id, platform, useq)
    WHERE g.accepted_at >= to_timestamp($since / 1000) AND g.accepted_at < to_timestamp($until / 1000)
)
SELECT count(*), count(*) FILTER (how = 'acked'), count(*) FILTER (how = 'expired'), count(*) FILTER (how = 'dead'),
       count(*) FILTER (how IS NULL)
FROM ended
"""


def check_audit(data: Path, cut: int, *, at_least: int = 0, before: int | None = None) -> dict[str, Any]:
    """Intended, acked, expired, dead and what should wait, at a cut, of messages accepted within a time."""
    until = 2**47 if before is None else before
    with open_duckdb(data) as connection:
        connection.execute(_INBOXES)
        connection.execute(_ENTRIES, {"cut": cut})
        connection.execute(_GONE, {"cut": cut})
        connection.execute(_EVICTED, {"default_limit": Limits().offline_max})
        counts = connection.execute(_COUNTS, {"since": at_least, "until": until}).fetchall()[0]
        accepted = connection.execute(
            "SELECT count(*) FROM lake_messages WHERE event_id <= $cut AND accepted_at >= to_timestamp($since / 1000) "
            "AND accepted_at < to_timestamp($until / 1000)",
            {"cut": cut, "since": at_least, "until": until},
        ).fetchall()[0][0]
    names = ("intended", "acked", "expired", "dead", "expected_waiting")
    return {"accepted": accepted, **dict(zip(names, counts, strict=True))}
