"""A session as an admin sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pixiu.im.draft import Answer
    from pixiu.model.message import PublicNames
    from pixiu.model.session import Session

__all__ = ["session_view"]


def session_view(session: Session, names: PublicNames) -> Answer:
    """Who, with what, where."""
    return {
        "session_id": str(session.session_id),
        "user": names.user_name(session.user),
        "platform": session.platform,
        "device": session.device,
        "number": session.number,
        "gateway": session.gateway,
    }
