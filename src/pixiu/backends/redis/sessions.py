"""``Sessions`` of one node, shown in Redis as seed 000 has them.

A session is a connection to this node and ends with its process: memory is the truth, and no login waits for Redis.
What has changed is written a little later, the users of many logins in one round trip, each user's hash as a whole: so
a field that somebody else put there goes with the next login or logout.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from pixiu.backends.memory.sessions import MemorySessions
from pixiu.model.errors import Unavailable

if TYPE_CHECKING:
    from pixiu.backends.redis.connection import RedisClient
    from pixiu.backends.redis.layout import Keys
    from pixiu.backends.redis.server import Command
    from pixiu.model.session import Session

__all__ = ["WRITE_MAX", "RedisSessions"]

WRITE_MAX = 1000
"""Users written in one round trip: a hundred thousand who leave at once do not hold up others."""


class RedisSessions(MemorySessions):
    """Sessions by user. Numbers and epochs start above ``numbers_after``."""

    def __init__(self, client: RedisClient, keys: Keys, *, numbers_after: int = 0) -> None:
        super().__init__(numbers_after=numbers_after)
        self._client = client
        self._keys = keys
        self._unwritten: dict[int, None] = {}
        """Users in the order of their first change: at most as many as have ever logged in to this process."""
        self._is_swept = False

    @property
    def unwritten(self) -> int:
        """How many users have changed since they were written."""
        return len(self._unwritten)

    def add(self, session: Session) -> None:
        """A login."""
        super().add(session)
        self._unwritten[session.user] = None

    def remove(self, user: int, session_id: int) -> bool:
        """A logout of exactly this session."""
        self._unwritten[user] = None
        return super().remove(user, session_id)

    def begin_epoch(self, gateway: str) -> int:
        """A gateway starts, or returns: its older sessions are dead from now on."""
        self._all_gone(gateway)
        return super().begin_epoch(gateway)

    def end_epoch(self, gateway: str) -> None:
        """A gateway is dead: so are its sessions."""
        self._all_gone(gateway)
        super().end_epoch(gateway)

    def write(self) -> None:
        """Write some of what has changed. A Redis that is down gets it later."""
        try:
            if not self._is_swept:
                self._sweep()
            users = list(islice(self._unwritten, WRITE_MAX))
            if users:
                self._client.ask(self._commands(users))
        except Unavailable:
            return
        for user in users:
            del self._unwritten[user]

    def write_all_again(self) -> None:
        """Redis has lost what it had."""
        self._unwritten |= dict.fromkeys(user for table in self._tables.values() for user in table)

    def close(self) -> None:
        """The node stops: nobody is connected any more."""
        for gateway in list(self._epochs):
            self.end_epoch(gateway)
        while self._unwritten:
            before = len(self._unwritten)
            self.write()
            if len(self._unwritten) == before:
                return

    def _all_gone(self, gateway: str) -> None:
        self._unwritten |= dict.fromkeys(self._tables.get(self._epochs.get(gateway, 0), ()))

    def _sweep(self) -> None:
        """A life before may have ended without a word: what it left goes."""
        members = self._client.ask([("SMEMBERS", self._keys.present)])[0]
        self._unwritten |= dict.fromkeys(map(int, members))
        self._is_swept = True

    def _commands(self, users: list[int]) -> list[Command]:
        keys = self._keys
        commands: list[Command] = []
        gone: list[int] = []
        for user in users:
            live = self.of(user)
            if not live:
                gone.append(user)
                continue
            # gomsg's value is "platform-gateway". The gateway, after the last dash, has none of its own.
            fields = [
                part
                for session in live
                for part in (session.session_id, f"{session.platform}-{session.gateway.replace('-', '_')}")
            ]
            key = keys.sessions % user
            commands += ("SADD", keys.present, user), ("DEL", key), ("HSET", key, *fields)
        if gone:
            names = [keys.sessions % user for user in gone]
            if self._client.is_cluster:
                commands += [("DEL", name) for name in names]
            else:
                commands.append(("DEL", *names))
            commands.append(("SREM", keys.present, *gone))
        return commands
