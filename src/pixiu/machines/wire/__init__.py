"""What the parts of a node say to each other when they are not in one process.

Sans-IO: messages are plain tuples, ``encode`` makes one frame of a message, ``Stream`` makes messages of bytes as they
come::

    link.write(encode(Hello(VERSION, "gateway-1")) + encode(Heartbeat()))
    for message in stream.feed(data): …

A frame is its length (four bytes, the highest first), the number of its kind (one byte), and its fields. Frames of one
turn are joined and written at once. Bodies of messages are copied as they are, never decoded. A frame has a bound; what
is no frame raises ``RemoteProtocolError``: nobody knows then what the peer means, so its connection ends.

The first message of a gateway is its ``Hello``, with the version of all this; the node answers with ``Welcome``, or
ends the connection.
"""

from pixiu.machines.wire.codec import FRAME_BYTES_MAX, Stream, encode
from pixiu.machines.wire.messages import (
    ADMIN_PREFIX,
    VERSION,
    Acks,
    Alive,
    Answer,
    Call,
    End,
    Event,
    Find,
    Found,
    Heartbeat,
    Hello,
    Lives,
    LoggedIn,
    LogIn,
    LogOut,
    Pushes,
    PushRow,
    Refusal,
    Request,
    RoomAck,
    RoomFrame,
    Welcome,
    WireMessage,
    Writing,
)

__all__ = [
    "ADMIN_PREFIX",
    "FRAME_BYTES_MAX",
    "VERSION",
    "Acks",
    "Alive",
    "Answer",
    "Call",
    "End",
    "Event",
    "Find",
    "Found",
    "Heartbeat",
    "Hello",
    "Lives",
    "LogIn",
    "LogOut",
    "LoggedIn",
    "PushRow",
    "Pushes",
    "Refusal",
    "Request",
    "RoomAck",
    "RoomFrame",
    "Stream",
    "Welcome",
    "WireMessage",
    "Writing",
    "encode",
]
