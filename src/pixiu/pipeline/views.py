"""The views that ``pixiu sql`` shows, in SQL that DuckDB and Spark both understand.

``lake_<table>`` are the tables as they are stored. The views give people's names, fold recalls and receipts that came
behind their messages, and turn changes into states. docs/pipeline.md documents their columns.
"""

from pixiu.pipeline.lake.schema import BUCKETS

__all__ = ["SHARE_WANTED", "VIEWS"]

SHARE_WANTED = 0.99
"""A link on which fewer are in time than this fails."""


def quantiles_of(keys: str) -> str:
    """Two parts of a WITH: percentiles of latency by these columns, as upper ends of buckets, in milliseconds."""
    percentiles = ", ".join(
        f"(pow(2.0, (min(CASE WHEN below >= {share} * total THEN bucket END) + 1) / 8.0) - 1) / 1000.0 AS p{name}_ms"
        for name, share in (("50", 0.5), ("95", 0.95), ("99", 0.99))
    )
    return f"""ranked AS (
    SELECT {keys}, bucket, sum(sum(messages)) OVER (PARTITION BY {keys} ORDER BY bucket) AS below,
           sum(sum(messages)) OVER (PARTITION BY {keys}) AS total
    FROM lake_latency_buckets GROUP BY {keys}, bucket
), quantiles AS (
    SELECT {keys}, {percentiles} FROM ranked GROUP BY {keys}
)"""


_USERS = """
SELECT user_id,
       min_by(public_id, event_id) AS public_id,
       max_by(name, event_id) AS name,
       min(accepted_at) AS created_at
FROM lake_changes WHERE what = 'user' GROUP BY user_id
"""

_ROOMS = """
SELECT group_id,
       min_by(public_id, event_id) AS public_id,
       max_by(name, event_id) AS name,
       min_by(user_id, event_id) AS founder_id,
       min(event_id) AS created_event,
       min(accepted_at) AS created_at,
       min(CASE WHEN number = 1 THEN event_id END) AS large_since_event
FROM lake_changes WHERE what = 'group' GROUP BY group_id
"""

_MEMBERS = """
WITH steps AS (
    SELECT c.group_id, c.user_id, c.event_id, c.accepted_at, c.what <> 'quit' AS is_in
    FROM lake_changes c JOIN chat_groups g ON g.group_id = c.group_id
    WHERE c.what IN ('join', 'quit') OR (c.what = 'founder' AND c.event_id = g.created_event)
), turns AS (
    SELECT *, lag(is_in) OVER (PARTITION BY group_id, user_id ORDER BY event_id) AS was_in FROM steps
), changes_of_state AS (
    SELECT * FROM turns WHERE is_in <> coalesce(was_in, false)
), stays AS (
    SELECT group_id, user_id, is_in, event_id AS joined_event, accepted_at AS joined_at,
           lead(event_id) OVER (PARTITION BY group_id, user_id ORDER BY event_id) AS left_event,
           lead(accepted_at) OVER (PARTITION BY group_id, user_id ORDER BY event_id) AS left_at
    FROM changes_of_state
)
SELECT s.group_id, g.public_id AS group_name, s.user_id, u.public_id AS user_name,
       s.joined_event, s.joined_at, s.left_event, s.left_at
FROM stays s LEFT JOIN chat_groups g ON g.group_id = s.group_id LEFT JOIN users u ON u.user_id = s.user_id
WHERE s.is_in
"""

_MARKS = """
SELECT about AS message_id, user_id AS sender_id,
       min(CASE WHEN what = 'recalled' THEN accepted_at END) AS recalled_at,
       min_by(CASE WHEN what = 'recalled' THEN actor_id END,
              CASE WHEN what = 'recalled' THEN event_id END) AS recalled_by,
       min(CASE WHEN what = 'delivered' THEN accepted_at END) AS delivered_at,
       min(CASE WHEN what = 'seen' THEN accepted_at END) AS read_at
FROM lake_changes WHERE what IN ('recalled', 'delivered', 'seen') GROUP BY about, user_id
"""

