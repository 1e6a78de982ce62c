"""Users' inboxes, memberships and limits as of every event, from the changes of the log: of one part of the users.

Changes come in two kinds: those that are new, and those that an audit has handed on, which say in few rows how things
were at its end (``folded``). Both go through the same rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pixiu.model.inbox import FIRST
from pixiu.roles.carrier.reached import Limits

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["CHANGES", "FOREVER", "WHATS", "Inboxes", "People", "part_of"]

FOREVER = 2**62
WHATS = pa.array(["user", "inbox", "push", "group", "join", "quit", "founder", "limit"])
"""The changes that concern the books."""

CHANGES = pa.schema(
    [
        ("event_id", pa.int64()),
        ("what", pa.string()),
        ("user_id", pa.int64()),
        ("group_id", pa.int64()),
        ("number", pa.int64()),
        ("platform", pa.string()),
        ("platforms", pa.list_(pa.string())),
        ("without_platforms", pa.list_(pa.string())),
    ]
)


def part_of(users: Any, parts: int) -> Any:
    """The part of each user: ids are times and counters, so their bits are mixed first."""
    mixed = np.asarray(users, np.int64).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return ((mixed >> np.uint64(33)) % np.uint64(parts)).astype(np.int64)


class Inboxes(NamedTuple):
    """Every inbox of some users, by user; arrays of the same length."""

    user: Any
    opened: Any
    named: Any
    """Since which event it has its platform's name; before, it was the first inbox."""
    platform: list[str]
    name: list[str]
    """What never changes: ``first``, or the platform of any other."""

    def of_users(self, users: Any) -> tuple[Any, Any]:
        """For each of these users and inboxes of theirs: the place in ``users``, and the inbox."""
        low, high = np.searchsorted(self.user, users), np.searchsorted(self.user, users, "right")
        return spans(low, high)


def spans(low: Any, high: Any) -> tuple[Any, Any]:
    """All numbers from each ``low`` to before its ``high``: which pair, and the number."""
    counts = np.maximum(high - low, 0)
    which = np.repeat(np.arange(len(low)), counts)
    before = np.cumsum(counts) - counts
    return which, np.arange(len(which)) - before[which] + low[which]


class People:
    """What changes say about one part of the users."""

    def __init__(self, part: int, parts: int) -> None:
        self._part, self._parts = part, parts
        self._opened: dict[tuple[int, str], int] = {}
        self.pushed: list[tuple[int, int, list[str], list[str]]] = []
        """event_id, user, only these platforms, all but these: of new changes alone."""
        self._quits: set[tuple[int, int]] = set()
        self._created: dict[int, int] = {}
        self._large: dict[int, int] = {}
        self._steps: list[tuple[int, int, int, str]] = []
        self._limits: dict[int, dict[str, int]] = {}

    def take(self, changes: Any) -> None:
        """Rows of ``changes``, in any order."""
        rows = changes.filter(pc.is_in(changes.column("what"), WHATS))
        users = pc.fill_null(rows.column("user_id"), 0).to_numpy(zero_copy_only=False)
        ours = part_of(users, self._parts) == self._part
        is_shared = pc.is_in(rows.column("what"), pa.array(["group", "limit"])).to_numpy(zero_copy_only=False)
        for row in rows.filter(pa.array(ours | is_shared)).to_pylist():
            self._change(row)

    def _change(self, row: dict[str, Any]) -> None:
        event, what, user, group = row["event_id"], row["what"], row["user_id"], row["group_id"]
        if what == "limit":
            self._limits.setdefault(event, {})[row["platform"]] = row["number"]
        elif what == "group":
            self._created[group] = min(event, self._created.get(group, FOREVER))
            if row["number"] == 1:
                self._large[group] = min(event, self._large.get(group, FOREVER))
        elif what == "user":
            self._open(user, FIRST, event)
        elif what == "inbox":
            self._open(user, row["platform"], event)
        elif what == "push":
            only = row["platforms"] or []
            for platform in only:
                self._open(user, platform, event)
            self.pushed.append((event, user, only, row["without_platforms"] or []))
        else:
            self._steps.append((event, group, user, what))
            if what == "quit":
                self._quits.add((event, user))

    def _open(self, user: int, platform: str, event: int) -> None:
        self._opened[user, platform] = min(event, self._opened.get((user, platform), FOREVER))

    # How things are.

    def inboxes(self) -> Inboxes:
        """A user's first inbox is called ``first`` until a platform takes it over, with all that is in it."""
        of_user: dict[int, list[tuple[int, str]]] = {}
        for (user, platform), event in self._opened.items():
            of_user.setdefault(user, []).append((event, platform))
        rows: list[tuple[int, int, int, str, str]] = []
        for user, opened in sorted(of_user.items()):
            named = sorted(each for each in opened if each[1] != FIRST) or opened
            begun = min(event for event, _ in opened)
            rows.append((user, begun, named[0][0], named[0][1], FIRST))
            rows.extend((user, event, event, platform, platform) for event, platform in named[1:])
        numbers = [np.array([row[place] for row in rows], np.int64) for place in range(3)]
        return Inboxes(numbers[0], numbers[1], numbers[2], [row[3] for row in rows], [row[4] for row in rows])

    def stays(self) -> tuple[Any, Any, Any, Any]:
        """group, user, joined_event, left_event of every stay, by group."""
        open_stays: dict[tuple[int, int], int] = {}
        stays: list[tuple[int, int, int, int]] = []
        for event, group, user, what in sorted(self._steps):
            created = self._created.get(group)
            if created is None or (what == "founder" and event != created):
                continue
            if what == "quit":
                joined = open_stays.pop((group, user), None)
                if joined is not None:
                    stays.append((group, user, joined, event))
            else:
                open_stays.setdefault((group, user), event)
        stays += [(group, user, joined, FOREVER) for (group, user), joined in open_stays.items()]
        stays.sort()
        columns = [np.array([stay[place] for stay in stays], np.int64) for place in range(4)]
        return columns[0], columns[1], columns[2], columns[3]

    def large(self) -> tuple[Any, Any]:
        """Groups that became large, in order, and by which event."""
        groups = sorted(self._large)
        return np.array(groups, np.int64), np.array([self._large[group] for group in groups], np.int64)

    def quits(self) -> tuple[Any, Any]:
        """event_id and user of those who left a group."""
        found = sorted(self._quits)
        return np.array([event for event, _ in found], np.int64), np.array([user for _, user in found], np.int64)

    def limits(self) -> list[tuple[int, dict[str, int]]]:
        """How many entries may wait, since which event: by platform, and ``""`` for all others."""
        return [(0, {"": Limits().offline_max}), *sorted(self._limits.items())]

    def folded(self) -> Any:
        """The same in as few rows as there can be, for the next audit."""
        group, user, joined, left = self.stays()
        stays = left == FOREVER
        rows: Iterable[dict[str, Any]] = [
            *({"event_id": event, "what": "inbox", "user_id": who, "platform": platform}
              for (who, platform), event in self._opened.items()),
            *({"event_id": event, "what": "group", "group_id": which, "number": 0}
              for which, event in self._created.items()),
            *({"event_id": event, "what": "group", "group_id": which, "number": 1}
              for which, event in self._large.items()),
            *({"event_id": int(event), "what": "join", "user_id": int(who), "group_id": int(which)}
              for which, who, event in zip(group[stays], user[stays], joined[stays], strict=True)),
            *({"event_id": event, "what": "limit", "platform": platform, "number": number}
              for event, each in self._limits.items() for platform, number in each.items()),
        ]  # fmt: skip
        return pa.Table.from_pylist(list(rows), schema=CHANGES)
