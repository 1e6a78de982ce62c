"""Why a task was not done, and what is left of it."""

from typing import NamedTuple

__all__ = ["Failure"]


class Failure(NamedTuple):
    """What a performer says of a task that it could not do, or not all of it."""

    reason: str
    platforms: tuple[str, ...] = ()
    """Of a notification: those that are still to be told."""
    code: str = "unavailable"
    is_final: bool = False
    """Trying again would give the same."""
    devices: tuple[str, ...] = ()
    """Of a notification for phones: those of the platforms that are still to be told."""