_MESSAGES = """
SELECT m.message_id, m.event_id, m.accepted_at, m.written_at, m.day, m.conversation, m.kind, m.notice,
       m.sender_id, s.public_id AS sender, m.recipient_id, r.public_id AS recipient,
       m.group_id, g.public_id AS group_name,
       CASE WHEN m.recalled_at IS NULL AND k.recalled_at IS NULL THEN m.text END AS text,
       CASE WHEN m.recalled_at IS NULL AND k.recalled_at IS NULL THEN m.body END AS body,
       m.send_id, m.device, m.ref, m.priority, m.encryption, m.options, m.session, m.bytes,
       coalesce(m.recalled_at, k.recalled_at) AS recalled_at,
       coalesce(m.recalled_by, k.recalled_by) AS recalled_by,
       coalesce(m.delivered_at, k.delivered_at) AS delivered_at,
       coalesce(m.read_at, k.read_at) AS read_at
FROM lake_messages m
LEFT JOIN marks k ON k.message_id = m.message_id AND k.sender_id = m.sender_id
LEFT JOIN users s ON s.user_id = m.sender_id
LEFT JOIN users r ON r.user_id = m.recipient_id
LEFT JOIN chat_groups g ON g.group_id = m.group_id
"""

_RECEIPTS = """
SELECT message_id, conversation, sender_id, sender, recipient_id, recipient, delivered_at, read_at
FROM messages WHERE delivered_at IS NOT NULL OR read_at IS NOT NULL
"""

_DELIVERIES = """
SELECT d.event_id, d.part, d.noted_at, d.day, d.what, d.user_id, u.public_id AS user_name, d.platform,
       d.first_useq, d.through_useq, d.message_id, d.gateway, d.waited
FROM lake_deliveries d LEFT JOIN users u ON u.user_id = d.user_id
"""

_GAPS = """
SELECT event_id, noted_at, user_id, user_name, platform, first_useq, through_useq, what AS reason
FROM deliveries WHERE what IN ('expired', 'dead')
"""

_LATENCY = f"""
WITH sums AS (
    SELECT minute, day, hop, link,
           sum(messages) AS messages, sum(in_time) AS in_time, sum(in_time) / sum(messages) AS share_in_time,
           sum(sum_us) / sum(messages) / 1000.0 AS mean_ms, max(max_us) / 1000.0 AS max_ms
    FROM lake_latency GROUP BY minute, day, hop, link
), {quantiles_of("minute, day, hop, link")}
SELECT s.minute, s.day, s.hop, s.link, s.messages, s.in_time, s.share_in_time, s.mean_ms, s.max_ms,
       least(q.p50_ms, s.max_ms) AS p50_ms, least(q.p95_ms, s.max_ms) AS p95_ms, least(q.p99_ms, s.max_ms) AS p99_ms
FROM sums s LEFT JOIN quantiles q ON q.minute = s.minute AND q.day = s.day AND q.hop = s.hop AND q.link = s.link
"""

_LINKS = f"""
WITH sums AS (
    SELECT day, hop, link, sum(messages) AS messages, sum(in_time) AS in_time,
           sum(in_time) / sum(messages) AS share_in_time, max(max_us) / 1000.0 AS max_ms
    FROM lake_latency GROUP BY day, hop, link
), {quantiles_of("day, hop, link")}
SELECT s.day, s.hop, s.link, s.messages, s.in_time, s.share_in_time,
       least(q.p50_ms, s.max_ms) AS p50_ms, least(q.p95_ms, s.max_ms) AS p95_ms, least(q.p99_ms, s.max_ms) AS p99_ms,
       s.max_ms, s.share_in_time < {SHARE_WANTED} AS is_failing
FROM sums s LEFT JOIN quantiles q ON q.day = s.day AND q.hop = s.hop AND q.link = s.link
"""

