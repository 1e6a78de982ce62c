"""``pixiu top``: what goes on in a server, as it goes on."""

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from pixiu.cli.calling import Caller, Token, Url
from pixiu.cli.examples import examples
from pixiu.cli.queue.asking import parse_duration_ms
from pixiu.cli.queue.output import bytes_text, print_json
from pixiu.cli.samples import HOPS, Reading, sample_of
from pixiu.model.counted import counted
from pixiu.model.errors import ConfigError

__all__ = ["app"]

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

INTERVAL_MS_MIN = 200
INTERVAL_MS_MAX = 3_600_000


@app.command(epilog=examples("pixiu top", "pixiu top --once --json"))
def top(
    url: Url = None,
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="Watch the server that runs on this data directory.")
    ] = None,
    token: Token = None,
    interval: Annotated[str, typer.Option("--interval", metavar="TIME", help="How often to look.")] = "1s",
    json: Annotated[bool, typer.Option("--json", help="Print a line of JSON per sample.")] = False,
    once: Annotated[bool, typer.Option("--once", help="One sample, over one interval.")] = False,
) -> None:
    """Watch a server: rates, latency per hop, connections, sessions, hot rooms, topics and their lag, memory.

    On a terminal it stays until q is pressed. Elsewhere it prints a few lines per sample.
    """
    if url is not None and data is not None:
        raise ConfigError("say where once: --url or --data")
    interval_ms = parse_duration_ms(interval)
    if not INTERVAL_MS_MIN <= interval_ms <= INTERVAL_MS_MAX:
        raise ConfigError(f"--interval must be 200ms to 1h, not {interval}")
    caller = Caller(url, token, data)
    before = read_stats(caller)
    if sys.stdout.isatty() and not json and not once:
        from pixiu.cli.topscreen import TopScreen

        TopScreen(caller.url, lambda: read_stats(caller), before, interval_ms=interval_ms).run()
        return
    while True:
        time.sleep(interval_ms / 1000)
        now = read_stats(caller)
        sample = sample_of(before, now)
        if json:
            print_json(sample)
        else:
            print("\n".join(lines_of(sample)))
        sys.stdout.flush()
        if once:
            return
        before = now


def read_stats(caller: Caller) -> Reading:
    """The server's numbers as of now."""
    return dict(caller.get("/v1/admin/stats", timeout_seconds=10.0))


def lines_of(sample: Reading) -> list[str]:
    """A sample as a few plain lines."""
    rates, process = sample["rates"], sample["process"]
    shown = ("accepted", "delivered", "acked", "room_messages", "room_deliveries")
    numbers = [f"{name} {sample[name]:,}" for name in ("connections", "sessions", "rooms")]
    numbers += [f"memory {bytes_text(process['rss_bytes'])}", f"cpu {sample['cpu']:.0%}"]
    numbers += [f"journal {bytes_text(sample['journal_bytes'])}"]
    lines = [
        "  ".join(f"{name.replace('_', ' ')} {rates[name]:,.0f}/s" for name in shown),
        "latency  " + "  ".join(f"{name} {latency_text(sample['hops'][name])}" for name in HOPS),
        "  ".join(numbers),
    ]
    lines += [
        f"hot room {each['room']}  {each['deliveries']:,.0f} deliveries/s  "
        f"{counted(each['members'], 'member', is_grouped=True)}"
        for each in sample["hot_rooms"][:5]
    ]
    lines += [
        f"topic {topic['name']}  {each['name']} lags {each['lag']:,}"
        for topic in sample["topics"]
        for each in topic["subscribers"]
        if each["lag"]
    ]
    return [*lines, *(f"PROBLEM {problem}" for problem in sample["problems"]), ""]


def latency_text(hop: Reading) -> str:
    """p50 / p99, or a dash where nothing passed."""
    return "–" if hop["p50"] is None else f"{milliseconds(hop['p50'])} / {milliseconds(hop['p99'])}"


def milliseconds(value: float | None) -> str:
    """Two or three digits are enough to read."""
    if value is None:
        return "–"
    return f"{value:.2f} ms" if value < 10 else f"{value:.1f} ms" if value < 100 else f"{value:,.0f} ms"
