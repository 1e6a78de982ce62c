"""What was said, as streams that programs of others read (seed 003): one per user, one per group."""

from collections.abc import Iterable, Sequence
from typing import Protocol

__all__ = ["Streams"]


class Streams(Protocol):
    """Written by the lane of timelines, each record once. Pixiu itself reads none of it."""

    def say_to_user(self, event_id: int, message_id: int, from_user: int, to: int, chat: bytes) -> None:
        """A message: its body for the receiver, a pointer to it for the sender."""
        ...

    def say_in_group(
        self, event_id: int, message_id: int, from_user: int, group: int, members: Sequence[int], chat: bytes
    ) -> None:
        """A message of a group: its body there, a pointer to it for each of the ``members``."""
        ...

    def unsay(self, message_id: int, *, user: int = 0, group: int = 0) -> None:
        """A body leaves the stream of its receiver, or of its group; pointers to it lead nowhere from now on."""
        ...

    def erase(self, user: int, *, peers: Iterable[int] = (), groups: Iterable[int] = ()) -> None:
        """What a user has said leaves these streams, and the user's own stream goes."""
        ...
