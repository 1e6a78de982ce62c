"""Nobody who is blocked, muted or not a member gets through.

Rights are those at the check. A client knows them only as far as it was answered: what holds for certain holds from the
answer to the change that made it so until the next change of it was asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.testing.queue.oracle import Violation

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.testing.messaging.requests import Asked
    from pixiu.testing.messaging.world import World

__all__ = ["check_own_writes", "check_rights"]


def check_rights(world: World) -> None:
    """Raise if a send was accepted that was certainly not allowed."""
    for asked in world.clients.asked:
        if asked.outcome != "ok" or asked.user < 0:
            continue
        if asked.action == "send":
            _check_send(world, asked, world.script.names)
        elif asked.action == "gsend":
            _check_gsend(world, asked, world.script.names)


def _check_send(world: World, asked: Asked, names: tuple[str, ...]) -> None:
    owner, peer = asked.params["to"], names[asked.user]

    def is_about(other: Asked, action: str) -> bool:
        return other.action == action and names[other.user] == owner and other.params["user"] == peer

    if owner != peer and _certainly(world, asked, lambda a: is_about(a, "block"), lambda a: is_about(a, "unblock")):
        raise Violation(f"{peer} is blocked by {owner}, and {asked.params} was accepted")


def _check_gsend(world: World, asked: Asked, names: tuple[str, ...]) -> None:
    group, user = asked.params["group"], names[asked.user]

    def has_quit(other: Asked) -> bool:
        return other.action == "quit" and names[other.user] == user and other.params["group"] == group

    if _certainly(world, asked, has_quit, lambda a: _may_join(a, group, user, names)):
        raise Violation(f"{user} has left {group}, and {asked.params} was accepted")


def check_own_writes(world: World) -> None:
    """Whoever changed something reads it: the answer to ``contact`` shows the contact."""
    for asked in world.clients.asked:
        if asked.outcome != "ok" or asked.action != "contact":
            continue
        rows = asked.result["contacts"]
        assert isinstance(rows, list)
        peer = asked.params["user"]
        if peer in [row.get("user") for row in rows]:
            continue
        if not any(
            each.action == "unlink" and each.user == asked.user and each.params["user"] == peer
            for each in world.clients.asked
        ):
            raise Violation(f"{asked.params} was answered with contacts {rows}")


def _may_join(asked: Asked, group: object, user: str, names: tuple[str, ...]) -> bool:
    """Could this request have made the user a member?"""
    if asked.params.get("group") != group:
        return False
    if asked.action == "join":
        return names[asked.user] == user
    return asked.action in ("manage", "create_group")


def _certainly(world: World, asked: Asked, takes: Callable[[Asked], bool], gives: Callable[[Asked], bool]) -> bool:
    """Was the right certainly gone while this was asked and answered?"""
    others = [each for each in world.clients.asked if each.user >= 0]
    for taken in others:
        if taken.outcome == "ok" and takes(taken) and taken.answered_ms < asked.first_sent_ms:
            given = [each for each in others if gives(each) and _may_act_after(each, taken, asked)]
            if not given:
                return True
    return False


def _may_act_after(given: Asked, taken: Asked, asked: Asked) -> bool:
    """Could ``given`` have taken effect behind ``taken`` and before ``asked`` was answered?"""
    is_over = given.outcome not in ("open", "unknown") and 0 < given.answered_ms <= taken.first_sent_ms
    return not is_over and given.first_sent_ms <= asked.answered_ms
