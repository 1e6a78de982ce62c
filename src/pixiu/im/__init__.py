"""What users do: the verbs, over ports only.

``VERBS`` has every public action by its name on the wire. A verb checks everything and stores nothing: a reading verb
returns its answer, a changing one a ``Draft`` of what to append to the log.
"""

from pixiu.im.contacts import block, contact, contacts, unblock, unlink
from pixiu.im.content import CONTENT
from pixiu.im.context import Context
from pixiu.im.draft import (
    Accepted,
    Actor,
    Answer,
    Draft,
    Params,
    Scheduling,
    Searching,
    UnknownUsers,
    Unscheduling,
    Verb,
)
from pixiu.im.erasing import erase_user
from pixiu.im.groups import create_group, group, join, quit  # noqa: A004 - the seed's name
from pixiu.im.members import manage
from pixiu.im.messages import broadcast, gsend, recall, send, system
from pixiu.im.phones import REGISTERING, register_push, unregister_push
from pixiu.im.push import PUSH, push
from pixiu.im.reading import history, mark_read, receipt
from pixiu.im.schedules import schedule, scheduled, unschedule
from pixiu.im.search import search
from pixiu.im.signals import SIGNAL, signal
from pixiu.im.sync import receive, sync
from pixiu.im.users import PROFILE, ban_user, create_user, unban_user, user

__all__ = [
    "VERBS",
    "Accepted",
    "Actor",
    "Answer",
    "Context",
    "Draft",
    "Params",
    "Scheduling",
    "Searching",
    "UnknownUsers",
    "Unscheduling",
    "Verb",
]

_ONE_USER = frozenset({"user"})
_ONE_GROUP = frozenset({"group"})
_NEW_GROUP = frozenset({"group", "name", "avatar", "members", "needs_approval", "history", "fields"})
_PLACE = frozenset({"with", "group"})
_ROWS = frozenset({"cursor", "limit"})
_PAGE = frozenset({"before", "after", "limit", "direction"})

VERBS: dict[str, Verb] = {
    verb.name: verb
    for verb in (
        Verb("create_user", create_user, PROFILE, needs_user=False, takes_any=True),
        Verb("user", user, _ONE_USER, is_changing=False, needs_user=False),
        Verb("contact", contact, _ONE_USER),
        Verb("unlink", unlink, _ONE_USER),
        Verb("contacts", contacts, _ROWS, is_changing=False),
        Verb("block", block, _ONE_USER),
        Verb("unblock", unblock, _ONE_USER),
        Verb("register_push", register_push, REGISTERING),
        Verb("unregister_push", unregister_push, frozenset()),
        Verb("create_group", create_group, _NEW_GROUP),
        Verb("group", group, _ONE_GROUP | _ROWS | {"offset", "requests_cursor"}, is_changing=False, needs_user=False),
        Verb("join", join, _ONE_GROUP),
        Verb("quit", quit, _ONE_GROUP),
        Verb("manage", manage, frozenset({"group", "user", "op", "history"})),
        Verb("send", send, CONTENT | {"to"}),
        Verb("gsend", gsend, CONTENT | {"group"}),
        Verb("signal", signal, SIGNAL),
        Verb("recall", recall, frozenset({"message_id"})),
        Verb("history", history, _PLACE | _PAGE, is_changing=False),
        Verb("sync", sync, _PLACE | {"cursor", "last", "limit"}, is_changing=False),
        Verb("receive", receive, frozenset({"start", "limit"}), is_changing=False),
        Verb("search", search, _PLACE | {"q", "limit", "order", "cursor"}, is_changing=False),
        Verb("read", mark_read, _PLACE | {"through"}),
        Verb("receipt", receipt, frozenset({"message_ids", "kind"})),
        Verb("schedule", schedule, CONTENT | {"at", "to", "group"}),
        Verb("unschedule", unschedule, frozenset({"schedule_id"})),
        Verb("scheduled", scheduled, _ROWS, is_changing=False),
        Verb("system", system, CONTENT | {"to"}, is_for_admins=True, needs_user=False),
        Verb("broadcast", broadcast, CONTENT | {"group"}, is_for_admins=True, needs_user=False),
        Verb("push", push, PUSH, is_for_admins=True, needs_user=False),
        Verb("ban_user", ban_user, _ONE_USER, is_for_admins=True, needs_user=False),
        Verb("unban_user", unban_user, _ONE_USER, is_for_admins=True, needs_user=False),
        Verb("erase_user", erase_user, _ONE_USER, is_for_admins=True, needs_user=False),
    )
}
"""Every action on messages, users and groups. Live rooms and presence have their own roles."""
