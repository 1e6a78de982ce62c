"""What was written since the last commit, laid over Redis.

Reads look here first. Pending is what will be, not what was done: a field, a member, a value, or that it is gone. So a
commit that failed without an answer is sent again with all that came since, whether Redis has applied it or not.

Tables on the hot path keep their changes as objects and put them here only when a commit asks (``Table.save``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from pixiu.model.errors import PixiuError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pixiu.backends.redis.connection import RedisClient
    from pixiu.backends.redis.server import Command

__all__ = ["PENDING_MAX", "Overlay", "Table"]

PENDING_MAX = 64 * 2**20
"""Bytes that wait for a Redis that takes no commits; beyond this, lanes stop before the next record."""

_ARGUMENTS_MAX = 1000
"""Of one command: Lua passes so many on, and not many more."""

_BULKY = frozenset({"RPUSH", "RECENT"})
"""Commands that carry bodies; what others carry is about as long. A stream's tells the length of its body by itself."""

Value = bytes | str | int


class Table(Protocol):
    """A store that keeps its changes as objects until a commit."""

    def save(self) -> None:
        """Put every change into the overlay, which answers for them from here on."""
        ...

    def written(self) -> None:
        """It is in Redis: memory may be let go."""
        ...

    def forget(self) -> None:
        """Redis has lost what it had: forget everything, and begin with what it has now."""
        ...


