"""What went wrong, from what the queue said.

The protocol has one error code and a text. Known texts become the errors of the one tree, so that callers
catch a kind (``NotFound``, ``Conflict``, ``NotLeader`` …) and never compare texts.
"""

from pixiu.machines.queue_wire import commands as wire
from pixiu.model.errors import (
    Conflict,
    Gone,
    NotAllowed,
    NotFound,
    NotLeader,
    Overloaded,
    PixiuError,
    RequestError,
    TooLarge,
    Unavailable,
)

__all__ = ["FateUnknown", "error_of"]


class FateUnknown(Unavailable):
    """The connection broke after the request went out: it may have been done, or not.

    Doing it again may do it twice. Only ``append`` with a key is repeated by the client itself.
    """

    maybe_done = True


_EXACT: dict[str, type[RequestError]] = {
    wire.TOPIC_NOT_EXIST: NotFound,
    wire.DELAYED_NOT_EXIST: NotFound,
    wire.TOPIC_EXIST: Conflict,
    wire.TOPIC_RESERVED: NotAllowed,
    wire.TOPIC_STAYS: NotAllowed,
    wire.WRONG_KEY: NotAllowed,
    wire.DONT_SUPPORT_ACTION: NotAllowed,
    wire.EVENT_ID_NOT_FOUND: Gone,
    wire.EVENT_ID_FILE_GONE: Gone,
    wire.EVENT_ID_EXPIRED: Gone,
    wire.EVENT_ID_BEYOND: NotFound,
    wire.PAYLOAD_TOO_LARGE: TooLarge,
}
_NOT_LEADER = ("just master ", wire.LEADER_DECIDES, wire.FENCED_PREFIX)
_BUSY = (wire.OVERLOADED, "too many connections")
_LATER = (wire.NOT_IN_SYNC, wire.LEASE_OVER, wire.DISK_FULL, wire.STOPPING, wire.READING_BACK)
_MEANINGS = {
    wire.EVENT_ID_BEYOND: "no message of this topic has that event id",
    wire.DONT_SUPPORT_ACTION: "this queue does not know the command (an old server, or not the leader)",
}


def error_of(text: str, about: str = "") -> PixiuError:
    """The error for a 400's text; ``about`` names what was asked for."""
    message = f"{about}: {_MEANINGS.get(text, text)}" if about else _MEANINGS.get(text, text)
    if (kind := _EXACT.get(text)) is not None:
        return kind(message)
    if text.startswith(_NOT_LEADER):
        return NotLeader(message)
    if text.endswith(wire.FATE_UNKNOWN):
        return FateUnknown(message)
    if text.startswith(wire.BEHIND):
        return Conflict(f"{message}; pass unless_after, an event id that your own records reach")
    if text.endswith(wire.SUBSCRIBER_EXIST_SUFFIX):
        return Conflict(f"{about}: the subscriber name is in use by another connection" if about else message)
    if text.startswith(wire.LOG_BEGINS_BEHIND):
        return Gone(message)
    if text.startswith(wire.LOG_ENDS_BEFORE):
        return NotFound(message)
    if text.startswith((wire.IN_KAFKA, wire.KEY_NEEDED)):
        return NotAllowed(message)
    if text.startswith(_BUSY):
        return Overloaded(message)
    if text.startswith(_LATER):
        return Unavailable(message)
    if text.endswith(" not exist"):
        return NotFound(message)
    return RequestError(message)
