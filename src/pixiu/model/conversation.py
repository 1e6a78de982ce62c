"""Where a message is said: between two users, or in a group. As text it is ``u:<number>`` or ``g:<number>``."""

from typing import NamedTuple

__all__ = ["Conversation", "Direct", "InGroup"]


class Direct(NamedTuple):
    """With one other user (or with oneself), as seen by the owner of a list."""

    peer: int

    def __str__(self) -> str:
        return f"u:{self.peer}"


class InGroup(NamedTuple):
    """In a group."""

    group: int

    def __str__(self) -> str:
        return f"g:{self.group}"


Conversation = Direct | InGroup