_HEAT = """
SELECT minute, day, bucket, conversation, sum(messages) AS messages, sum(bytes) AS bytes,
       sum(deliveries) AS deliveries, max(members) AS members
FROM lake_heat GROUP BY minute, day, bucket, conversation
"""

_HOT_ROOMS = """
SELECT day, conversation, sum(messages) AS messages, sum(bytes) AS bytes, max(messages) AS peak_per_minute,
       sum(messages) / sum(sum(messages)) OVER (PARTITION BY day) AS share,
       sum(deliveries) AS deliveries, max(deliveries) AS peak_deliveries_per_minute, max(members) AS members
FROM heat GROUP BY day, conversation
"""

_HOT_PARTITIONS = f"""
SELECT day, bucket, sum(messages) AS messages, sum(bytes) AS bytes, sum(deliveries) AS deliveries,
       sum(messages) / sum(sum(messages)) OVER (PARTITION BY day) AS share,
       {BUCKETS} * sum(messages) / sum(sum(messages)) OVER (PARTITION BY day) AS skew
FROM lake_heat GROUP BY day, bucket
"""

_PRESENCE = """
WITH nodes AS (
    SELECT minute, day, node, sum(connected) AS connected, sum(disconnected) AS disconnected, max(peak) AS peak
    FROM lake_presence GROUP BY minute, day, node
)
SELECT minute, day, sum(connected) AS connected, sum(disconnected) AS disconnected, sum(peak) AS peak_sessions
FROM nodes GROUP BY minute, day
"""

_USAGE = """
WITH did AS (
    SELECT day,
           count(DISTINCT CASE WHEN what <> 'came' THEN user_id END) AS active_users,
           count(DISTINCT CASE WHEN what = 'sent' THEN user_id END) AS senders,
           coalesce(sum(CASE WHEN what = 'sent' THEN messages END), 0) AS messages,
           coalesce(sum(CASE WHEN what = 'sent' THEN bytes END), 0) AS bytes,
           coalesce(sum(CASE WHEN what = 'received' THEN messages END), 0) AS acked_entries,
           count(DISTINCT CASE WHEN what IN ('received', 'connected')
                               THEN concat(cast(user_id AS varchar(20)), '/', place) END) AS devices,
           count(DISTINCT CASE WHEN what = 'came' THEN user_id END) AS new_users,
           coalesce(sum(CASE WHEN what = 'connected' THEN messages END), 0) AS sessions
    FROM lake_usage GROUP BY day
), firsts AS (
    SELECT day, count(DISTINCT user_id) AS users FROM lake_first_days GROUP BY day
), peaks AS (
    SELECT day, max(peak_sessions) AS peak_sessions FROM presence GROUP BY day
)
SELECT d.day, d.active_users, d.senders, d.messages, d.bytes, d.acked_entries, d.devices, d.new_users,
       coalesce(f.users, 0) AS first_time_users, d.active_users - coalesce(f.users, 0) AS returning_users,
       d.sessions, coalesce(p.peak_sessions, 0) AS peak_sessions
FROM did d LEFT JOIN firsts f ON f.day = d.day LEFT JOIN peaks p ON p.day = d.day
"""

_USAGE_MONTHS = """
WITH did AS (
    SELECT CAST(date_trunc('month', day) AS date) AS month,
           count(DISTINCT CASE WHEN what <> 'came' THEN user_id END) AS active_users,
           coalesce(sum(CASE WHEN what = 'sent' THEN messages END), 0) AS messages,
           count(DISTINCT CASE WHEN what = 'came' THEN user_id END) AS new_users
    FROM lake_usage GROUP BY CAST(date_trunc('month', day) AS date)
), firsts AS (
    SELECT CAST(date_trunc('month', day) AS date) AS month, count(DISTINCT user_id) AS users
    FROM lake_first_days GROUP BY CAST(date_trunc('month', day) AS date)
)
SELECT d.month, d.active_users, coalesce(f.users, 0) AS first_time_users,
       d.active_users - coalesce(f.users, 0) AS returning_users, d.messages, d.new_users
FROM did d LEFT JOIN firsts f ON f.month = d.month
"""

