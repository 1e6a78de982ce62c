"""Everyone is cut at once and comes back with a cursor: how long until all are in sync, and what do the others notice?

Each tenth client finds a message that was sent to it meanwhile. The others are pairs who talk live all the time, before
and during the storm. The clients come back spread over a second, as those of a real crowd do that wait a random moment
before they try again.
"""

from contextlib import ExitStack

from benchmarks.gateway.bench import Bench
from benchmarks.gateway.crowd import Held
from benchmarks.gateway.idle import CONCURRENCY, prepared
from benchmarks.queue.bench import load_average
from benchmarks.queue.section import Check, Section, below, faults_check, milliseconds, whole

PAIRS = 20
RATE = 200
SPREAD_MS = 1000
EVENTS = "pixiu_queue_events_total"
_BACK = "each coming back with its cursor"
_FAULTS = ("gaps", "repeats", "disorder", "errors", "closed")
COLUMNS = [
    "clients",
    "all back, s",
    "all in sync, s",
    "others p50 ms",
    "p99 ms",
    "in the storm p50 ms",
    "p99 ms",
    "max ms",
]


def measure(bench: Bench) -> Section:
    """One storm."""
    return _measure(bench, Section("storm", f"{bench.connections:,} clients cut at once, {_BACK}", COLUMNS))


def measure_tcp(bench: Bench) -> Section:
    """The same over TCP."""
    title = f"{bench.connections:,} clients over TCP cut at once, {_BACK}"
    return _measure(bench, Section("storm-tcp", title, COLUMNS), is_tcp=True)


def _measure(bench: Bench, section: Section, *, is_tcp: bool = False) -> Section:
    clients = bench.connections
    users = clients + 2 * PAIRS
    before = load_average()
    options: dict[str, int | float | str] = {
        "connections": clients, "pairs": PAIRS, "class": "live", "rate": RATE, "concurrency": CONCURRENCY,
        "spread_ms": SPREAD_MS, "seconds": max(bench.seconds, 3.0), "missed_every": 10,
    }  # fmt: skip
    with ExitStack() as stack:
        server = stack.enter_context(prepared(bench, users))
        if is_tcp:
            options["tcp_port"] = server.tcp_port
        held = stack.enter_context(Held(server, bench.crowd_cores, range(users), **options))
        held.line()
        events = server.metrics()[EVENTS]
        held.tell("cut")
        found = held.line()
        events = server.metrics()[EVENTS] - events
    section.runs.append(found | {"log_records": events})
    is_whole = bool(found["in_sync"])
    calm, stormy = int(found["calm_p99_us"]), int(found["storm_p99_us"])
    section.rows = [
        [
            whole(clients),
            f"{found['back_seconds']:.2f}",
            f"{found['in_sync_seconds']:.2f}",
            milliseconds(found["calm_p50_us"]),
            milliseconds(calm),
            milliseconds(found["storm_p50_us"]),
            milliseconds(stormy),
            milliseconds(found["storm_max_us"]),
        ]
    ]
    section.checks = [
        Check("all in sync again", "yes", "yes" if is_whole else f"{found['away']} are away", is_whole),
        below("live p99 of the others, in the storm over before", stormy / max(calm, 1), 10, " x"),
        below("records in the log, of messages found and of sessions, per client", events / clients, 0.5, ""),
        faults_check("gaps, repeats, errors", sum(int(found[name]) for name in _FAULTS), str(found["first_error"])),
    ]
    section.notes.append(
        f"Load average before: {before:.2f}. The generator itself sent {milliseconds(found['late_p99_us'])} ms late "
        f"(p99), {milliseconds(found['late_max_us'])} ms at most, which is counted."
    )
    section.notes.append(
        f"{found['missed']:,} clients found a message; {found['turned_away']:,} were told to come again; "
        f"{events:,.0f} records were written meanwhile. Sessions are not "
        "stored one by one: a node has one epoch, which begins when it starts."
    )
    return section
