"""What to do about heat: which rooms become virtual rooms, which role doubles; as a file for ``pixiu cluster split``.

A room that is too hot for one partition is not helped by more partitions, so rooms are looked at first; what they leave
is laid over the partitions as the cluster would, and a role whose hottest partition is above its bound doubles, once.
Everything is a mean of the busiest minute: what lasts shorter than that is not worth a move.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from pixiu.machines.rooms import room_number
from pixiu.model.errors import ConfigError
from pixiu.model.partitions import PARTITIONS_MAX, SLICES, check_count, partition_of
from pixiu.pipeline.query import open_duckdb, tables_of

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Bounds", "Heat", "make_plan", "plan_of"]

VERSION = 1
"""Of the file."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a room, or a partition of a role, may have."""

    room_members: int = 10_000
    """Sessions in one room: each message of it is a frame for every gateway, and one process counts them all."""
    room_deliveries: int = 50_000
    """Deliveries of one room per second: a sixth of what one broker process was measured to do (docs/benchmarks.md)."""
    broker_deliveries: int = 150_000
    """Deliveries of one partition of brokers per second: half of what a process does, so that one may fail."""
    relay_entries: int = 10_000
    """Inbox entries of one partition of relays per second."""


class Heat(NamedTuple):
    """The busiest minute of a conversation."""

    conversation: str
    """``r:<room>``, ``g:<group>``, ``u:<user>:<user>``."""
    messages: int
    deliveries: int
    members: int
    """Sessions in a room, members of a group; of a private conversation 2."""


def plan_of(data: Path, *, partitions: int = 1, bounds: Bounds | None = None, days: int = 7) -> dict[str, Any]:
    """A plan from the newest ``days`` of a lake."""
    through = tables_of(data)["heat"].through if "heat" in tables_of(data) else 0
    with open_duckdb(data) as lake:
        span = lake.execute("SELECT max(day) - ?, max(day) FROM lake_heat", [days - 1]).fetchone() or (None, None)
        found = lake.execute(
            """
            WITH sizes AS (
                SELECT concat('g:', group_id) AS conversation, count(*) AS members FROM members
                WHERE left_event IS NULL GROUP BY group_id
            )
            SELECT h.conversation, max(h.messages), max(h.deliveries), coalesce(max(s.members), max(h.members), 0)
            FROM heat h LEFT JOIN sizes s ON s.conversation = h.conversation
            WHERE h.day >= ? GROUP BY h.conversation ORDER BY h.conversation
            """,
            [span[0]],
        ).fetchall()
    heats = [Heat(name, int(messages), int(deliveries), int(members)) for name, messages, deliveries, members in found]
    plan = make_plan(heats, partitions=partitions, bounds=bounds or Bounds())
    first, last = (None if day is None else day.isoformat() for day in span)
    return {"version": VERSION, "made_at": int(time.time() * 1000), "through": through, "days": [first, last], **plan}


def make_plan(heats: list[Heat], *, partitions: int, bounds: Bounds) -> dict[str, Any]:
    """What should be done, with the reasons."""
    try:
        check_count(partitions)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    split = [found for heat in heats if (found := _split(heat, bounds)) is not None]
    names = {found["room"] for found in split}
    loads = {"broker": [0.0] * partitions, "relay": [0.0] * partitions}
    for heat in heats:
        _add(loads, heat, partitions, is_split=heat.conversation[2:] in names and heat.conversation.startswith("r:"))
    doubled = [
        found
        for role, bound, what in (
            ("broker", bounds.broker_deliveries, "room deliveries"),
            ("relay", bounds.relay_entries, "inbox entries"),
        )
        if (found := _double(role, loads[role], bound, what)) is not None
    ]
    return {
        "partitions": partitions,
        "bounds": asdict(bounds),
        "virtual_rooms": split,
        "double": doubled,
        "load": {role: _shown(values) for role, values in loads.items()},
    }


def _split(heat: Heat, bounds: Bounds) -> dict[str, Any] | None:
    if not heat.conversation.startswith("r:"):
        return None
    per_second = heat.deliveries / 60
    reasons = []
    if heat.members > bounds.room_members:
        reasons.append(f"{heat.members} sessions, more than {bounds.room_members}")
    if per_second > bounds.room_deliveries:
        reasons.append(f"{per_second:.0f} deliveries a second, more than {bounds.room_deliveries}")
    if not reasons:
        return None
    return {
        "room": heat.conversation[2:],
        "slices": SLICES,
        "members": heat.members,
        "deliveries_per_second": round(per_second, 1),
        "reason": "; ".join(reasons),
    }


def _add(loads: dict[str, list[float]], heat: Heat, partitions: int, *, is_split: bool) -> None:
    """Lay a conversation over the partitions: rooms by their number, private talk by its users, groups by members."""
    kind, _, rest = heat.conversation.partition(":")
    if kind == "r":
        places = range(partitions) if is_split else [partition_of(room_number(rest), partitions)]
        role, per_second = "broker", heat.deliveries / 60
    elif kind == "u":
        role, per_second = "relay", heat.messages * 2 / 60
        places = [partition_of(int(user), partitions) for user in rest.split(":")]
    elif kind == "g":
        role, per_second, places = "relay", heat.messages * heat.members / 60, range(partitions)
    else:
        return  # pushes are for whoever they name
    for place in places:
        loads[role][place] += per_second / len(places)


def _double(role: str, values: list[float], bound: int, what: str) -> dict[str, Any] | None:
    hottest = max(range(len(values)), key=values.__getitem__)
    if values[hottest] <= bound or 2 * len(values) > PARTITIONS_MAX:
        return None
    return {
        "role": role,
        "from": len(values),
        "to": 2 * len(values),
        "hottest_partition": hottest,
        "per_second": round(values[hottest], 1),
        "reason": f"partition {hottest} has {values[hottest]:.0f} {what} a second, more than {bound}",
    }


def _shown(values: list[float]) -> list[dict[str, Any]]:
    mean = sum(values) / len(values)
    return [
        {"partition": number, "per_second": round(value, 1), "skew": round(value / mean, 2) if mean else 0.0}
        for number, value in enumerate(values)
    ]