_USAGE_KINDS = """
SELECT day, kind, sum(messages) AS messages FROM lake_usage WHERE what = 'sent' GROUP BY day, kind
"""

_RETENTION = """
WITH days AS (
    SELECT DISTINCT user_id, day FROM lake_usage WHERE what <> 'came'
), firsts AS (
    SELECT user_id, min(day) AS first_day FROM lake_first_days GROUP BY user_id
), cohorts AS (
    SELECT first_day, count(*) AS cohort_users FROM firsts GROUP BY first_day
)
SELECT f.first_day, d.day, count(DISTINCT d.user_id) AS users,
       CAST((unix_millis(CAST(d.day AS timestamp)) - unix_millis(CAST(f.first_day AS timestamp))) / 86400000 AS bigint)
           AS day_number,
       max(c.cohort_users) AS cohort_users, count(DISTINCT d.user_id) / max(c.cohort_users) AS share
FROM days d JOIN firsts f ON f.user_id = d.user_id JOIN cohorts c ON c.first_day = f.first_day
GROUP BY f.first_day, d.day
"""

_SUMS = ", ".join(
    f"CAST(coalesce(sum({name}), 0) AS BIGINT) AS {name}"
    for name in (
        "intended", "acked", "waiting", "expired", "dead", "resent", "reordered", "late", "lost", "duplicates",
        "expected_waiting",
    )
)  # fmt: skip

_COUNTED = ", ".join(f"CASE WHEN n.has_cut THEN s.{name} END AS {name}" for name in ("waiting", "lost", "duplicates"))

# Rows without a window say how it is now: when the newest message came, whether the stores were asked, and which
# platforms have taken over first inboxes.
_AUDIT = f"""
WITH note AS (
    SELECT max(newest_at) AS newest_at, count(waiting) > 0 AS has_cut FROM lake_audit
    WHERE window_start IS NULL AND user_id IS NULL
), names AS (
    SELECT user_id, inbox, platform FROM lake_audit WHERE window_start IS NULL AND user_id IS NOT NULL
), sums AS (
    SELECT window_start, user_id, inbox, {_SUMS} FROM lake_audit WHERE window_start IS NOT NULL
    GROUP BY window_start, user_id, inbox
)
SELECT s.window_start, s.user_id, coalesce(p.platform, s.inbox) AS platform,
       s.window_start + INTERVAL 70 MINUTES <= n.newest_at AS is_closed,
       s.intended, s.acked, s.expired, s.dead, s.resent, s.reordered, s.late, s.expected_waiting, {_COUNTED},
       u.public_id AS user_name
FROM sums s CROSS JOIN note n
LEFT JOIN names p ON p.user_id = s.user_id AND p.inbox = s.inbox
LEFT JOIN users u ON u.user_id = s.user_id
"""

_FINDINGS = """
SELECT f.finding, f.reason, f.user_id, u.public_id AS user_name, f.platform, f.useq, f.message_id
FROM lake_findings f LEFT JOIN users u ON u.user_id = f.user_id
"""

VIEWS = {
    "users": _USERS,
    "chat_groups": _ROOMS,
    "members": _MEMBERS,
    "marks": _MARKS,
    "messages": _MESSAGES,
    "receipts": _RECEIPTS,
    "deliveries": _DELIVERIES,
    "gaps": _GAPS,
    "latency": _LATENCY,
    "links": _LINKS,
    "heat": _HEAT,
    "hot_rooms": _HOT_ROOMS,
    "hot_partitions": _HOT_PARTITIONS,
    "presence": _PRESENCE,
    "usage": _USAGE,
    "usage_months": _USAGE_MONTHS,
    "usage_kinds": _USAGE_KINDS,
    "retention": _RETENTION,
    "audit": _AUDIT,
    "findings": _FINDINGS,
}
"""By name, in the order in which they depend on each other."""
