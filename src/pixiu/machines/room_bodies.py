"""What is said in a room, as the bytes that everyone in it is written. Encoded once, by whoever publishes."""

from msgspec.json import Encoder

from pixiu.machines.scheduling import Priority

__all__ = ["LINK_CLASSES", "body_class", "message_body", "priority_name"]

LINK_CLASSES = {"high": Priority.COMMAND, "normal": Priority.CHAT, "low": Priority.BULK}
"""The class of a room message on links between processes and in the outgoing queue of a client, by its ``priority``."""

_encode = Encoder().encode
_PREFIX = b'{"push":"message","message":{"priority":"'


def priority_name(link_class: Priority) -> str:
    """The ``priority`` of a message that is published in this class."""
    if link_class is Priority.CHAT:
        return "normal"
    return "low" if link_class is Priority.BULK else "high"


def body_class(body: bytes) -> Priority:
    """The class of an encoded message. Only messages whose priority is not normal begin with it."""
    if not body.startswith(_PREFIX):
        return Priority.CHAT
    return Priority.COMMAND if body.startswith(b"high", len(_PREFIX)) else Priority.BULK


def message_body(
    message_id: int, sender: str, room: str, at: int, text: str, send_id: str, priority: str = "normal"
) -> bytes:
    """Something that was said. A priority other than normal comes first, where ``body_class`` finds it."""
    message = {"message_id": str(message_id), "from": sender, "room": room, "at": at, "kind": "text", "text": text}
    if send_id:
        message["send_id"] = send_id
    if priority != "normal":
        message = {"priority": priority, **message}
    return _encode({"push": "message", "message": message})
