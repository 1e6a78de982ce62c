"""A hundred thousand sessions end at once, with Redis as the store of sessions; somebody else asks it meanwhile.

Whoever asks is another process (`python -m benchmarks.engines.storm PORT`), so that it is Redis that is measured. The
sessions are written with the node's own beat: some of them every tenth of a second.
"""

from __future__ import annotations

import select
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.queue.section import Section, below
from pixiu.backends.redis.address import RedisAddress
from pixiu.backends.redis.connection import RedisClient
from pixiu.backends.redis.layout import Keys
from pixiu.backends.redis.sessions import RedisSessions
from pixiu.model.session import Session
from pixiu.node.host import REDIS_BEAT_SECONDS

if TYPE_CHECKING:
    from benchmarks.engines.mixes import Engines

__all__ = ["HOWS", "Storm", "measure_storm", "storm"]

SESSIONS = 100_000
HOWS = ("by their epoch", "one by one")
GONE_SECONDS = 30.0
P99_MS = 50.0
QUESTION = b"*3\r\n$4\r\nHGET\r\n$10\r\nmsg/u:1/ss\r\n$1\r\n1\r\n"


@dataclass(frozen=True, slots=True)
class Storm:
    """What became of it."""

    how: str
    gone_s: float
    """Until none of them was in Redis any more."""
    p50_ms: float
    p99_ms: float
    most_ms: float
    """Of what others asked meanwhile."""
    asked: int


def storm(port: int, how: str, sessions_count: int = SESSIONS) -> Storm:
    """Connect them all, then let them go, on an empty Redis. Raises if any is left."""
    client = RedisClient(RedisAddress.parse(f"redis://127.0.0.1:{port}?timeout_ms=30000"))
    try:
        sessions = RedisSessions(client, Keys("seed"))
        epoch = sessions.begin_epoch("g1")
        for user in range(1, sessions_count + 1):
            sessions.add(Session(user, user, "ios", "phone", sessions.next_number(user), "g1", epoch))
        while sessions.unwritten:
            sessions.write()
        if client.ask([("SCARD", "pixiu:present")])[0] != sessions_count:
            raise AssertionError("not all of them are there")
        command = [sys.executable, "-m", "benchmarks.engines.storm", str(port)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
            assert other.stdin is not None and other.stdout is not None
            other.stdout.readline()  # it asks
            began = time.perf_counter()
            if how == HOWS[1]:
                for user in range(1, sessions_count + 1):
                    sessions.remove(user, user)
            else:
                sessions.end_epoch("g1")
            if sessions.of(1):
                raise AssertionError("a session that has ended still counts")
            left = sessions_count
            while left:
                sessions.write()
                time.sleep(REDIS_BEAT_SECONDS)
                left = sessions.unwritten
            gone_s = time.perf_counter() - began
            told = other.communicate("")[0].split()
        if client.ask([("DBSIZE",)])[0]:
            raise AssertionError("not all of them are gone")
        p50, p99, most = map(float, told[:3])
        return Storm(how, gone_s, p50, p99, most, int(told[3]))
    finally:
        client.close()


def measure_storm(engines: Engines) -> Section:
    """With epochs and without."""
    section = Section(
        "storm",
        f"{SESSIONS:,} sessions end at once, Redis as their store",
        ["how", "all gone in", "others: p50", "p99", "most", "asked"],
    )
    assert engines.valkey is not None
    for how in HOWS:
        engines.ask_valkey("FLUSHALL")
        found = storm(engines.valkey.port, how)
        times = [f"{value:.2f} ms" for value in (found.p50_ms, found.p99_ms, found.most_ms)]
        section.rows.append([how, f"{found.gone_s:.1f} s", *times, f"{found.asked:,}"])
        section.checks.append(below(f"{how}: all gone in", found.gone_s, GONE_SECONDS, " s"))
        section.checks.append(below(f"{how}: p99 of other commands", found.p99_ms, P99_MS, " ms"))
        section.runs.append({"how": how, "gone_s": found.gone_s, "p99_ms": found.p99_ms, "asked": found.asked})
    return section


def ask(port: int) -> None:
    """Ask again and again until the input ends; then say how long answers took: p50, p99, most (ms), how many."""
    took: list[float] = []
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        print("asking", flush=True)
        while not select.select([sys.stdin], [], [], 0)[0]:
            for _ in range(20):
                began = time.perf_counter()
                connection.sendall(QUESTION)
                connection.recv(4096)
                took.append((time.perf_counter() - began) * 1000)
            time.sleep(0.001)
    took.sort()
    print(f"{took[len(took) // 2]} {took[len(took) * 99 // 100]} {took[-1]} {len(took)}")


if __name__ == "__main__":
    ask(int(sys.argv[1]))
