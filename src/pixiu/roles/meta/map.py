"""The map of a cluster: what the registry lists, what each process counts, and what they think of each other.

A map keeps the last two readings of each process, of which rates are made, and for a while the processes that are gone.
Any number of maps can run, and none is on the way of a message. ``content`` is ``/cluster.json``; docs/cluster.md has
its shape.

The registry lists a killed process until its session ends, and lists its replacement beside it. So a listed process
whose admin port refuses connections counts as gone, and of several entries with one name the newest is shown.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pixiu.machines.bigrooms import BigMap
from pixiu.model.metric import Metric

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pixiu.model.metric import Snapshot

__all__ = ["METRICS", "ClusterMap", "samples_of"]

HOT_ROOMS = 20
LINKS_MAX = 20_000
"""Links in the map; more are left out."""
STALE_MS = 15_000
"""What was not heard for this long is not shown as present."""
GONE_MS = 1_800_000
"""A process that is listed no more, and did not say that it would go, is shown as gone for this long."""
GONE_MAX = 200
"""As many of them; the oldest are forgotten first."""
SILENT_AFTER = 2
"""Questions in a row without an answer in time, after which a process counts as silent."""
REPLACED_MS = 60_000
"""A process that has begun so long before another of its partition has gone takes its place."""

RATES = {
    "messages_in": 'pixiu_links_messages_total{direction="in"}',
    "messages_out": 'pixiu_links_messages_total{direction="out"}',
    "deliveries": "pixiu_broker_deliveries_total",
    "refused": "pixiu_links_refused_total",
    "dropped": "pixiu_links_dropped_total",
}
GAUGES = {
    "rooms": "pixiu_broker_rooms",
    "room_sessions": "pixiu_broker_sessions",
    "unsettled": "pixiu_broker_unsettled",
    "connections": "pixiu_gateway_connections",
    "waiting": "pixiu_links_waiting",
    "memory_bytes": "process_resident_memory_bytes",
    "cpu_seconds": "process_cpu_seconds_total",
}
METRICS = (
    Metric("pixiu_cluster_nodes", "gauge", "Processes of the cluster, by role and state.", ("role", "state")),
    Metric("pixiu_cluster_partitions", "gauge", "Partitions that a role has.", ("role",)),
    Metric("pixiu_cluster_silent", "gauge", "Processes that are listed and do not answer.", ("role",)),
    Metric("pixiu_cluster_rate", "gauge", "What a role does per second, all its processes.", ("role", "what")),
    Metric("pixiu_cluster_link_rtt_seconds", "gauge", "The slowest link between two roles.", ("source", "target")),
    Metric("pixiu_cluster_link_success", "gauge", "The worst link between two roles.", ("source", "target")),
    Metric("pixiu_cluster_alarms", "gauge", "What probes find broken."),
    Metric("pixiu_cluster_path_success", "gauge", "The worst path of all probes."),
)
_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(\{[^}]*\})? ([0-9.eE+-]+|NaN|\+Inf|-Inf)$")


def samples_of(text: str) -> dict[str, float]:
    """The values of an exposition: by name with labels, and summed by name alone."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        match = None if line.startswith("#") else _SAMPLE.match(line)
        if match is not None:
            name, labels, value = match.groups()
            if labels:
                found[name + labels] = float(value)
            found[name] = found.get(name, 0.0) + float(value)
    return found


class _Reading:
    """What one process said."""

    __slots__ = ("at_ms", "before", "before_ms", "hot", "missing_ms", "paths", "peers", "samples", "unanswered")

    def __init__(self) -> None:
        self.at_ms = 0
        self.before_ms = 0
        self.samples: dict[str, float] = {}
        self.before: dict[str, float] = {}
        self.peers: list[dict[str, Any]] = []
        self.hot: list[dict[str, Any]] = []
        self.paths: dict[str, Any] = {}
        self.unanswered = 0
        self.missing_ms = 0
        """Since when nothing listens on its admin port; 0: something does, as far as is known."""

    def is_fresh(self, now_ms: int) -> bool:
        return bool(self.at_ms) and now_ms - self.at_ms < STALE_MS and self.unanswered < SILENT_AFTER


