"""The whole ZooKeeper ensemble is paused under load: which sends fail, and which clients are closed?

Every ZooKeeper process gets SIGSTOP at once, and SIGCONT when the pause is over. A closed client reconnects after a
second with its cursor, as an SDK does; a send that is due while its client is away has failed. Nothing is sent again.
"""

from __future__ import annotations

import signal
import subprocess
import time
from typing import TYPE_CHECKING

from benchmarks.cluster.one_to_one import crowd_words, wrongly_delivered
from benchmarks.cluster.whole import ZOOKEEPER, cluster_file, signal_all
from benchmarks.gateway import crowd
from benchmarks.queue.bench import load_average
from benchmarks.queue.generator import GeneratorError
from benchmarks.queue.section import Section, faults_check, milliseconds, whole

if TYPE_CHECKING:
    from benchmarks.cluster.bench import Bench
    from benchmarks.gateway.crowd import Talk

__all__ = ["measure"]

CALM_SECONDS = 3.0
"""Under load, before the pause."""
AFTER_SECONDS = 10.0
"""Under load, after it."""
END_SECONDS_MAX = 60.0


def measure(bench: Bench) -> Section:
    """Once."""
    amounts = bench.amounts
    section = Section(
        "pause",
        f"ZooKeeper paused for {amounts.pause_seconds:g} s under {amounts.pause_rate:,} durable messages/s",
        ["sent", "failed sends", "closed clients", "not back", "lost", "repeated", "p50 ms", "p99 ms", "max ms"],
    )
    average = load_average()
    with bench.cluster("pause", cluster_file()) as cluster:
        paused = [node.pid for node in cluster.nodes(ZOOKEEPER) if node.pid]
        users = range(2 * amounts.pause_rate)  # one message a second of each pair
        words = crowd_words(
            cluster,
            users,
            rate=amounts.pause_rate,
            warmup=0,
            seconds=CALM_SECONDS + amounts.pause_seconds + AFTER_SECONDS,
        )
        words += ["--stay", "--say-ready"]
        talk = _talk(words, paused, amounts.pause_seconds)
    sent = talk.accepted + talk.failed
    section.rows = [[
        whole(sent), whole(talk.failed), whole(talk.closed), whole(talk.away), whole(talk.lost), whole(talk.repeats),
        milliseconds(talk.p50_us), milliseconds(talk.p99_us), milliseconds(talk.max_us),
    ]]  # fmt: skip
    section.checks = [
        faults_check("failed sends", talk.failed, talk.first_error),
        faults_check("closed clients", talk.closed, talk.first_error),
        faults_check("accepted messages lost, repeated or out of order", wrongly_delivered(talk), ""),
    ]
    section.notes = [
        f"Load average before: {average:.2f}. The load begins {CALM_SECONDS:g} s before the pause.",
        (
            f"Of the failed sends {talk.refused:,} were answered with an error; the others were not answered, or were "
            f"due while their client was away. A client that is closed twice counts twice. {talk.turned_away:,} "
            "attempts to reconnect were turned away."
        ),
    ]
    section.runs = [{"paused": len(paused), **talk.as_json()}]
    return section


def _talk(words: list[str], paused: list[int], seconds: float) -> Talk:
    pipe = subprocess.PIPE
    process = subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True)
    try:
        assert process.stdout is not None
        if process.stdout.readline():  # everyone is connected
            time.sleep(CALM_SECONDS)
            try:
                signal_all(paused, signal.SIGSTOP)
                time.sleep(seconds)
            finally:
                signal_all(paused, signal.SIGCONT)
        output, errors = process.communicate(timeout=AFTER_SECONDS + END_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        raise GeneratorError("the crowd did not end") from None
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    if process.returncode != 0:
        raise GeneratorError(errors.strip() or f"the crowd ended with {process.returncode}")
    return crowd.read(output)
