"""A range of ids that a client knows it lacks.

The server says it, the client keeps it beside its messages and closes it page by page: a page of history below
``before`` either reaches ``after``, and the gap is gone, or moves ``before`` down to its own oldest id.
"""

from dataclasses import dataclass

__all__ = ["Gap"]


@dataclass(frozen=True, slots=True)
class Gap:
    """Messages behind ``after`` and below ``before`` were not sent; both ends are known to the client."""

    after: int
    before: int
    is_trimmed: bool = False
    """They are gone for good: retention, or an ack by another session of the platform, removed them."""

    def close(self, oldest: int, *, reaches_end: bool) -> "Gap | None":
        """What is left of it after a page that went back from ``before`` to ``oldest``."""
        if reaches_end or oldest <= self.after:
            return None
        return Gap(self.after, min(self.before, oldest), self.is_trimmed)

    def view(self, place: str, name: str) -> dict[str, object]:
        """As a client is told: ``place`` is with, group or inbox."""
        shown: dict[str, object] = {place: name, "after": str(self.after), "before": str(self.before)}
        if self.is_trimmed:
            shown["trimmed"] = True
        return shown