class ClusterMap:
    """All of it. Time is an argument, in milliseconds since 1970."""

    def __init__(self) -> None:
        self._nodes: dict[str, dict[str, Any]] = {}
        self._counts: dict[str, dict[str, int]] = {}
        self._bigs = BigMap()
        self._readings: dict[str, _Reading] = {}
        self._gone: dict[str, dict[str, Any]] = {}
        self._came: dict[tuple[str, int], list[int]] = {}
        self._aliases: dict[str, str] = {}

    def listed(self, folder: Mapping[str, tuple[Mapping[str, Any], int]], now_ms: int) -> dict[str, str]:
        """What is below the registry's root: data and version of each node. Returns the admin address of each name."""
        before = self._nodes
        probes: dict[str, str] = {}
        self._nodes, self._counts = {}, {}
        leaders = {
            path.removesuffix("/ctl"): data.get("leader") for path, (data, _) in folder.items() if path[-4:] == "/ctl"
        }
        for path, (data, version) in folder.items():
            role, _, rest = path.partition("/")
            place, _, number = rest.partition("/")
            if rest == "partition_num" and isinstance(data.get("count"), int):
                self._counts[role] = {"count": data["count"], "version": version}
            elif path == "rooms/big":
                self._bigs = BigMap(data, version)
            elif role == "gateway" and data.get("probe"):
                probes[str(data.get("name"))] = str(data.get("address"))  # it has an entry of its own, too
            elif place.startswith("partition") and number.isdecimal() and isinstance(data.get("name"), str):
                self._nodes[path] = {
                    "name": data["name"], "role": role, "partition": data.get("partition", 0),
                    "replica": int(number), "state": data.get("state", ""), "address": data.get("address", ""),
                    "admin": data.get("admin", ""), "boot": data.get("boot", ""),
                    "leads": leaders.get(f"{role}/{place}") == data["name"],
                }  # fmt: skip
                if role == "gateway" and data.get("node"):
                    self._nodes[path]["clients"] = f"{'https' if data.get('tls') else 'http'}://{data['node']}"
        self._nodes = _newest(self._nodes)
        earlier = self._readings
        self._readings = {path: earlier.get(path) or _Reading() for path in self._nodes}
        names = {node["address"]: node["name"] for node in self._nodes.values() if node["role"] == "probe"}
        self._aliases = {name: names[address] for name, address in probes.items() if address in names}
        self._remember(before, earlier, now_ms)
        return {path: str(node["admin"]) for path, node in self._nodes.items() if node["admin"]}

    def _remember(self, before: Mapping[str, dict[str, Any]], readings: Mapping[str, _Reading], now_ms: int) -> None:
        """Note processes that are no longer listed, unless they drained or a new process of their partition began."""
        came = {key: [at for at in times if now_ms - at < REPLACED_MS] for key, times in self._came.items()}
        names = {node["name"] for node in before.values()} | set(self._gone)
        if before:
            for path, node in self._nodes.items():
                if path not in before and node["name"] not in names:
                    came.setdefault((node["role"], node["partition"]), []).append(now_ms)
        for path, node in before.items():
            if path not in self._nodes and node["state"] != "Draining":
                self._gone[node["name"]] = {**node, "since": readings[path].missing_ms or now_ms}
        here = {node["name"] for node in self._nodes.values()}
        kept: dict[str, dict[str, Any]] = {}
        for name, node in self._gone.items():
            others = came.get((node["role"], node["partition"]), [])
            if name in here or now_ms - node["since"] >= GONE_MS:
                continue
            if others:
                others.pop(0)
            else:
                kept[name] = node
        self._gone = dict(list(kept.items())[-GONE_MAX:])
        self._came = {key: times for key, times in came.items() if times}

    def heard(
        self,
        path: str,
        now_ms: int,
        metrics: str,
        peers: list[dict[str, Any]],
        hot: list[dict[str, Any]],
        paths: dict[str, Any],
    ) -> None:
        """What the process at a path of the registry says of itself."""
        reading = self._readings.get(path)
        if reading is None:
            return
        reading.before, reading.before_ms = reading.samples, reading.at_ms
        reading.samples, reading.at_ms = samples_of(metrics), now_ms
        reading.peers, reading.hot, reading.paths = peers, hot, paths
        reading.unanswered = reading.missing_ms = 0

    def unheard(self, path: str, now_ms: int, *, is_refused: bool) -> None:
        """The process at a path of the registry did not answer in time, or nothing listens there (``is_refused``)."""
        reading = self._readings.get(path)
        if reading is not None:
            reading.unanswered += 1
            if is_refused and not reading.missing_ms:
                reading.missing_ms = now_ms

    def content(self, now_ms: int) -> dict[str, Any]:
        """``/cluster.json``."""
        missing = {path: reading.missing_ms for path, reading in self._readings.items() if reading.missing_ms}
        gone = [*self._gone.values(), *({**self._nodes[path], "since": since} for path, since in missing.items())]
        nodes = [self._node(path, now_ms) for path in sorted(self._nodes) if path not in missing]
        fresh = {
            path: reading for path, reading in self._readings.items()
            if path not in missing and now_ms - reading.at_ms < STALE_MS
        }  # fmt: skip
        links = [
            {"from": self._nodes[path]["name"], "to": self._aliases.get(str(peer.get("name")), peer.get("name")),
             "role": "probe" if peer.get("name") in self._aliases else peer.get("role"),
             "rtt_ms": peer.get("rtt_ms"), "success": peer.get("success"), "standing": peer.get("standing")}
            for path, reading in sorted(fresh.items()) for peer in reading.peers
        ]  # fmt: skip
        probes = [reading.paths for reading in fresh.values() if reading.paths]
        return {
            "at": now_ms,
            "nodes": nodes,
            "gone": [
                {key: node[key] for key in ("name", "role", "partition", "replica", "address", "since")}
                for node in gone
            ],
            "partitions": self._counts,
            "links": links[:LINKS_MAX],
            "links_left_out": max(len(links) - LINKS_MAX, 0),
            "hot_rooms": self._hot(fresh),
            "big_rooms": [{"room": room.name, "phase": room.phase} for room in self._bigs.rooms.values()],
            "paths": [row for probe in probes for row in probe.get("paths", ())],
            "alarms": sorted({text for probe in probes for text in probe.get("alarms", ())}),
        }

    def snapshot(self, now_ms: int) -> Snapshot:
        """The same for Prometheus, by role."""
        content = self.content(now_ms)
        states: dict[tuple[str, ...], float] = {}
        silent: dict[tuple[str, ...], float] = {}
        rates: dict[tuple[str, ...], float] = {}
        roles = {node["name"]: node["role"] for node in content["nodes"]}
        for node in content["nodes"]:
            key = (node["role"], node["state"])
            states[key] = states.get(key, 0) + 1
            silent[node["role"],] = silent.get((node["role"],), 0) + (not node["answers"])
            for what, value in node["rates"].items():
                rates[node["role"], what] = rates.get((node["role"], what), 0) + value
        for path, reading in self._readings.items():
            if reading.missing_ms:
                role = self._nodes[path]["role"]
                silent[role,] = silent.get((role,), 0) + 1
        slowest: dict[tuple[str, ...], float] = {}
        worst: dict[tuple[str, ...], float] = {}
        for link in content["links"]:
            ends = (roles[link["from"]], str(link["role"]))
            slowest[ends] = max(slowest.get(ends, 0), float(link["rtt_ms"] or 0) / 1000)
            worst[ends] = min(worst.get(ends, 1), float(link["success"] or 0))
        success = [float(row["success"]) for row in content["paths"] if row.get("success") is not None]
        return {
            "pixiu_cluster_nodes": states,
            "pixiu_cluster_partitions": {(role,): count["count"] for role, count in self._counts.items()},
            "pixiu_cluster_silent": silent,
            "pixiu_cluster_rate": rates,
            "pixiu_cluster_link_rtt_seconds": slowest,
            "pixiu_cluster_link_success": worst,
            "pixiu_cluster_alarms": len(content["alarms"]),
            "pixiu_cluster_path_success": min(success, default=1.0),
        }

    # Parts of it.

    def _node(self, path: str, now_ms: int) -> dict[str, Any]:
        reading = self._readings[path]
        is_fresh = reading.is_fresh(now_ms)
        rates: dict[str, float] = {}
        seconds = (reading.at_ms - reading.before_ms) / 1000
        if is_fresh and reading.before and seconds > 0:
            for name, key in RATES.items():
                if key in reading.samples and key in reading.before:
                    # A counter that is smaller has begun anew with its process.
                    rates[name] = round(max(reading.samples[key] - reading.before[key], 0) / seconds, 2)
        gauges = {name: reading.samples[key] for name, key in GAUGES.items() if is_fresh and key in reading.samples}
        node = {key: value for key, value in self._nodes[path].items() if key != "boot"}
        return {**node, "answers": is_fresh, "rates": rates, "gauges": gauges}

    @staticmethod
    def _hot(fresh: Mapping[str, _Reading]) -> list[dict[str, Any]]:
        """The hottest rooms: of replicas and slices, what each has is added."""
        rooms: dict[str, dict[str, Any]] = {}
        for reading in fresh.values():
            for row in reading.hot:
                room = rooms.setdefault(str(row.get("room")), {"deliveries": 0.0, "messages": 0.0, "members": 0})
                room["deliveries"] += float(row.get("deliveries", 0))
                room["messages"] += float(row.get("messages", 0))
                room["members"] = max(room["members"], int(row.get("members", 0)))
        hottest = sorted(rooms.items(), key=lambda pair: (-pair[1]["deliveries"], pair[0]))[:HOT_ROOMS]
        return [{"room": name, **{key: round(value, 2) for key, value in row.items()}} for name, row in hottest]


def _newest(nodes: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """One entry per role and name: the one with the highest number, since the registry numbers entries in order."""
    newest: dict[tuple[str, str], str] = {}
    for path, node in nodes.items():
        key = (node["role"], node["name"])
        if key not in newest or node["replica"] > nodes[newest[key]]["replica"]:
            newest[key] = path
    return {path: nodes[path] for path in newest.values()}
