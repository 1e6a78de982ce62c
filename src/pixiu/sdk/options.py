"""How a client is asked for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
    import ssl
    from pathlib import Path

    from pixiu.machines.client_session import ClientRules

__all__ = ["Options", "TokenSource"]

TokenSource = str | Callable[[], str | Awaitable[str]]
"""A token, or what gives a fresh one: asked at each connection."""


class Options(TypedDict, total=False):
    """How a client behaves."""

    store: str | Path
    """A file for the local store; without one nothing outlives the program."""
    store_messages_max: int
    """What the store keeps; beyond it the oldest go."""
    auto_ack: bool
    """True: a message is acked when the next one is asked for. False: by ``message.ack()``."""
    gaps: Literal["keep", "close"]
    """What to do with messages that were missed: keep the gap for ``close_gaps()``, or fetch them at once."""
    patience_seconds: float | None
    """How long to go on trying at the start; 0: one try; None: begin without a connection."""
    timeout_seconds: float
    """Until a request is given up, over all connections."""
    buffer: int
    """Messages that may wait to be taken; beyond it nothing is read from the connection."""
    cursor: str
    """Where to resume, for a program that keeps its own store."""
    tls: ssl.SSLContext
    rules: ClientRules
