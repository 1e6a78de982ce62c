"""Requests of clients: sent through one door or another, sent again when no answer comes, and remembered.

A request with a send_id is repeated with the same send_id, through the same session, another one of the same user, or
over HTTP, up to a bound. Whatever the answers are, they must agree.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pixiu.model.errors import PixiuError
from pixiu.testing.messaging.wires import HTTP, NODE
from pixiu.testing.queue.oracle import Violation

if TYPE_CHECKING:
    from pixiu.testing.messaging.devices import Device
    from pixiu.testing.messaging.world import World

__all__ = ["ADMIN", "Asked", "Clients"]

ADMIN = -1
"""The user number of a script for whoever publishes, and is no user."""

LATER = ("unavailable", "busy", "rate_limited")


@dataclass(slots=True, eq=False)
class Asked:
    """One thing that someone wants, and what came of it."""

    number: int
    user: int
    """Whose, as numbered in the script; ADMIN for a publisher."""
    device: Device | None
    action: str
    params: dict[str, object]
    send_id: str = ""
    tries_max: int = 1
    tries: int = 0
    first_sent_ms: float = 0.0
    answered_ms: float = 0.0
    outcome: str = "open"
    """open, ok, unknown (no answer), or the code of a refusal."""
    result: dict[str, object] = field(default_factory=dict)

    @property
    def message_ids(self) -> list[int]:
        """What it was accepted as."""
        if "message_ids" in self.result:
            ids = self.result["message_ids"]
            assert isinstance(ids, list)
            return [int(each) for each in ids]
        return [int(str(self.result["message_id"]))] if "message_id" in self.result else []


class Clients:
    """Everyone's requests."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.asked: list[Asked] = []

    def ask(
        self,
        user: int,
        action: str,
        params: dict[str, object],
        *,
        device: Device | None = None,
        send_id: str = "",
        tries_max: int | None = None,
    ) -> Asked:
        """Ask, from a device where that is possible."""
        if send_id:
            params = {**params, "send_id": send_id}
        bound = tries_max if tries_max is not None else self._world.weather.tries_max if send_id else 1
        asked = Asked(len(self.asked), user, device, action, params, send_id, bound)
        self.asked.append(asked)
        self._send(asked)
        return asked

    def sync(self, device: Device) -> None:
        """A device was told that it may have missed something."""
        self.ask(device.plan.user, "sync", {"cursor": str(device.last)}, device=device)

    def _send(self, asked: Asked) -> None:
        world = self._world
        asked.tries += 1
        asked.outcome = "open" if asked.outcome != "ok" else "ok"
        if asked.tries == 1:
            asked.first_sent_ms = world.now_ms
        device = self._door(asked)
        world.note("ask", asked.number, asked.action, asked.send_id, device.name if device else HTTP)
        if device is not None:
            device.unanswered += 1
            device.ask(asked.number, asked.action, asked.params)
        else:
            name = "" if asked.user == ADMIN else world.script.names[asked.user]
            message = ("http", asked.number, name, asked.action, asked.params)
            world.wires.send(HTTP, NODE, world.next_connection(), message)
        world.outside.after(world.weather.answer_ms, self._look, asked, asked.tries)

    def _door(self, asked: Asked) -> Device | None:
        """Through which session, or None for HTTP."""
        rng = self._world.rng
        device = asked.device
        if device is not None and device.is_online and (asked.tries == 1 or rng.random() < 0.5):
            return device
        others = [each for each in self._world.devices if each.plan.user == asked.user and each.is_online]
        return rng.choice(others) if others and rng.random() < 0.7 else None

    def _look(self, asked: Asked, tries: int) -> None:
        """Has an answer come by now?"""
        if asked.outcome != "open" or asked.tries != tries:
            return
        device = asked.device
        if device is not None and device.is_online and device.unanswered > 3 and not self._world.weather.beat_ms:
            device.reconnect()
        if asked.tries < asked.tries_max:
            self._send(asked)
        else:
            asked.outcome = "unknown"

    def answered(self, number: int, answer: object) -> None:
        """An answer has come, maybe a second one, maybe late."""
        world, asked = self._world, self.asked[number]
        if isinstance(answer, PixiuError):
            world.note("refused", number, answer.code)
            if answer.code == "internal":
                raise Violation(f"{asked.action} {asked.params} failed: {answer!r}")
            if asked.outcome == "ok":
                return
            if answer.code in LATER and asked.tries < asked.tries_max:
                world.outside.after(world.weather.answer_ms, self._again, asked, asked.tries)
                return
            asked.outcome = answer.code
            asked.answered_ms = world.now_ms
            return
        assert isinstance(answer, dict), answer
        first, asked.result = asked.result, answer
        world.note("done", number, asked.message_ids)
        if asked.outcome != "ok":
            asked.answered_ms = world.now_ms
        elif first.get("message_id") != answer.get("message_id") or first.get("message_ids") != answer.get(
            "message_ids"
        ):
            raise Violation(f"I2: {asked.action} {asked.send_id!r} was accepted as {first} and as {answer}")
        asked.outcome = "ok"

    def _again(self, asked: Asked, tries: int) -> None:
        if asked.outcome == "open" and asked.tries == tries:
            self._send(asked)

    @property
    def open_count(self) -> int:
        """How many still wait for an answer."""
        return sum(asked.outcome == "open" for asked in self.asked)
