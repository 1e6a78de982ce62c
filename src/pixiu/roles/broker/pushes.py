"""What sessions in a room are told, as bytes: encoded once here, written as they are to everyone.

::

    {"push": "message", "message": {"message_id": "7461…", "from": "alice", "room": "lobby", "at": 1760000000000,
                                    "kind": "text", "text": "hi"}}
    {"push": "presence", "room": "lobby", "members": 3, "users": 2}
    {"push": "gap", "room": "lobby", "missed": 17}
    {"push": "presence", "room": "g:team", "is_in": false, "reason": "removed"}
"""

from msgspec.json import Encoder

from pixiu.machines.room_bodies import message_body

__all__ = ["gap_body", "message_body", "presence_body", "removed_body"]

_encode = Encoder().encode


def presence_body(room: str, members: int, users: int) -> bytes:
    """How many sessions, and how many different users, listen now."""
    return _encode({"push": "presence", "room": room, "members": members, "users": users})


def gap_body(room: str, missed: int) -> bytes:
    """Live messages that gave way to newer ones. They are not stored anywhere."""
    return _encode({"push": "gap", "room": room, "missed": missed})


def removed_body(room: str) -> bytes:
    """The session is out of the room, since its user is not in the group any more."""
    return _encode({"push": "presence", "room": room, "is_in": False, "reason": "removed"})
