"""The Python SDK: a session of a user from any program, over WebSocket.

::

    async with pixiu.connect("ws://127.0.0.1:8400", token) as me:
        await me.send("bob", "hello")
        async for message in me.messages():
            print(message.sender, message.text)

It reconnects and resumes by itself, shows each message once and in order, and repeats a send until it is answered.
docs/sdk-python.md has the whole of it.
"""

from typing import Unpack

from pixiu.machines.client_session import ClientRules, FateUnknown, Kicked
from pixiu.machines.client_session.values import (
    CaughtUp,
    Closed,
    Contact,
    Contacts,
    ContactsEvent,
    Event,
    Gap,
    GapEvent,
    Group,
    KickEvent,
    Member,
    Message,
    Missed,
    Online,
    Page,
    Place,
    PresenceEvent,
    Profile,
    RecallEvent,
    ReceiptEvent,
    RoomPresence,
    Said,
    Scheduled,
    Sent,
    SignalEvent,
    TypingEvent,
)
from pixiu.sdk.blocking import BlockingClient
from pixiu.sdk.client import Client
from pixiu.sdk.options import Options, TokenSource
from pixiu.sdk.store import Store

__all__ = [
    "BlockingClient",
    "CaughtUp",
    "Client",
    "ClientRules",
    "Closed",
    "Contact",
    "Contacts",
    "ContactsEvent",
    "Event",
    "FateUnknown",
    "Gap",
    "GapEvent",
    "Group",
    "KickEvent",
    "Kicked",
    "Member",
    "Message",
    "Missed",
    "Online",
    "Options",
    "Page",
    "Place",
    "PresenceEvent",
    "Profile",
    "RecallEvent",
    "ReceiptEvent",
    "RoomPresence",
    "Said",
    "Scheduled",
    "Sent",
    "SignalEvent",
    "Store",
    "TokenSource",
    "TypingEvent",
    "connect",
    "connect_blocking",
]


def connect(url: str, token: TokenSource, **options: Unpack[Options]) -> Client:
    """A client of the server at ``url``: ``async with pixiu.connect(url, token) as me:``.

    ``token`` is a text, or something to call for a fresh one at each connection. Raises ``Unavailable`` if nobody
    answers, ``Unauthenticated`` if the token is not taken.
    """
    return Client(url, token, **options)


def connect_blocking(url: str, token: TokenSource, **options: Unpack[Options]) -> BlockingClient:
    """The same without asyncio: ``with pixiu.connect_blocking(url, token) as me:``."""
    return BlockingClient(url, token, **options)
