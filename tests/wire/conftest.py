"""Fixtures of the wire tests."""

from tests.wire.fixtures import connect, follower, raw, server, start_server, topic
from tests.wire.ripening import _start_early, ending, paused, stalled, unacked

__all__ = [
    "_start_early",
    "connect",
    "ending",
    "follower",
    "paused",
    "raw",
    "server",
    "stalled",
    "start_server",
    "topic",
    "unacked",
]
