"""What actions take and give, as JSON Schema: the verbs name their params, this file says what each looks like."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from pixiu.im import VERBS
from pixiu.model.message import ENCRYPTIONS, KINDS, PRIORITIES
from pixiu.model.push_token import PROVIDERS

if TYPE_CHECKING:
    from pixiu.im import Verb

__all__ = ["COMPONENTS", "OF_VERB", "Operation", "operation_of", "operations"]

Schema = dict[str, Any]


class Operation(NamedTuple):
    """One action, described."""

    summary: str
    params: Schema
    result: Schema
    is_for_admins: bool = False


def ref(name: str) -> Schema:
    """A schema by its name."""
    return {"$ref": f"#/components/schemas/{name}"}


def thing(properties: dict[str, Schema], *, required: tuple[str, ...] = (), is_open: bool = False) -> Schema:
    """An object."""
    schema: Schema = {"type": "object", "properties": properties, "additionalProperties": is_open}
    return {**schema, "required": list(required)} if required else schema


def list_of(item: Schema, **more: object) -> Schema:
    """A list."""
    return {"type": "array", "items": item, **more}


TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}
COUNT: Schema = {"type": "integer", "minimum": 0}
COUNTS: Schema = {"type": "object", "additionalProperties": {"type": "integer", "minimum": 0}}
RATE: Schema = {"type": "number", "minimum": 0, "description": "Per second."}
TIME: Schema = {"type": "integer", "description": "Milliseconds since the epoch."}
ID: Schema = {"type": "string", "pattern": "^[0-9]+$", "description": "A 64-bit number, as a text."}
FIELDS: Schema = {"type": "object", "additionalProperties": TEXT, "maxProperties": 64}
GIVEN_ID: Schema = {
    "anyOf": [{"type": "string", "pattern": "^[0-9]{1,19}$"}, {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}],
    "description": "A 64-bit number, as a text or as a number.",
}
NAME: Schema = {
    "anyOf": [{"type": "string", "minLength": 1, "maxLength": 64}, {"type": "integer", "minimum": 1}],
    "description": "A public id: up to 64 bytes of UTF-8 without control characters.",
}
LAST: Schema = {
    "anyOf": [NAME, {"type": "object", "additionalProperties": {"anyOf": [GIVEN_ID, {"type": "null"}]}}],
    "description": "One conversation (with `last`), or many: public ids with the last message_id of each.",
}

_MEMBER_OPS = ("approve", "refuse", "invite", "remove", "mute", "unmute", "admin", "member", "transfer")

PARAMS: dict[str, Schema] = {
    "after": GIVEN_ID,
    "at": {**GIVEN_ID, "description": "When to send it: milliseconds since the epoch."},
    "avatar": {"type": "string", "maxLength": 2048},
    "before": GIVEN_ID,
    "body": {"type": "string", "contentEncoding": "base64", "description": "Content of another kind than text."},
    "cursor": GIVEN_ID,
    "direction": {"type": "string", "enum": ["forward", "backward"]},
    "enc": {"type": "string", "enum": list(ENCRYPTIONS)},
    "fields": FIELDS,
    "group": NAME,
    "history": {
        "type": "string",
        "enum": ["all", "since_join"],
        "description": "What members read of a group: all of it, or what was said since they joined.",
    },
    "key_print": {"anyOf": [{"type": "string", "pattern": "^-?[0-9]{1,19}$"}, {"type": "integer"}]},
    "kind": {"type": "string", "enum": [kind for kind in KINDS if kind != "delete"]},
    "last": GIVEN_ID,
    "limit": {"type": "integer", "minimum": 1, "description": "At most messaging.page_max are given."},
    "members": list_of(NAME),
    "message_id": GIVEN_ID,
    "message_ids": list_of(GIVEN_ID, minItems=1, maxItems=1000),
    "name": {"type": "string", "maxLength": 256},
    "needs_approval": FLAG,
    "offset": COUNT,
    "op": {"type": "string", "enum": [*_MEMBER_OPS, "history"]},
    "order": {"type": "string", "enum": ["newest", "relevance"]},
    "priority": {"type": "string", "enum": list(PRIORITIES)},
    "provider": {"type": "string", "enum": list(PROVIDERS), "description": "Who rings the phone."},
    "q": {"type": "string", "minLength": 1, "maxLength": 256, "description": "Words; from: in: before: after:"},
    "ref": {**GIVEN_ID, "description": "The message that this one is about."},
    "requests_cursor": {**GIVEN_ID, "description": "Asks for the page of requests to join after this one."},
    "schedule_id": GIVEN_ID,
    "send_id": {
        "anyOf": [{"type": "string", "maxLength": 64}, {"type": "integer"}],
        "description": "Your token of this send: a repeat of it gives the first answer.",
    },
    "start": GIVEN_ID,
    "subtype": {"type": "integer"},
    "text": TEXT,
    "through": {**GIVEN_ID, "description": "Read through this message; through all without it."},
    "to": NAME,
    "token": {"type": "string", "minLength": 1, "maxLength": 4096, "description": "What the provider calls the phone."},
    "topic": {"type": "string", "maxLength": 256, "description": "The app, where it is not the one of the settings."},
    "user": NAME,
    "with": NAME,
}
"""Params by name: a name means the same wherever it is taken."""

_PAGE_CURSOR: Schema = {"type": "string", "pattern": "^[0-9.]+$", "description": "The cursor of the page before."}
_ROWS: Schema = {"type": "integer", "minimum": 1, "description": "At most 1000 rows are given."}

OF_VERB: dict[tuple[str, str], Schema] = {
    **{(verb, "cursor"): _PAGE_CURSOR for verb in ("contacts", "scheduled")},
    **{(verb, "limit"): _ROWS for verb in ("contacts", "scheduled", "group")},
    ("sync", "with"): LAST,
    ("sync", "group"): LAST,
    ("receipt", "kind"): {"type": "string", "enum": ["delivered", "read", "both"]},
    ("push", "uids"): list_of(NAME, maxItems=10_000),
    ("push", "platform_config"): ref("PlatformConfig"),
    ("push", "exclusive_platform_config"): {"type": "object", "additionalProperties": ref("PlatformConfig")},
    ("push", "msg_bodies"): list_of(ref("PushBody"), maxItems=100),
    ("push", "msg_options"): ref("MessageOptions"),
    ("push", "exclusive_msg_options"): {"type": "object", "additionalProperties": ref("MessageOptions")},
    ("push", "reserve"): {},
}
"""Params that one verb takes in its own way."""

REQUIRED: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("contact", "unlink", "block", "unblock", "ban_user", "unban_user", "erase_user"), ("user",)),
    **dict.fromkeys(("group", "join", "quit", "gsend", "broadcast"), ("group",)),
    **dict.fromkeys(("send", "system", "signal"), ("to",)),
    "manage": ("group", "op"),
    "recall": ("message_id",),
    "receipt": ("message_ids", "kind"),
    "schedule": ("at",),
    "unschedule": ("schedule_id",),
    "search": ("q",),
    "register_push": ("provider", "token"),
}

_PAGE: dict[str, Schema] = {
    "messages": list_of(ref("Message")), "has_more": FLAG,
    "trimmed": {"type": "boolean", "description": "Retention has removed what lies before."},
}  # fmt: skip
_NEXT: dict[str, Schema] = {
    "has_more": FLAG,
    "cursor": {"type": ["string", "null"], "description": "Asks for the next page; null on the last one."},
}
_CAUGHT_UP = thing(
    {**_PAGE, "gaps": list_of(ref("Gap")), "cursor": {"type": ["string", "null"]}},
    required=("messages", "gaps", "has_more", "cursor"),
)
_SENT = thing({"message_id": ID, "at": TIME}, required=("message_id", "at"))
_NOTHING = thing({})
_PHONE = thing(
    {"platform": TEXT, "device": TEXT, "provider": {"type": ["string", "null"]}, "topic": TEXT, "at": TIME},
    required=("platform", "device", "provider"),
)
_SCHEDULED = thing({"schedule_id": ID, "at": TIME}, required=("schedule_id",))

RESULTS: dict[str, Schema] = {
    **dict.fromkeys(("create_user", "user"), ref("Profile")),
    "contacts": ref("Contacts"),
    **dict.fromkeys(
        ("contact", "unlink", "block", "unblock"),
        thing({"contacts": list_of(ref("Contact"), maxItems=1)}, required=("contacts",)),
    ),
    **dict.fromkeys(("create_group", "group", "join", "quit"), ref("Group")),
    **dict.fromkeys(("send", "gsend", "system", "broadcast"), _SENT),
    "signal": thing(
        {
            "delivered": {
                "type": ["integer", "null"],
                "minimum": 0,
                "description": "Sessions that got it; null if the caller may not see the user's presence.",
            },
            "at": TIME,
        },
        required=("delivered", "at"),
    ),
    **dict.fromkeys(("recall", "manage"), _NOTHING),
    **dict.fromkeys(("sync", "receive"), _CAUGHT_UP),
    **dict.fromkeys(("schedule", "unschedule"), _SCHEDULED),
    **dict.fromkeys(("register_push", "unregister_push"), _PHONE),
    "history": thing(
        {**_PAGE, "min": {"type": ["string", "null"]}, "max": {"type": ["string", "null"]}},
        required=("messages", "has_more", "min", "max"),
    ),
    "search": thing(
        {"messages": list_of(ref("FoundMessage")), "has_more": FLAG, "cursor": {"type": ["string", "null"]}},
        required=("messages", "has_more", "cursor"),
    ),
    "read": thing({"unread": COUNT}, required=("unread",)),
    "receipt": thing({"marked": COUNT}, required=("marked",)),
    "scheduled": thing({"scheduled": list_of(ref("Message")), **_NEXT}, required=("scheduled", "has_more", "cursor")),
    "push": thing({"message_ids": list_of(ID), "at": TIME}, required=("message_ids",)),
    **dict.fromkeys(
        ("ban_user", "unban_user"), thing({"user": NAME, "is_banned": FLAG}, required=("user", "is_banned"))
    ),
    "erase_user": thing(
        {"user": NAME, "number": ID, "event_id": ID, "at": TIME, "found": COUNTS, "remains": COUNTS},
        required=("user", "number", "event_id", "at", "found", "remains"),
    ),
}

_HISTOGRAM = thing(
    {"counts": list_of(COUNT), "sum": {"type": "number", "description": "Seconds."}}, required=("counts", "sum")
)
_HOPS = ("accept", "apply", "deliver", "ack")
STATS = thing(
    {
        "version": TEXT, "at": TIME, "started_at": TIME, "uptime_ms": COUNT,
        "process": thing(
            {
                "pid": COUNT, "rss_bytes": COUNT, "cpu_seconds": {"type": "number"},
                "open_files": {"type": ["integer", "null"]}, "open_files_max": {"type": ["integer", "null"]},
            }
        ),
        "counters": {"type": "object", "additionalProperties": COUNT, "description": "Since the start."},
        "hops": thing(
            {"bounds": list_of({"type": "number"}), **dict.fromkeys(_HOPS, _HISTOGRAM)}, required=("bounds", *_HOPS)
        ),
        "connections": COUNT, "connections_max": COUNT, "sessions": COUNT, "rooms": COUNT, "room_sessions": COUNT,
        "hot_rooms": list_of(
            thing(
                {
                    "room": TEXT, "members": COUNT, "users": COUNT,
                    "deliveries": RATE, "messages": RATE, "bytes": RATE,
                }
            ),
            maxItems=20,
        ),
        "queue": thing(
            {
                **dict.fromkeys(("last_event_id", "flushed_event_id", "commit_event_id"), ID),
                **dict.fromkeys(("journal_bytes", "pending_bytes", "subscribers", "followers"), COUNT),
                "is_leader": FLAG,
            }
        ),
        "lanes": list_of(thing({"name": TEXT, "event_id": ID, "lag": COUNT}, required=("name", "event_id", "lag"))),
        "topics": list_of(ref("Topic")),
        "stores": thing(dict.fromkeys(("stores_bytes", "queue_store_bytes", "free_bytes"), COUNT)),
        "problems": list_of(TEXT),
    },
    required=("version", "at", "started_at", "uptime_ms", "process", "counters", "hops", "connections", "sessions"),
)  # fmt: skip

_MESSAGE: dict[str, Schema] = {
    "message_id": ID, "from": TEXT, "to": TEXT, "group": TEXT, "at": TIME,
    "kind": {"type": "string", "description": "One of the kinds, or system."},
    "text": TEXT, "body": {"type": "string", "contentEncoding": "base64"}, "send_id": TEXT, "ref": ID,
    "fields": FIELDS, "priority": TEXT, "enc": TEXT, "key_print": TEXT, "subtype": {"type": "integer"},
    "delivered_at": TIME, "read_at": TIME, "schedule_id": ID,
    "recalled": {"type": "boolean", "description": "It was taken back: it has no content any more."},
    "missing": {"type": "boolean", "description": "Its content is not there any more."},
}  # fmt: skip

_CONTACT = {"name": TEXT, "avatar": TEXT, "at": TIME, "unread": COUNT}

COMPONENTS: dict[str, Schema] = {
    "Error": thing(
        {"error": thing({"code": ref("ErrorCode"), "message": TEXT}, required=("code", "message"))},
        required=("error",),
    ),
    "Message": thing(_MESSAGE, required=("from", "at", "kind")),
    "FoundMessage": thing(
        {
            **_MESSAGE,
            "highlights": {
                **list_of(list_of(COUNT, minItems=2, maxItems=2), maxItems=50),
                "description": "What of the text was looked for: begin and end, in characters (code points).",
            },
        },
        required=("message_id", "from", "at", "kind", "text", "highlights"),
    ),
    "Profile": thing(
        {"user": TEXT, "name": TEXT, "avatar": TEXT, "fields": FIELDS, "at": TIME},
        required=("user", "name", "avatar", "fields", "at"),
    ),
    "Contact": {
        "anyOf": [
            thing({"user": TEXT, **_CONTACT}, required=("user", "unread")),
            thing({"group": TEXT, **_CONTACT}, required=("group", "unread")),
        ]
    },
    "Contacts": thing(
        {
            "contacts": list_of(ref("Contact")),
            "others": list_of(thing({"user": TEXT, "unread": COUNT}, required=("user", "unread"))),
            **_NEXT,
            "invitations": list_of(
                thing({"group": TEXT, "name": TEXT, "avatar": TEXT, "at": TIME}, required=("group", "at")), maxItems=100
            ),
        },
        required=("contacts", "others", "has_more", "cursor"),
    ),
    "Group": thing(
        {
            "group": TEXT, "name": TEXT, "avatar": TEXT, "owner": TEXT, "at": TIME, "needs_approval": FLAG,
            "is_large": FLAG, "history": PARAMS["history"], "fields": FIELDS, "member_count": COUNT, **_NEXT,
            "is_requested": FLAG,
            "members": list_of(
                thing({"user": TEXT, "role": TEXT, "at": TIME, "is_muted": FLAG}, required=("user", "role", "at"))
            ),
            "requests": list_of(thing({"user": TEXT, "at": TIME}, required=("user", "at"))),
            "requests_cursor": {
                "type": ["string", "null"], "description": "Asks for the next page of requests; null on the last one.",
            },
        },
        required=("group", "name", "owner", "member_count"),
    ),
    "Gap": thing(
        {"with": TEXT, "group": TEXT, "inbox": TEXT, "after": ID, "before": ID, "trimmed": FLAG},
        required=("after", "before"),
    ),
    "PlatformConfig": thing(
        {
            "platforms": list_of({"type": "string", "minLength": 1, "maxLength": 32}, maxItems=16),
            "without_platforms": list_of({"type": "string", "minLength": 1, "maxLength": 32}, maxItems=16),
        }
    ),
    "PushBody": {
        "anyOf": [
            TEXT,
            thing(
                {
                    "@type": TEXT,
                    "value": {"description": "Plain JSON for protobuf's own types, otherwise the message as base64."},
                },
                required=("@type",),
            ),
            thing(
                {name: PARAMS[name] for name in ("text", "body", "kind", "fields", "enc", "ref", "priority")}
                | {"key_print": PARAMS["key_print"], "subtype": PARAMS["subtype"]}
            ),
        ]
    },
    "MessageOptions": {
        "anyOf": [
            {"type": "integer", "minimum": 0, "maximum": 7},
            {"type": "string", "enum": ["NONE", "NEED_ACK", "NEED_OFFLINE", "NEED_NOTIFICATION"]},
        ],
        "description": "Bits: 1 needs an ack, 2 is kept for those who are away, 4 notifies them.",
    },
    "Session": thing(
        {"session_id": ID, "user": TEXT, "platform": TEXT, "device": TEXT, "number": COUNT, "gateway": TEXT},
        required=("session_id", "user", "platform", "device"),
    ),
    "DeadLetter": thing(
        {
            "id": ID, "at": TIME, "what": TEXT, "reason": TEXT, "attempt": COUNT, "user": TEXT, "message_id": ID,
            "platforms": list_of(TEXT), "code": TEXT,
        },
        required=("id", "at", "what", "reason"),
    ),
    "Topic": thing(
        {
            "name": TEXT, "at": TIME, "expires_at": COUNT, "is_reserved": FLAG, "bytes": COUNT, "last_event_id": ID,
            "subscribers": list_of(
                thing(
                    {
                        "name": TEXT, "event_id": ID, "is_live": FLAG,
                        "lag": {**COUNT, "description": "Event ids between it and the topic's newest message."},
                    },
                    required=("name", "event_id", "lag", "is_live"),
                )
            ),
        },
        required=("name", "at", "expires_at", "is_reserved", "bytes", "last_event_id", "subscribers"),
    ),
    "Tail": thing(
        {"topic": ref("Topic"), "messages": list_of(ref("TopicMessage"))}, required=("topic", "messages")
    ),
    "TopicMessage": {
        **thing(
            {
                "event_id": ID, "at": TIME, "bytes": COUNT, "is_cut": FLAG, "headers": FIELDS,
                "body": {"type": "string", "contentEncoding": "base64"}, "message_id": ID,
                "what": TEXT, "from": TEXT, "to": TEXT, "group": TEXT, "kind": TEXT, "user": TEXT, "reason": TEXT,
                "code": TEXT,
            },
            required=("event_id", "at", "bytes"),
        ),
        "description": "Of Pixiu's own topics: what it is and between whom, never what was said.",
    },
    "Stats": STATS,
    "StatsHistory": {
        "type": "object",
        "properties": {
            "started_at": TIME,
            "every_ms": COUNT,
            "samples": {"type": "object", "additionalProperties": list_of({"type": ["number", "null"]})},
        },
        "required": ["started_at", "every_ms", "samples"],
    },
    "Pipeline": {
        "type": "object",
        "properties": {
            "state": {"enum": ["off", "resting", "installing", "starting", "running", "waiting", "failed"]},
            "reason": TEXT,
            "log": ID,
            "next_at": {"type": ["integer", "null"]},
            "lag": {"type": ["integer", "null"]},
            "last_run": {"type": ["object", "null"]},
        },
        "required": ["state", "reason", "log"],
    },
    "Audit": {
        "type": "object",
        "properties": dict.fromkeys(
            ("accepted", "intended", "acked", "waiting", "expired", "dead", "resent", "histories"), COUNT
        )
        | {"lost": list_of({"type": "object"}), "duplicates": list_of({"type": "object"}), "balanced": FLAG},
        "required": ["accepted", "intended", "acked", "waiting", "expired", "dead", "lost", "duplicates", "balanced"],
    },
    "Waterfall": {
        "type": "object",
        "properties": {
            "message_id": ID, "event_id": ID, "from": TEXT, "to": TEXT, "group": TEXT, "kind": TEXT, "bytes": COUNT,
            "accepted_at": TIME, "written_at": TIME, "hops": list_of({"type": "object"}),
            "inboxes": list_of({"type": "object"}), "not_in_inboxes": TEXT, "source": TEXT, "read_through": ID,
            "is_whole": FLAG,
        },
        "required": ["message_id", "event_id", "accepted_at", "written_at", "hops", "inboxes", "is_whole"],
    },
}  # fmt: skip


def operation_of(verb: Verb) -> Operation:
    """A verb, described by its own docstring, its params and its result."""
    properties = {name: OF_VERB.get((verb.name, name)) or _param(verb.name, name) for name in sorted(verb.params)}
    nullable = {name: {"anyOf": [schema, {"type": "null"}]} if schema else {} for name, schema in properties.items()}
    required = REQUIRED.get(verb.name, ())
    shown = {name: properties[name] if name in required else nullable[name] for name in properties}
    params = thing(shown, required=required, is_open=verb.takes_any)
    summary = (verb.call.__doc__ or verb.name).strip().partition("\n")[0]
    return Operation(summary, params, RESULTS[verb.name], verb.is_for_admins)


def _param(verb: str, name: str) -> Schema:
    return OF_VERB[verb, name] if (verb, name) in OF_VERB else PARAMS[name]


def operations() -> dict[str, Operation]:
    """Every verb of ``pixiu.im`` by its name."""
    return {name: operation_of(verb) for name, verb in VERBS.items()}
