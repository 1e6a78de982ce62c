"""signal: a live message to one user. It reaches the sessions that are connected now, and is never stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.im.content import CONTENT, content
from pixiu.im.messages import check_may_send
from pixiu.model.message import message_view
from pixiu.model.pixiu_pb2 import P2P

if TYPE_CHECKING:
    from pixiu.im.context import Context
    from pixiu.im.draft import Actor, Answer, Params

__all__ = ["SIGNAL", "signal"]

SIGNAL = CONTENT - {"send_id", "ref", "priority"} | {"to"}


def signal(context: Context, actor: Actor, params: Params) -> Answer:
    """Hand content to every session of a user. ``delivered`` is how many there were; with none it is dropped.

    Raises ``NotAllowed`` if the user has blocked the sender.
    """
    to = context.directory.user(params.get("to"), "to")
    check_may_send(context, actor.user, to)
    chat = content(params, bytes_max=context.settings.message_bytes_max)
    chat.fromId, chat.toId, chat.tm, chat.chatType = actor.user, to, context.clock.now_ms(), P2P
    shown = message_view(chat.SerializeToString(), context.directory)
    del shown["message_id"]
    return {"delivered": context.tell(to, {"push": "signal", "message": shown}), "at": chat.tm}
