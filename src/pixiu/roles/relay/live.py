"""What a relay keeps of those who are connected. Nothing here outlives their connections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.machines.delivery import TimerKind

if TYPE_CHECKING:
    from collections.abc import Collection

    from pixiu.machines.delivery import Delivery
    from pixiu.model.session import Session
    from pixiu.roles.relay.sink import Sink

__all__ = ["LiveInbox", "LiveSession"]


class LiveSession:
    """A session, and where its pushes go."""

    __slots__ = (
        "early", "inbox", "is_lagging", "is_loaded", "previous", "resumed", "session", "since", "sink", "through",
        "unacked",
    )  # fmt: skip

    def __init__(self, session: Session, sink: Sink, inbox: LiveInbox, since: int = 0) -> None:
        self.session = session
        self.since = since
        """Messages with a lower number had waited before it came."""
        self.sink = sink
        self.inbox = inbox
        self.through = 0
        """The last useq pushed to it."""
        self.previous = 0
        """The last useq that was kept from it because it lagged."""
        self.unacked = 0
        """Pushes on their way to it. Not counted for the newest session, whose machine knows."""
        self.early: Collection[int] = ()
        """The useqs of urgent messages that it got early copies of; those up to ``through`` no longer count."""
        self.is_loaded = False
        """A delivery has begun since it logged in. Before that it gets no copies: they would hide its backlog."""
        self.resumed = (0, 0)
        """The cursor that it came with, and what it holds by that: more, if it has sent something just before."""
        self.is_lagging = False
        """Not the newest session, and too far behind: it gets no pushes until it has acked what it has."""

    def acked(self, through: int) -> None:
        """It holds everything through here."""
        self.unacked = min(self.unacked, max(self.through - through, 0))


class LiveInbox:
    """An inbox whose platform has at least one session."""

    __slots__ = (
        "delivery", "due", "key", "listed", "platform", "sessions", "timed_ack", "timed_push", "timed_us", "timer",
    )  # fmt: skip

    def __init__(self, user: int, platform: str, delivery: Delivery) -> None:
        self.key = (user, platform)
        self.platform = platform
        self.delivery = delivery
        self.sessions: list[LiveSession] = []
        """Newest first."""
        self.timer = TimerKind.REQUEST
        self.due = 0  # the tick at which the timer fires, 0 for none
        self.listed = 0  # the tick of the slot that this inbox lies in, 0 for none
        self.timed_push = 0  # the useq whose push is timed, 0 for none
        self.timed_ack = 0  # the useq whose ack is timed, 0 for none
        self.timed_us = 0  # when it was applied, or pushed
