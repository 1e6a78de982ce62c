"""The views that ``pixiu sql`` shows, in SQL that DuckDB and Spark both understand.

``lake_<table>`` are the tables as they are stored. The views give people's names, fold recalls and receipts that came
behind their messages, and turn changes into states. docs/pipeline.md documents their columns.
"""

__all__ = ["VIEWS"]

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
       d.first_useq, d.through_useq
FROM lake_deliveries d LEFT JOIN users u ON u.user_id = d.user_id
"""

_GAPS = """
SELECT event_id, noted_at, user_id, user_name, platform, first_useq, through_useq, what AS reason
FROM deliveries WHERE what IN ('expired', 'dead')
"""

_LATENCY = """
SELECT minute, day, hop, link,
       sum(messages) AS messages, sum(in_time) AS in_time, sum(in_time) / sum(messages) AS share_in_time,
       sum(sum_ms) / sum(messages) AS mean_ms, max(max_ms) AS max_ms
FROM lake_latency GROUP BY minute, day, hop, link
"""

_HEAT = """
SELECT minute, day, bucket, conversation, sum(messages) AS messages, sum(bytes) AS bytes
FROM lake_heat GROUP BY minute, day, bucket, conversation
"""

_HOT_ROOMS = """
SELECT day, conversation, sum(messages) AS messages, sum(bytes) AS bytes, max(messages) AS peak_per_minute,
       sum(messages) / sum(sum(messages)) OVER (PARTITION BY day) AS share
FROM heat GROUP BY day, conversation
"""

_USAGE = """
SELECT day,
       count(DISTINCT CASE WHEN what <> 'came' THEN user_id END) AS active_users,
       count(DISTINCT CASE WHEN what = 'sent' THEN user_id END) AS senders,
       coalesce(sum(CASE WHEN what = 'sent' THEN messages END), 0) AS messages,
       coalesce(sum(CASE WHEN what = 'sent' THEN bytes END), 0) AS bytes,
       coalesce(sum(CASE WHEN what = 'received' THEN messages END), 0) AS acked_entries,
       count(DISTINCT CASE WHEN what = 'received' THEN concat(cast(user_id AS varchar(20)), '/', place) END) AS devices,
       count(DISTINCT CASE WHEN what = 'came' THEN user_id END) AS new_users
FROM lake_usage GROUP BY day
"""

_USAGE_KINDS = """
SELECT day, kind, sum(messages) AS messages FROM lake_usage WHERE what = 'sent' GROUP BY day, kind
"""

_RETENTION = """
WITH days AS (
    SELECT DISTINCT user_id, day FROM lake_usage WHERE what <> 'came'
), cohorts AS (
    SELECT user_id, day, min(day) OVER (PARTITION BY user_id) AS first_day FROM days
)
SELECT first_day, day, count(DISTINCT user_id) AS users FROM cohorts GROUP BY first_day, day
"""

_AUDIT = """
SELECT a.*, u.public_id AS user_name FROM lake_audit a LEFT JOIN users u ON u.user_id = a.user_id
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
    "heat": _HEAT,
    "hot_rooms": _HOT_ROOMS,
    "usage": _USAGE,
    "usage_kinds": _USAGE_KINDS,
    "retention": _RETENTION,
    "audit": _AUDIT,
    "findings": _FINDINGS,
}
"""By name, in the order in which they depend on each other."""
