"""Settings of the messaging roles."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pixiu.config.section import Bounds, Count, Milliseconds, Positive, Section

__all__ = ["CarrierSettings", "HornSettings", "InboxSettings", "MessagingSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagingSettings(Section):
    """What users may do: sizes, rates, groups, recalls."""

    name_in_file: ClassVar[str] = "messaging"

    message_bytes_max: Annotated[int, Bounds(1, 16 * 2**20)] = 64 * 1024
    """Largest content of one message; a larger one is refused."""

    sends_per_second: Count = 50
    """Cost of one user's changing actions (sends, joins …) per second on average, at least 1 each; 0 is no limit."""

    send_burst: Positive = 200
    """Cost of one user's changing actions at once before the average counts. Reads have 4 and 10 times as much."""

    group_members_max: Positive = 100_000
    """Members of one group; a join above this is refused."""

    group_create_max: Positive = 1_000
    """Members that create_group may name; others join or are invited afterwards."""

    groups_max: Positive = 1_000
    """Groups that one user may be in; other users may add the user up to half of this number."""

    group_invites: Literal["anyone", "contacts", "consent"] = "anyone"
    """Who adds a user to a group at once: anyone, only those on the user's list of contacts, or only the user; the add
    of anyone else becomes an invitation, which the user accepts with join."""

    group_inbox_limit: Positive = 500
    """A group with more members than this becomes large: its messages enter no inboxes."""

    contacts_max: Positive = 10_000
    """Contacts of one user, and how many others a user may block."""

    recall_ms: Annotated[int, Bounds(0)] = 24 * 3_600_000
    """How long after a message was said it may be recalled; 0 is no limit."""

    schedule_ms_max: Annotated[int, Bounds(1)] = 366 * 86_400_000
    """How far ahead a send may be scheduled."""

    scheduled_max: Positive = 1_000
    """Scheduled sends of one user that may wait at a time."""

    page_max: Annotated[int, Bounds(1, 10_000)] = 100
    """Messages in one page of history or sync."""

    page_bytes_max: Annotated[int, Bounds(4096, 64 * 2**20)] = 256 * 1024
    """Bytes of one page of any list, as JSON; the rest is on the next page. A page holds at least one row."""

    hop_sample: Count = 4
    """Of the appends and pushes timed for /metrics one in so many goes to the log, too; 0: none, and no flushes."""

    forward_gap_ms: Annotated[int, Bounds(0)] = 86_400_000
    """A private conversation that missed less than this catches up forward from where it was, else backward."""

    history_ms: Annotated[int, Bounds(0)] = 0
    """Messages leave history, and send ids are forgotten, after this: more than inbox.expire_ms, or 0, never."""

    history_sweep_ms: Milliseconds = 3_600_000
    """How often is looked for messages that are older than history_ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxSettings(Section):
    """What waits for those who are away, and how it is delivered."""

    name_in_file: ClassVar[str] = "inbox"

    expire_ms: Annotated[int, Bounds(1)] = 90 * 86_400_000
    """An entry that has waited this long is dropped, and counted as expired."""

    sweep_interval_ms: Milliseconds = 60_000
    """How often inboxes are looked through for what has expired."""

    offline_max: Annotated[int, Bounds(-1)] = 10_000
    """Keep the newest this many entries per inbox; -1 keeps all."""

    offline_max_by_platform: str = ""
    """Exceptions to offline_max, as "desktop:80, mobile:-1"."""

    sessions_max: Positive = 5
    """Sessions of one user on one platform; the oldest beyond that is kicked. 1 lets only the newest stay."""

    sessions_max_by_platform: str = "mobile:1, ios:1, android:1"
    """Exceptions to sessions_max."""

    window: Annotated[int, Bounds(1, 4096)] = 64
    """Pushes on their way to a session without an ack."""

    read_limit: Annotated[int, Bounds(1, 4096)] = 64
    """Entries read from an inbox at a time."""

    request_timeout_ms: Milliseconds = 500
    """A read of ids or bodies without an answer is asked again after this."""

    ack_timeout_ms: Annotated[int, Bounds(250, 600_000)] = 2_000
    """Pushes without an ack are sent again after this."""

    ledger_ms: Annotated[int, Bounds(0, 10_000)] = 20
    """What became of entries (pushed, acked) is written this long after it; what a crash takes is delivered again."""

    tries_max: Positive = 3
    """A session that acks nothing after this many repeats is kicked; its messages wait."""

    may_be_empty: ClassVar[frozenset[str]] = frozenset({"offline_max_by_platform", "sessions_max_by_platform"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CarrierSettings(Section):
    """How the log becomes stores, and what becomes of tasks that fail."""

    name_in_file: ClassVar[str] = "carrier"

    batch_count: Annotated[int, Bounds(1, 65536)] = 512
    """Records applied before others get their turn."""

    commit_ms: Milliseconds = 250
    """What was applied becomes durable in the stores after this at most; the log has it already."""

    commit_bytes: Annotated[int, Bounds(65536)] = 8 * 2**20
    """Or as soon as this much has been applied, or as much as is committed in 10 ms."""

    yield_ms: Annotated[int, Bounds(0, 60_000)] = 1_000
    """While sends keep the writer busy they go before the carrier, for at most this long; then both take turns."""

    yield_count: Positive = 50_000
    """And only as long as fewer events than this wait for the carrier."""

    lane_retry_ms: Milliseconds = 1_000
    """A lane whose store is down tries again after this."""

    tasks_in_flight_max: Positive = 1_000
    """Tasks under way at a time; more wait in the log."""

    task_retries_max: Count = 6
    """A task that fails after this many repeats becomes a dead letter."""

    task_retry_ms: Milliseconds = 10_000
    """The first repeat of a task comes after this; each later one waits twice as long, up to ten minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HornSettings(Section):
    """Notifications for those who are away."""

    name_in_file: ClassVar[str] = "horn"

    provider: Literal["none", "log", "webhook", "phones"] = "log"
    """Who is told: nobody, the log file, an HTTP server of yours, or the phones themselves (see the section phones)."""

    webhook_url: str = ""
    """Where notifications are posted as JSON, with provider = "webhook"; of "phones", those that registered for it."""

    webhook_timeout_ms: Milliseconds = 5_000
    """How long the server may take."""

    collapse_ms: Annotated[int, Bounds(0, 3_600_000)] = 1_000
    """Notifications of one conversation within this time become one."""

    stale_ms: Annotated[int, Bounds(1_000)] = 3_600_000
    """A notification that comes this late is dropped: after an outage nobody wants yesterday's news."""

    text_max: Count = 200
    """Characters of the message in a notification; 0 sends none."""

    may_be_empty: ClassVar[frozenset[str]] = frozenset({"webhook_url"})
