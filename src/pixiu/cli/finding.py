"""What ``pixiu doctor`` finds."""

from typing import Literal, NamedTuple

__all__ = ["Check", "State"]

State = Literal["ok", "warn", "fail"]


class Check(NamedTuple):
    """One finding."""

    name: str
    state: State
    text: str
    advice: str = ""
    """What to do next; empty if nothing."""
