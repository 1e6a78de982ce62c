"""Who may know about whom whether the user is online: one rule for ``presence`` and for the count of ``signal``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pixiu.im.context import Context

__all__ = ["are_acquainted", "may_see_presence"]


def may_see_presence(context: Context, user: int, peer: int) -> bool:
    """May ``user`` see the presence of ``peer``, by ``gateway.presence``? A block in either direction hides both."""
    contacts = context.stores.contacts
    if context.presence == "none" or contacts.linked_at(user, peer) is None:
        return False
    if contacts.is_blocked(peer, user) or contacts.is_blocked(user, peer):
        return False
    return context.presence == "contacts" or contacts.linked_at(peer, user) is not None


def are_acquainted(context: Context, user: int, peer: int) -> bool:
    """Is one of them a contact of the other?"""
    contacts = context.stores.contacts
    return contacts.linked_at(user, peer) is not None or contacts.linked_at(peer, user) is not None
