"""Where a relay puts what is for a client: the gateway's end of one connection, or several."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pixiu.machines.delivery import Push

__all__ = ["Sink"]


class Sink(Protocol):
    """Takes what it is given and returns at once; never raises. A connection that is gone is told by ``disconnect``.

    * A sink is never called for a session before the ``connect`` that made the session has returned, nor after its
      ``close``, its ``disconnect`` or its ``kick``.
    * It never calls the relay from within ``push`` or ``event``: what a client answers comes in a later turn.
    * What is on its way is bounded: at most ``inbox.window`` pushes without an ack to the newest session of a
      platform (each sent again up to ``inbox.tries_max`` times, then the session is closed), and ``inbox.window`` +
      ``inbox.read_limit`` to another one, which then gets no more until it has acked. Events are not counted: whoever
      cannot write them drops them.
    """

    def push(self, session_id: int, pushes: list[Push]) -> None:
        """Messages, in order. The list and what is in it are shared: read only.

        A push with ``useq`` 0 is an early copy of an urgent message: it may be shown at once, is never acked, and
        may be dropped, because the message follows in its place. There are at most 16 per session at a time.
        """
        ...

    def event(self, session_id: int, event: Mapping[str, object]) -> None:
        """Something that is not stored: a receipt, presence, ``{"push": "resync"}``."""
        ...

    def close(self, session_id: int, reason: str) -> None:
        """The session is over: ``new_session``, ``no_ack``, ``resync``, ``shutdown``, or what a kick said."""
        ...
