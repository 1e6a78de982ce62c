"""Typing and presence: said to those who are there, and kept nowhere.

Nobody is told of everybody: a connection is told of the users that it asked about last, and only of those whom its
user may see. Who comes and goes quickly is not told at all.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pixiu.im import params as read
from pixiu.im.messages import member_of
from pixiu.im.presence import are_acquainted, may_see_presence
from pixiu.im.turns import Turns
from pixiu.model.errors import NotAllowed, PixiuError, RequestError
from pixiu.ports.scheduler import raise_apart

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pixiu.im.context import Context
    from pixiu.im.draft import Params
    from pixiu.ports.scheduler import Scheduler
    from pixiu.roles.gateway.needs import Done, LiveCaller, LiveGateway

__all__ = ["LiveActions"]

ONLINE, OFFLINE = "online", "offline"


class LiveActions:
    """``typing`` and ``presence`` of one gateway."""

    def __init__(
        self,
        gateway: LiveGateway,
        context: Context,
        scheduler: Scheduler,
        *,
        tell: Callable[[int, Mapping[str, object]], object],
        is_present: Callable[[int], bool],
        turns: Turns | None = None,
    ) -> None:
        """``tell`` and ``is_present`` are the relay's.

        ``turns`` are those of the proxy: each ``presence`` looks at up to ``presence_watch_max`` users.
        """
        self._turns = turns or Turns(context.clock, scheduler)
        self._deferred: dict[int, int] = {}
        """Requests that wait for a later turn, by connection."""
        self._settings = gateway.settings
        self._context = context
        self._scheduler = scheduler
        self._tell = tell
        self._is_present = is_present
        self._watchers: dict[int, dict[int, LiveCaller]] = {}
        self._hidden: dict[int, dict[int, LiveCaller]] = {}
        """Of the watchers of a user, those who were not allowed to see the user when they asked."""
        self._told: dict[int, bool] = {}  # of watched users, what their watchers know
        self._unsettled: set[int] = set()
        gateway.offer("typing", self.typing)
        gateway.offer("presence", self._presence_in_turn)
        gateway.watch(self._changed, self._left)

    # Typing.

    def typing(self, connection: LiveCaller, params: Params, done: Done) -> None:
        """Tell the other side, or a group's members who are there. What comes too often is told once."""
        read.check_known("typing", params, frozenset({"with", "group"}))
        if ("with" in params) == ("group" in params):
            raise RequestError("typing takes with, or group")
        now = self._context.clock.monotonic_us()
        actor = connection.actor.user
        name = self._context.directory.user_name(actor)
        if "with" in params:
            peer = self._context.directory.user(params["with"], "with")
            if peer == actor or not self._may_hear(peer, actor):
                raise NotAllowed("typing is told to contacts")
            listeners, event = [peer], {"push": "typing", "with": name}
        else:
            group = self._context.directory.group(params["group"])
            member_of(self._context, group, actor)
            listeners = self._listeners(group, actor)
            event = {"push": "typing", "group": self._context.directory.group_name(group), "from": name}
        if not connection.typed_us or now - connection.typed_us >= self._settings.typing_interval_ms * 1000:
            connection.typed_us = now
            for user in listeners:
                if self._is_present(user):
                    self._tell(user, event)
        done({})

    def _listeners(self, group: int, actor: int) -> list[int]:
        """Members of a group; of a large one nobody, as it would be told all the time."""
        stores = self._context.stores
        found = stores.groups.get(group)
        if found is None or found.is_large:
            return []
        return [member.user for member in stores.groups.members(group) if member.user != actor]

    def _may_hear(self, peer: int, actor: int) -> bool:
        """Are they contacts, in either direction, and does the peer want to hear of the actor?"""
        return not self._context.stores.contacts.is_blocked(peer, actor) and are_acquainted(self._context, actor, peer)

    # Presence.

    def _presence_in_turn(self, connection: LiveCaller, params: Params, done: Done) -> None:
        """Perform it now, or in a later turn of the event loop."""
        user, number = connection.actor.user, connection.number
        if self._turns.is_free(user):
            self._turns.run(partial(self.presence, connection, params, done))
        else:
            self._deferred[number] = self._deferred.get(number, 0) + 1
            self._turns.wait(user, partial(self._presence_later, connection, params, done))

    def _presence_later(self, connection: LiveCaller, params: Params, done: Done) -> None:
        waiting = self._deferred.pop(connection.number, 0)
        if not waiting:  # the client has left
            return
        if waiting > 1:
            self._deferred[connection.number] = waiting - 1
        try:
            self.presence(connection, params, done)
        except PixiuError as error:
            done(error)
        except Exception as error:  # noqa: BLE001 - the loop notes it, and others have their turns
            raise_apart(self._scheduler.soon, error)
            done(PixiuError("something is wrong on this side; it has been noted"))

    def presence(self, connection: LiveCaller, params: Params, done: Done) -> None:
        """Which of these users are online, and from now on who comes and goes. Without users: all contacts.

        The list replaces the one before. Contacts whom the user may not see are left out of the answer. They are
        followed all the same, and shown once that is allowed: after they add the user and ask for presence, or come
        or go.
        """
        read.check_known("presence", params, frozenset({"users"}))
        most = self._settings.presence_watch_max
        directory = self._context.directory
        actor = connection.actor.user
        if params.get("users") is None:
            wanted = [peer for peer, _ in self._context.stores.contacts.page(actor, most)]
        else:
            names = [read.public_id_text(each, "users") for each in read.objects(params, "users", count_max=most)]
            numbers = [directory.known_user(name) for name in names]
            wanted = [each for each in dict.fromkeys(numbers) if each is not None and self._is_contact(actor, each)]
        allowed = {peer for peer in wanted if may_see_presence(self._context, actor, peer)}
        self._watch(connection, wanted, allowed)
        self._show_to(actor, allowed)
        done({"states": {directory.user_name(peer): self._state(peer) for peer in wanted if peer in allowed}})

    def _state(self, user: int) -> str:
        return ONLINE if self._is_present(user) else OFFLINE

    def _watch(self, connection: LiveCaller, users: list[int], allowed: set[int]) -> None:
        self._unwatch(connection)
        connection.watched = tuple(users)
        for user in users:
            self._watchers.setdefault(user, {})[connection.number] = connection
            self._told.setdefault(user, self._is_present(user))
            if user not in allowed:
                self._hidden.setdefault(user, {})[connection.number] = connection

    def _show_to(self, user: int, peers: set[int]) -> None:
        """The user sees these peers, so they see the user: tell those who asked when that was not so."""
        waiting = self._hidden.get(user)
        if not waiting or not self._is_present(user):
            return
        for connection in [each for each in waiting.values() if each.actor.user in peers]:
            if may_see_presence(self._context, connection.actor.user, user):
                self._reveal(user, connection.number)
                connection.event(connection.actor.session_id, self._event(user))

    def _reveal(self, user: int, number: int) -> None:
        waiting = self._hidden.get(user)
        if waiting is not None and waiting.pop(number, None) is not None and not waiting:
            del self._hidden[user]

    def _event(self, user: int) -> dict[str, object]:
        return {"push": "presence", "user": self._context.directory.user_name(user), "state": self._state(user)}

    def _unwatch(self, connection: LiveCaller) -> None:
        for user in connection.watched:
            self._reveal(user, connection.number)
            watchers = self._watchers.get(user)
            if watchers is not None and watchers.pop(connection.number, None) is not None and not watchers:
                del self._watchers[user]
                self._told.pop(user, None)
        connection.watched = ()

    def _left(self, connection: LiveCaller) -> None:
        self._deferred.pop(connection.number, None)
        self._unwatch(connection)
        self._changed(connection)

    def _changed(self, connection: LiveCaller) -> None:
        """A session of a user has come or gone: look a little later whether that changes anything."""
        user = connection.actor.user
        if user in self._watchers and user not in self._unsettled:
            self._unsettled.add(user)
            self._scheduler.after(self._settings.presence_delay_ms, lambda: self._settle(user))

    def _settle(self, user: int) -> None:
        self._unsettled.discard(user)
        watchers = self._watchers.get(user)
        is_present = self._is_present(user)
        if not watchers or self._told.get(user) == is_present:
            return
        self._told[user] = is_present
        event = self._event(user)
        for connection in list(watchers.values()):
            try:
                if may_see_presence(self._context, connection.actor.user, user):
                    self._reveal(user, connection.number)
                    connection.event(connection.actor.session_id, event)
            except PixiuError:  # a store is down: say nothing rather than too much
                continue

    def _is_contact(self, user: int, peer: int) -> bool:
        return self._context.stores.contacts.linked_at(user, peer) is not None
