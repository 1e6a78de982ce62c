"""What is said in a room, as the bytes that everyone in it is written. Encoded once, by whoever publishes."""

from msgspec.json import Encoder

__all__ = ["message_body"]

_encode = Encoder().encode


def message_body(message_id: int, sender: str, room: str, at: int, text: str, send_id: str) -> bytes:
    """Something that was said."""
    message = {"message_id": str(message_id), "from": sender, "room": room, "at": at, "kind": "text", "text": text}
    if send_id:
        message["send_id"] = send_id
    return _encode({"push": "message", "message": message})
