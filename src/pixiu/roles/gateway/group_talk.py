"""What is said live in the room of a group, in a cluster, and is heard by users of all partitions.

The speaker's carrier checks and numbers it, and the gateway passes it on to the carriers of the other partitions, each
of which tells its own users.

Live talk is answered by the speaker's carrier alone. Reliable talk is answered when every partition has it; if one
cannot be reached, the speaker is told so: some have heard it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pixiu.model.errors import PixiuError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pixiu.im.draft import Actor, Answer, Params
    from pixiu.roles.gateway.carriers import CarrierLinks, Partition
    from pixiu.roles.gateway.needs import Done

__all__ = ["GroupTalk"]

RETRY_MS = 1_000


class GroupTalk:
    """``enter``, ``leave`` and ``say`` for rooms of groups, whose audience is at several carriers."""

    def __init__(self, carriers: CarrierLinks) -> None:
        self._carriers = carriers

    def act(self, actor: Actor, action: str, params: Params, done: Done) -> None:
        """At the user's own carrier; what is said goes on from there."""
        if action == "say":
            done = partial(self._said, actor, dict(params), done)
        self._carriers.act(actor, action, params, done)

    def _said(self, actor: Actor, params: Mapping[str, object], done: Done, answer: Answer | PixiuError) -> None:
        home = self._carriers.home_of(actor.session_id)
        others = [each for each in self._carriers.partitions.values() if each is not home]
        if isinstance(answer, PixiuError) or not others:
            done(answer)
            return
        told = {**params, "message_id": answer["message_id"], "at": answer["at"]}
        gathered = _Gathered(answer, len(others), done, waits=params.get("class") == "reliable")
        for each in others:
            self._tell(each, actor, told, gathered)

    @staticmethod
    def _tell(at: Partition, actor: Actor, told: Params, gathered: _Gathered) -> None:
        at.link.call(actor, "say", told, gathered.answered)


class _Gathered:
    """The answers of the other carriers."""

    def __init__(self, answer: Answer, missing: int, done: Done, *, waits: bool) -> None:
        self._answer = answer
        self._missing = missing
        self._failed: PixiuError | None = None
        self._done = done
        self._waits = waits
        if not waits:
            done(answer)

    def answered(self, answer: Answer | PixiuError) -> None:
        if isinstance(answer, PixiuError):
            self._failed = answer
        self._missing -= 1
        if self._missing or not self._waits:
            return
        if self._failed is not None:
            text = f"some of the group cannot be reached now ({self._failed}); others have heard it"
            self._done(Unavailable(text, retry_after_ms=RETRY_MS))
        else:
            self._done(self._answer)
