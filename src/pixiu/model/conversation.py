"""Where a message is said: between two users, or in a group. As text it is ``u:<number>`` or ``g:<number>``.

Users and groups are numbered apart, so the same number may name one of each. Two named tuples with the same content
are equal whatever their classes; the ``kind`` keeps them apart as keys of a dict.
"""

from typing import Literal, NamedTuple

__all__ = ["Conversation", "Direct", "InGroup"]


class Direct(NamedTuple):
    """With one other user (or with oneself), as seen by the owner of a list."""

    peer: int
    kind: Literal["u"] = "u"

    def __str__(self) -> str:
        return f"u:{self.peer}"


class InGroup(NamedTuple):
    """In a group."""

    group: int
    kind: Literal["g"] = "g"

    def __str__(self) -> str:
        return f"g:{self.group}"


Conversation = Direct | InGroup
