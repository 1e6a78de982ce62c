"""The client's side of a session, without a socket: requests, answers, pushes, resuming, reconnecting.

The SDK drives it with a WebSocket; a test with frames that are cut, doubled and late.
"""

from pixiu.machines.client_session.commands import (
    Answered,
    Arrived,
    Command,
    Connect,
    Drop,
    Ended,
    FateUnknown,
    Hurry,
    Incoming,
    Kicked,
    Tell,
    Write,
)
from pixiu.machines.client_session.rules import ClientRules, State
from pixiu.machines.client_session.session import INBOX, ClientSession

__all__ = [
    "INBOX",
    "Answered",
    "Arrived",
    "ClientRules",
    "ClientSession",
    "Command",
    "Connect",
    "Drop",
    "Ended",
    "FateUnknown",
    "Hurry",
    "Incoming",
    "Kicked",
    "State",
    "Tell",
    "Write",
]
