"""From HTTP's coroutines to the roles' callbacks: who asks, and what they ask for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from pixiu.im.draft import Actor, Answer, Params, UnknownUsers
from pixiu.model.errors import NotAllowed, NotFound, PixiuError, Unauthenticated

if TYPE_CHECKING:
    from pixiu.ports.authentication import Authentication, Identity

__all__ = ["Acts", "Bridge", "FindUser", "answered"]

FindUser = Callable[[str, Callable[[int | PixiuError], object]], object]
"""The number behind a public id, told later; ``Proxy.find_user``."""


class Acts(Protocol):
    """Does what a user asks for; ``Messaging.act``."""

    def __call__(
        self, actor: Actor, action: str, params: Params, done: Callable[[Answer | PixiuError], object]
    ) -> object:
        """Tell ``done`` once, now or later."""
        ...


class Bridge:
    """One caller at a time: a token becomes an actor, an action becomes an answer."""

    def __init__(self, act: Acts, find_user: FindUser, authentication: Authentication) -> None:
        self._act = act
        self._find_user = find_user
        self._authentication = authentication

    async def identify(self, authorization: str) -> Actor:
        """Who sends this ``Authorization`` header; raises ``Unauthenticated``."""
        kind, _, token = authorization.partition(" ")
        if authorization and kind.lower() != "bearer":
            raise Unauthenticated("only bearer tokens are taken: Authorization: Bearer TOKEN")
        identity: Identity = await answered(lambda done: self._authentication.authenticate(token.strip(), done))
        try:
            number: int = await answered(lambda done: self._find_user(identity.user, done))
        except NotFound as error:
            if not identity.is_admin or not isinstance(error, UnknownUsers):
                raise Unauthenticated(f"the token names a user who is not here: {error}") from None
            number = 0  # a publisher, who is nobody's contact
        return Actor(number, identity.platform, identity.device, 0, identity.is_admin)

    async def identify_admin(self, authorization: str) -> Actor:
        """The same for what only admins may do."""
        actor = await self.identify(authorization)
        if not actor.is_admin:
            raise NotAllowed("this is for admins; the token is not an admin's")
        return actor

    async def act(self, actor: Actor, action: str, params: Params) -> Answer:
        """Do it; raises what went wrong."""
        answer: Answer = await answered(lambda done: self._act(actor, action, params, done))
        return answer


async def answered(ask: Callable[[Callable[[Any], object]], object]) -> Any:
    """Wait for a callback; raise what it brings if that is an error. Whoever stops waiting hears no more of it."""
    waiting: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def done(answer: object) -> None:
        if waiting.done():
            return
        if isinstance(answer, PixiuError):
            waiting.set_exception(answer)
        else:
            waiting.set_result(answer)

    ask(done)
    return await waiting