class Overlay:
    """Values, fields and members that wait for a commit."""

    def __init__(self, client: RedisClient) -> None:
        self.client = client
        self._strings: dict[str | bytes, Value | None] = {}
        self._hashes: dict[str, dict[str, Value | None]] = {}
        self._sets: dict[str, dict[str, bool]] = {}
        self._zsets: dict[str, dict[str, float | None]] = {}
        self._steps: list[Command] = []
        """Commands in their order, for what is neither of these."""
        self._tables: list[Table] = []
        self.pending_bytes = 0
        """About how much waits here."""
        self.is_full = False
        self.when_late: Callable[[], object] | None = None
        """While a commit is under way, what is written now is not of it: called first, to see its end."""

    def attach(self, table: Table) -> None:
        """Ask this table too when there is a commit."""
        self._tables.append(table)

    def check_room(self) -> None:
        """Before more is taken. Raises ``Unavailable`` while Redis takes no commits and much waits for it."""
        if self.is_full:
            raise Unavailable(f"{self.pending_bytes >> 20} MiB wait for Redis, which takes none of them")

    # Reads.

    def get(self, key: str | bytes) -> bytes | None:
        """A value."""
        return self.get_many([key])[0]

    def get_many(self, keys: Sequence[str | bytes]) -> list[bytes | None]:
        """The values of many keys, each in its place, in one round trip."""
        pending = self._strings
        below = [key for key in keys if key not in pending]
        found: dict[str | bytes, bytes | None] = {}
        if below:
            if self.client.is_cluster:
                values = self.client.ask([("GET", key) for key in below])
            else:
                values = self.client.ask([("MGET", *below)])[0]
            found = dict(zip(below, values, strict=True))
        return [_bytes(pending[key]) if key in pending else found[key] for key in keys]

    def field(self, key: str, field: str) -> bytes | None:
        """One field of a hash."""
        fields = self._hashes.get(key)
        if fields is not None and field in fields:
            return _bytes(fields[field])
        value: bytes | None = self.client.ask([("HGET", key, field)])[0]
        return value

    def fields(self, keys: Sequence[str]) -> list[dict[str, bytes]]:
        """All fields of some hashes, in one round trip."""
        answers = self.client.ask([("HGETALL", key) for key in keys]) if keys else []
        found: list[dict[str, bytes]] = []
        for key, answer in zip(keys, answers, strict=True):
            names = [name.decode() for name in answer[::2]]
            fields = dict(zip(names, answer[1::2], strict=True))
            for name, value in self._hashes.get(key, {}).items():
                if value is None:
                    fields.pop(name, None)
                else:
                    fields[name] = _bytes(value) or b""
            found.append(fields)
        return found

    def members(self, key: str) -> set[str]:
        """All members of a set."""
        found = {member.decode() for member in self.client.ask([("SMEMBERS", key)])[0]}
        for member, is_in in self._sets.get(key, {}).items():
            if is_in:
                found.add(member)
            else:
                found.discard(member)
        return found

    def scores(self, keys: Sequence[str]) -> list[dict[str, int]]:
        """All members of sorted sets, with their scores, in one round trip."""
        answers = self.client.ask([("ZRANGE", key, 0, -1, "WITHSCORES") for key in keys]) if keys else []
        return [self._with_pending(key, answer) for key, answer in zip(keys, answers, strict=True)]

    def scores_through(self, key: str, through: int) -> dict[str, int]:
        """The members of a sorted set with scores up to here."""
        answer = self.client.ask([("ZRANGEBYSCORE", key, "-inf", through, "WITHSCORES")])[0]
        found = self._with_pending(key, answer)
        return {member: score for member, score in found.items() if score <= through}

    def names_after(self, key: str, after: str, limit: int) -> list[str]:
        """Members of a sorted set whose scores are all 0, as text, behind ``after``: at least ``limit``, or all."""
        low = f"({after}" if after else "-"
        answer = self.client.ask([("ZRANGEBYLEX", key, low, "+", "LIMIT", 0, limit)])[0]
        found = {member.decode() for member in answer}
        pending = self._zsets.get(key, {})
        found.update(member for member in pending if member > after)
        if len(answer) == limit:
            last = answer[-1].decode()
            found = {member for member in found if member <= last}
        return sorted(member for member in found if pending.get(member, 0) is not None)

    # Writes.

    def put(self, key: str | bytes, value: Value | None) -> None:
        """Set a value; None removes it."""
        if self.when_late is not None:
            self.when_late()
        self._strings[key] = value
        self.pending_bytes += len(key) + (len(value) if isinstance(value, (bytes, str)) else 16)

    def put_field(self, key: str, field: str, value: Value | None) -> None:
        """Set a field of a hash; None removes it."""
        if self.when_late is not None:
            self.when_late()
        fields = self._hashes.get(key)
        if fields is None:
            fields = self._hashes[key] = {}
        fields[field] = value
        self.pending_bytes += 24 + len(field) + (len(value) if isinstance(value, (bytes, str)) else 8)

    def put_member(self, key: str, member: str, *, is_in: bool) -> None:
        """Put a member into a set, or take it out."""
        if self.when_late is not None:
            self.when_late()
        self._sets.setdefault(key, {})[member] = is_in
        self.pending_bytes += 24 + len(member)

    def put_score(self, key: str, member: str, score: float | None) -> None:
        """Put a member into a sorted set; None takes it out."""
        if self.when_late is not None:
            self.when_late()
        members = self._zsets.get(key)
        if members is None:
            members = self._zsets[key] = {}
        members[member] = score
        self.pending_bytes += 32 + len(member)

    def step(self, *command: Any) -> None:
        """A command that must keep its place among others like it, and changes nothing when it is repeated."""
        if self.when_late is not None:
            self.when_late()
        self._steps.append(command)
        if command[0] in _BULKY:
            self.pending_bytes += 32 + sum(len(part) if isinstance(part, (bytes, str)) else 8 for part in command)
        else:
            self.pending_bytes += 32 + 24 * len(command)

    def put_step(self, command: Command, size: int) -> None:
        """The same, by whoever knows about how long it is."""
        if self.when_late is not None:
            self.when_late()
        self._steps.append(command)
        self.pending_bytes += 32 + 24 * len(command) + size

    def commands(self) -> Iterable[Command]:
        """All that waits, in the order in which it is applied."""
        strings = self._strings
        gone = [key for key, value in strings.items() if value is None]
        if self.client.is_cluster:
            yield from (("SET", key, value) for key, value in strings.items() if value is not None)
            yield from (("DEL", key) for key in gone)
        else:
            puts: list[Any] = [part for pair in strings.items() if pair[1] is not None for part in pair]
            yield from _in_parts("MSET", "", puts)
            yield from _in_parts("DEL", "", gone)
        for name, fields in self._hashes.items():
            puts = [part for field, value in fields.items() if value is not None for part in (field, value)]
            yield from _in_parts("HSET", name, puts)
            yield from _in_parts("HDEL", name, [field for field, value in fields.items() if value is None])
        for name, members in self._sets.items():
            yield from _in_parts("SADD", name, [member for member, is_in in members.items() if is_in])
            yield from _in_parts("SREM", name, [member for member, is_in in members.items() if not is_in])
        for name, scores in self._zsets.items():
            pairs = [part for member, score in scores.items() if score is not None for part in (score, member)]
            yield from _in_parts("ZADD", name, pairs)
            yield from _in_parts("ZREM", name, [member for member, score in scores.items() if score is None])
        yield from self._steps

    def save(self) -> None:
        """Let the tables put their changes here."""
        for table in self._tables:
            table.save()

    def written(self) -> None:
        """A commit has succeeded."""
        self._clear()
        for table in self._tables:
            table.written()

    def refused(self, error: PixiuError) -> None:
        """A commit has failed: all stays as it is."""
        self.is_full = isinstance(error, Unavailable) and self.pending_bytes > PENDING_MAX

    def forget(self) -> None:
        """Redis has lost what it had."""
        self._clear()
        for table in self._tables:
            table.forget()

    def _clear(self) -> None:
        for part in (self._strings, self._hashes, self._sets, self._zsets, self._steps):
            part.clear()
        self.pending_bytes = 0
        self.is_full = False

    def _with_pending(self, key: str, answer: list[bytes]) -> dict[str, int]:
        found = {member.decode(): int(float(score)) for member, score in zip(answer[::2], answer[1::2], strict=True)}
        for member, score in self._zsets.get(key, {}).items():
            if score is None:
                found.pop(member, None)
            else:
                found[member] = int(score)
        return found


def _bytes(value: Value | None) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else b"%d" % value


def _in_parts(name: str, key: str, arguments: Sequence[Any]) -> Iterable[Command]:
    """One command, or several where it has too many arguments."""
    head = (name, key) if key else (name,)
    for at in range(0, len(arguments), _ARGUMENTS_MAX):
        yield (*head, *arguments[at : at + _ARGUMENTS_MAX])
