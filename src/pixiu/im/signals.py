"""signal: a live message to one user. It reaches the sessions that are connected now, and is never stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.im.content import CONTENT, content
from pixiu.im.messages import check_may_send
from pixiu.im.presence import are_acquainted, may_see_presence
from pixiu.model.errors import NotAllowed
from pixiu.model.message import message_view
from pixiu.model.pixiu_pb2 import P2P

if TYPE_CHECKING:
    from pixiu.im.context import Context
    from pixiu.im.draft import Actor, Answer, Params

__all__ = ["SIGNAL", "signal"]

SIGNAL = CONTENT - {"send_id", "ref", "priority"} | {"to"}


def signal(context: Context, actor: Actor, params: Params) -> Answer:
    """Hand content to every session of a user. ``delivered`` is how many there were; with none it is dropped.

    ``delivered`` is None for a sender who may not see the user's presence.

    Raises ``NotAllowed`` if the user has blocked the sender, or is neither a contact nor in a common group.
    """
    to = context.directory.user(params.get("to"), "to")
    check_may_send(context, actor.user, to)
    if not (actor.is_admin or _may_signal(context, actor.user, to)):
        name = context.directory.user_name(to)
        raise NotAllowed(f"signal reaches contacts and members of a common group; {name!r} is neither: use send")
    chat = content(params, bytes_max=context.settings.message_bytes_max)
    chat.fromId, chat.toId, chat.tm, chat.chatType = actor.user, to, context.clock.now_ms(), P2P
    shown = message_view(chat.SerializeToString(), context.directory)
    del shown["message_id"]
    delivered = context.tell(to, {"push": "signal", "message": shown})
    is_shown = actor.is_admin or to == actor.user or may_see_presence(context, actor.user, to)
    return {"delivered": delivered if is_shown else None, "at": chat.tm}


def _may_signal(context: Context, user: int, to: int) -> bool:
    if to == user or are_acquainted(context, user, to):
        return True
    groups_of = context.stores.groups.groups_of
    return not set(groups_of(user)).isdisjoint(groups_of(to))
