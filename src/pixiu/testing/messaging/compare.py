"""Everything that stores hold, written out as plain data: two of them, or one and the model, can be compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pixiu.ports.stores import Stores
    from pixiu.testing.messaging.model import Model

__all__ = ["describe_model", "describe_stores", "difference"]

ALL = 1_000_000
Description = dict[str, dict[object, object]]
"""Section, thing, what is held of it."""


def describe_stores(stores: Stores, model: Model) -> Description:
    """What stores hold. The model only says what to ask for; what it does not know of is found by listing."""
    users = sorted({*model.users, *stores.users.all()})
    states = stores.inboxes.states(limit=ALL)
    bodies = stores.bodies.get(sorted(model.messages))
    return {
        "users": {user: (p.public_id, p.name) for user in users if (p := stores.users.get(user)) is not None},
        "contacts": {user: stores.contacts.of(user) for user in users},
        "blocks": {(user, peer): True for user in users for peer in users if stores.contacts.is_blocked(user, peer)},
        "push tokens": {user: stores.push_tokens.of(user) for user in users},
        "groups": {
            number: (g.public_id, g.name, g.owner, g.needs_approval, g.is_large, g.message_count, g.last_message_id)
            for number in model.groups
            if (g := stores.groups.get(number)) is not None
        },
        "members": {
            number: [
                (m.user, int(m.role), m.joined, int(m.is_muted), m.count_at_read) for m in stores.groups.members(number)
            ]
            for number in model.groups
        },
        "requests": {number: stores.groups.requests(number) for number in model.groups},
        "inboxes": {
            (state.user, state.platform): (
                state.floor,
                state.latest,
                state.waiting,
                [tuple(entry) for entry in stores.inboxes.after(state.user, state.platform, 0, ALL).entries],
            )
            for state in states
        },
        "platforms": {user: stores.inboxes.platforms(user) for user in users},
        "bodies": {each: (stores.bodies.references(each), body) for each, body in bodies.items()},
        "unread": {
            user: {str(conversation): count for conversation, count in stores.unread.of(user).items()} for user in users
        },
        "private timelines": {
            user: [
                (r.message_id, r.peer, int(r.is_incoming), r.state, r.delivered_at, r.read_at)
                for r in stores.timelines.private_forward(user, limit=ALL)
            ]
            for user in users
        },
        "group timelines": {
            number: [
                (r.message_id, r.from_user, r.previous, r.state)
                for r in stores.timelines.group_forward(number, limit=ALL)
            ]
            for number in model.groups
        },
        "send keys": {key: tuple(sent) for key in model.keys if (sent := stores.keys.get(key)) is not None},
    }


def describe_model(model: Model) -> Description:
    """What stores must hold."""
    return {
        "users": dict(model.users.items()),
        "contacts": {
            user: sorted(model.contacts.get(user, {}).items(), key=lambda pair: pair[::-1]) for user in model.users
        },
        "blocks": dict.fromkeys(model.blocks, True),
        "push tokens": {user: [token for token in model.push_tokens if token.user == user] for user in model.users},
        "groups": {
            number: (g.public_id, g.name, g.owner, g.needs_approval, g.is_large, g.count, g.last)
            for number, g in model.groups.items()
        },
        "members": {
            number: [(user, *member) for user, member in sorted(g.members.items())]
            for number, g in model.groups.items()
        },
        "requests": {number: sorted(g.requests.items()) for number, g in model.groups.items()},
        "inboxes": {
            (user, platform): (
                min(inbox.entries, default=inbox.latest + 1) - 1,
                inbox.latest,
                len(inbox.entries),
                [tuple(entry) for _, entry in sorted(inbox.entries.items())],
            )
            for user, inboxes in model.inboxes.items()
            for platform, inbox in inboxes.items()
        },
        "platforms": {user: tuple(model.inboxes.get(user, ())) for user in model.users},
        "bodies": {message_id: tuple(body) for message_id, body in model.bodies.items()},
        "unread": {user: dict(model.unread.get(user, {})) for user in model.users},
        "private timelines": {
            user: [(each, *row) for each, row in sorted(model.private.get(user, {}).items())] for user in model.users
        },
        "group timelines": {
            number: [(each, *row) for each, row in sorted(g.rows.items())] for number, g in model.groups.items()
        },
        "send keys": dict(model.keys.items()),
    }


def difference(left: Mapping[str, Mapping[object, object]], right: Mapping[str, Mapping[object, object]]) -> str:
    """The first thing in which they differ, or the empty string."""
    for section in left:
        ours, theirs = left[section], right[section]
        if ours == theirs:
            continue
        for thing in sorted({*ours, *theirs}, key=str):
            if ours.get(thing) != theirs.get(thing):
                return f"{section} of {thing}: {ours.get(thing)!r} / {theirs.get(thing)!r}"
    return ""
