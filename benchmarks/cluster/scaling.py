"""How many machines for how many people: computed from what this run has measured per core.

Nothing here is measured at that size. Each role's work grows with what people do, and what one core does of that work
is known. Scaling ends at what cannot be divided: the leader of a shard, and state that one process keeps about all
others.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from benchmarks.queue.section import Check, Section

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from benchmarks.cluster.bench import Bench

__all__ = ["FIGURES", "STEPS", "Habits", "Plan", "figures_from", "measure", "plan"]

FIGURES = {
    "gateway_deliveries": ("live deliveries, large rooms", "gateway", "path"),
    "gateway_frames": ("live deliveries, one to one", "gateway", "flat"),
    "gateway_sends": ("requests to store a message (HTTP)", "gateway", "failover"),
    "proxy_messages": ("messages in rooms", "proxy", "proxy"),
    "broker_messages": ("messages in rooms, for each gateway", "broker", "flat"),
    "router_news": ("people who come or go", "router", "flat"),
    "shard_leader": ("stored messages, the leader (accepts, replicates, applies, delivers)", "shard", "durable"),
    "shard_follower": ("stored messages, each follower (copies, applies)", "shard", "durable"),
    "connection_kib": ("KiB for a connection", "gateway", "path"),
    "mesh_cpu_per_peer": ("CPU µs a second for each process that one follows", "any", "mesh"),
}
"""What is computed with: what it is of one core and second, the role, and the section that measures it."""

STEPS = (10_000, 100_000, 1_000_000, 10_000_000, 100_000_000)
CORES_PER_MACHINE = 16
MEMORY_PER_MACHINE = 64 * 2**30
NETWORK_PER_MACHINE = 10e9 / 8
FRAME_BYTES = 200
"""Of a message of 100 bytes with its push, on its way to one person."""
SHARED = ("gateway", "proxy", "broker", "router")
"""Roles whose work is divided."""
REPLICAS = 2
"""Of brokers and routers, so that one may die. Of a shard: three."""
SHARD_REPLICAS = 3
MESH_SHARE_MAX = 0.10
"""Of a core, for knowing the others."""


@dataclass(frozen=True, slots=True)
class Habits:
    """What people do: the same at each step."""

    stored_per_minute: float = 1.0
    """Messages that one who is online sends and that are kept."""
    stored_receivers: float = 3.0
    """Of those, who are online and get it now."""
    in_rooms_share: float = 0.2
    room_people: int = 1_000
    room_messages_per_second: float = 2.0
    stay_minutes: float = 30.0
    """How long one stays, in a room and connected."""
    busy_share: float = 0.5
    """Of cores, memory and network that is used when all is well."""

    def words(self) -> str:
        """For people."""
        return (
            f"{self.stored_per_minute:g} stored message a minute for everyone online, to {self.stored_receivers:g} who "
            f"are online; {self.in_rooms_share:.0%} are in rooms of {self.room_people:,}, each with "
            f"{self.room_messages_per_second:g} live messages a second; one stays {self.stay_minutes:g} minutes; "
            f"{self.busy_share:.0%} of everything is used when all is well"
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """What so many people need. Numbers are cores that a role has to have, but for ``shards`` and ``machines``."""

    online: int
    gateway: int
    proxy: int
    broker: int
    router: int
    shard: int
    """Of the leaders and followers of all shards."""
    shards: int
    """Shards of three replicas each. A cluster has one shard for now, so this is also the number of clusters."""
    machines: int
    bottleneck: str

    @property
    def cores(self) -> int:
        """All."""
        return self.gateway + self.proxy + self.broker + self.router + self.shard


def plan(figures: Mapping[str, float], online: int, habits: Habits) -> Plan:
    """From people to machines."""
    stored = online * habits.stored_per_minute / 60
    pushed = stored * habits.stored_receivers
    live_rooms = max(online * habits.in_rooms_share / habits.room_people, 1.0 if online else 0.0)
    live = live_rooms * habits.room_messages_per_second
    live_heard = online * habits.in_rooms_share * habits.room_messages_per_second
    news = 2 * online * habits.in_rooms_share / (habits.stay_minutes * 60)
    used = habits.busy_share

    # A leader is one process, so one core bounds it. A follower does less, but may have to lead at any time.
    leader_load = stored / figures["shard_leader"]
    follower_load = stored / figures["shard_follower"]
    shards = max(ceil(leader_load / used), 1)
    shard = max(ceil((leader_load + (SHARD_REPLICAS - 1) * follower_load) / used), SHARD_REPLICAS)

    def cores(load: float) -> int:
        return max(ceil(load / used), REPLICAS * shards)  # each cluster has its own

    gateway_load = (
        live_heard / figures["gateway_deliveries"]
        + pushed / figures["gateway_frames"]
        + stored / figures["gateway_sends"]
    )
    gateway = cores(gateway_load)
    reached = min(gateway / shards, habits.room_people)  # gateways with someone of a room; a room is in one cluster
    broker = cores(live * reached / figures["broker_messages"])
    proxy = cores(live / figures["proxy_messages"])
    router = cores(REPLICAS * news / figures["router_news"])
    made = Plan(online, gateway, proxy, broker, router, shard, shards, 0, "")
    memory = online * figures["connection_kib"] * 1024 / used
    network = (live_heard + pushed) * FRAME_BYTES / used
    machines = {
        "cores": made.cores / CORES_PER_MACHINE,
        "memory": memory / MEMORY_PER_MACHINE,
        "network": network / NETWORK_PER_MACHINE,
    }
    by = max(machines, key=lambda name: machines[name])
    followed = (made.cores - made.shard) / shards  # replicas of a shard are no part of the mesh
    limits = {
        "one shard's leader": leader_load / used,
        "heartbeats of one cluster": followed * figures["mesh_cpu_per_peer"] / MESH_SHARE_MAX,
    }
    worst = max(limits, key=lambda name: limits[name])
    roles = {role: getattr(made, role) for role in (*SHARED, "shard")}
    if limits[worst] > 1:
        bottleneck = f"{worst}, {limits[worst]:.1f} times what it can"
        if worst == "one shard's leader":
            bottleneck += f": {shards} clusters"
    elif by != "cores":
        bottleneck = f"{by} of the gateways' machines"
    else:
        bottleneck = f"cores of the {max(roles, key=lambda role: roles[role])}s"
    if machines[by] <= 3 and limits[worst] <= 1:
        bottleneck = f"none: three machines, so that one may die (then {bottleneck})"
    return Plan(online, gateway, proxy, broker, router, shard, shards, max(ceil(machines[by]), 3), bottleneck)


def figures_from(path: Path) -> dict[str, float]:
    """The figures of an earlier run, from the file of its ``--json``. Raises ``ValueError`` if it has none."""
    for section in json.loads(path.read_text(encoding="utf-8"))["sections"]:
        if section["key"] == "scaling" and section["runs"]:
            return {name: float(value) for name, value in section["runs"][0]["figures"].items()}
    raise ValueError(f"{path} has no section scaling with figures: make it with --json and without --only")


def measure(bench: Bench) -> Section:
    """The table, if everything was measured."""
    habits = Habits()
    columns = [
        "online",
        "gateway",
        "proxy",
        "broker",
        "router",
        "shard",
        "shards",
        "cores",
        "machines",
        "first bottleneck",
    ]
    section = Section("scaling", "How many machines for how many people, computed", columns)
    section.runs = [{"figures": dict(bench.figures)}]
    missing = sorted({FIGURES[name][2] for name in FIGURES if name not in bench.figures})
    if missing:
        section.columns = []
        section.checks = [Check("everything measured that it needs", "yes", f"not: {', '.join(missing)}", passed=False)]
        return section
    for online in STEPS:
        made = plan(bench.figures, online, habits)
        section.rows.append([
            f"{online:,}", *(f"{getattr(made, role):,}" for role in SHARED),
            f"{made.shard:,}", f"{made.shards:,} x {SHARD_REPLICAS}", f"{made.cores:,}", f"{made.machines:,}",
            made.bottleneck,
        ])  # fmt: skip
    section.notes = [
        "Cores of each role, of all replicas. A cluster has one shard for now: more shards are more clusters.",
        f"Machines of {CORES_PER_MACHINE} cores, {MEMORY_PER_MACHINE // 2**30} GiB, 10 Gbit/s.",
        f"Assumed: {habits.words()}.",
        "One core of this machine does, a second: "
        + "; ".join(_word(name, bench.figures[name]) for name in FIGURES)
        + ".",
    ]
    return section


def _word(name: str, value: float) -> str:
    what, role, _ = FIGURES[name]
    shown = f"{value * 1e6:.0f}" if name == "mesh_cpu_per_peer" else f"{value:.1f}" if value < 100 else f"{value:,.0f}"
    return f"{role}: {shown} {what}"
