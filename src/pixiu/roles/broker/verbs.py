"""What sessions do in rooms: enter, leave, say. Beside ``pixiu.im.VERBS``, which are about what is stored.

A verb answers at once. ``enter`` and ``leave`` are about a connection, so whoever asks must have one; whoever holds the
connection then lets it listen (``Listeners.enter`` with ``room_number(answer["room"])``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pixiu.im import params as read
from pixiu.im.content import send_id, send_key
from pixiu.im.params import check_known
from pixiu.model.errors import NotAllowed, PixiuError, RequestError
from pixiu.model.message import PRIORITIES
from pixiu.roles.broker.rights import room_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.im.draft import Actor, Answer, Params
    from pixiu.roles.broker.broker import Broker, TalkClass

__all__ = ["ROOM_VERBS", "RoomVerb", "act"]

_CLASSES: dict[str, TalkClass] = {"live": "live", "reliable": "reliable"}
_PRIORITIES = {name: name for name in PRIORITIES}


@dataclass(frozen=True, slots=True)
class RoomVerb:
    """One action in rooms. ``params`` are all that it knows."""

    name: str
    call: Callable[[Broker, Actor, Params], Answer]
    params: frozenset[str]
    is_for_publishers: bool = False
    """A publisher, who has no session, may do it too."""

    def run(self, broker: Broker, actor: Actor, params: Params) -> Answer:
        """Check who asks and what was given, then do it."""
        if type(params) is not dict:
            raise RequestError(f"{self.name} takes an object of params, not {type(params).__name__}")
        if not params.keys() <= self.params:
            check_known(self.name, params, self.params)
        if not actor.session_id and not (self.is_for_publishers and actor.is_admin):
            raise NotAllowed(f"{self.name} is done over a connection that stays; this call has none")
        return self.call(broker, actor, params)


def enter(broker: Broker, actor: Actor, params: Params) -> Answer:
    """Listen in a room."""
    room = _room(params)
    return {"room": room, "members": broker.enter(actor, room)}


def leave(broker: Broker, actor: Actor, params: Params) -> Answer:
    """Stop listening. A session that is not in the room gets the same answer; for a group's room only if a member."""
    room = _room(params)
    return {"room": room, "members": broker.leave(actor, room)}


def say(broker: Broker, actor: Actor, params: Params) -> Answer:
    """Say something to everyone in a room."""
    room, text = _room(params), read.required(params, "text")
    if type(text) is not str:
        raise RequestError(f"text must be a text, not {read.kind_of(text)}")
    token = send_id(params)
    send_key(actor.user, token)  # checks its size
    talk_class = read.choice(params, "class", _CLASSES, "live")
    priority = read.choice(params, "priority", _PRIORITIES, "normal")
    return broker.said(actor, room, text, talk_class, send_id=token, priority=priority)


def _room(params: Params) -> str:
    return room_name(read.public_id_text(params.get("room"), "room"))


_ONE_ROOM = frozenset({"room"})

ROOM_VERBS: dict[str, RoomVerb] = {
    verb.name: verb
    for verb in (
        RoomVerb("enter", enter, _ONE_ROOM),
        RoomVerb("leave", leave, _ONE_ROOM),
        RoomVerb("say", say, _ONE_ROOM | {"text", "class", "priority", "send_id"}, is_for_publishers=True),
    )
}
"""Every action in rooms, by its name on the wire."""


def act(
    broker: Broker, actor: Actor, action: str, params: Params, done: Callable[[Answer | PixiuError], object]
) -> None:
    """Do one of ``ROOM_VERBS``, in the manner of ``Messaging.act``. ``done`` is called before this returns."""
    try:
        answer = ROOM_VERBS[action].run(broker, actor, params)
    except PixiuError as error:
        done(error)
    else:
        done(answer)
