"""Anything may come over the wire: the connection never raises, never hangs, and keeps no more than its bound.

The connection, the engine and the commands are the real ones; disk, time and loop are simulated, so every input begins
in the same state. ``tools/fuzz_wire.py`` goes on where this ends, guided by coverage.
"""

import logging
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pixiu.config import JournalSettings, LogSettings, QueueSettings, Settings
from pixiu.machines.queue_wire import requests as wire
from pixiu.machines.queue_wire.messages import Message
from pixiu.ports.transport import Link, Receiver
from pixiu.queue.engine import Engine
from pixiu.queue.replication.driver import Replication
from pixiu.queue.server.commands import HANDLERS
from pixiu.queue.server.connection import READ_AHEAD_BYTES_MAX, Connection
from pixiu.queue.server.server import QueueServer
from pixiu.queue.server.subscriptions import Subscription
from pixiu.testing.disk import SimulatedDisk
from pixiu.testing.keyvalue import SimulatedKeyValue, StoreContent
from pixiu.testing.queue.clients import Wire
from pixiu.testing.scheduler import SimulatedClock, SimulatedScheduler
from tests.fuzz.requests import cuts, pieces, requests, spoiled

pytestmark = pytest.mark.feature("QA5", "QD1", "W39")

PAYLOAD_BYTES_MAX = 4096
HELD_BYTES_MAX = PAYLOAD_BYTES_MAX + 1024 + 20 + 65535 + 255 + 20
TAKEN_BYTES_MAX = HELD_BYTES_MAX + READ_AHEAD_BYTES_MAX
SLOWLY = settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow])


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


class NoLinks:
    def connect(self, address: str, receiver: Receiver, *, timeout_ms: int) -> Link:
        raise AssertionError(f"nobody asked to follow {address}")


class Queue:
    """A queue in a known state: topics t (with five messages) and u."""

    def __init__(self) -> None:
        rng = random.Random(1)
        clock = SimulatedClock()
        self.scheduler = SimulatedScheduler(clock, rng, slow_us=0, pause_chance=0)
        disk = SimulatedDisk(rng, now_ms=clock.now_ms)
        set_to = Settings(
            queue=QueueSettings(payload_bytes_max=PAYLOAD_BYTES_MAX, open_topics_max=8),
            journal=JournalSettings(free_bytes_min=0, segment_bytes=4096),
            log=LogSettings(sample=0),
        )
        store = SimulatedKeyValue(StoreContent())
        self.engine = Engine(set_to, disk, store, clock, self.scheduler, key="0" * 64)
        self.engine.recover()
        self.server = QueueServer(self.engine, HANDLERS, connections_max=20)
        replication = Replication(self.engine, name="alone", follow=None, links=NoLinks(), restart=lambda: None)
        self.engine.replication = replication
        self.engine.start()
        self.server.start()
        replication.start()
        setup = wire.encode_create_topic(b"t") + wire.encode_create_topic(b"u")
        setup += b"".join(wire.encode_pub(b"t", Message(b"message %d" % n).encode()) for n in range(5))
        assert self.feed([setup]) == (b"\xc8" + bytes(9)) * 7

    def feed(self, parts: list[bytes], *, wait_ms: float = 20) -> bytes:
        """What the server says to these bytes on one connection."""
        line = Wire(self.server, self.scheduler)
        for part in parts:
            if line.is_closed:
                break
            line.send(part)
            self.scheduler.run_ready()
            held = held_by(line.connection)
            assert held <= HELD_BYTES_MAX + len(part) + READ_AHEAD_BYTES_MAX, f"{held} bytes are kept"
        self.scheduler.run_for(wait_ms)
        said = bytes(line.said)
        line.hang_up()
        self.scheduler.run_for(1)
        return said

    def check(self) -> None:
        """Whoever makes sense is still served, and nobody is left over."""
        assert self.feed([wire.encode_alive()]) == b"\xc9" + bytes(9)
        assert self.feed([wire.encode_hello()])[:2] == b"\xc8\0"
        assert not self.server.connections
        assert self.engine.counters.subscribers == 0
        assert self.engine.counters.followers == 0

    def close(self) -> None:
        self.scheduler.close()


def held_by(connection: Connection) -> int:
    """Bytes of the peer that a connection keeps."""
    held = sum(map(len, connection._parts))
    stream = connection._stream
    if isinstance(stream, Subscription):
        held += len(stream._acks)
    return held + len(getattr(stream, "_unread", b""))


def feed(data: bytes, at: list[int]) -> None:
    queue = Queue()
    try:
        queue.feed(pieces(data, at), wait_ms=40_000)
        queue.check()
    finally:
        queue.close()


@SLOWLY
@given(data=st.binary(max_size=600), at=cuts)
def test_noise(data: bytes, at: list[int]) -> None:
    feed(data, at)


@SLOWLY
@given(data=spoiled(), at=cuts)
def test_requests_that_were_spoiled(data: bytes, at: list[int]) -> None:
    feed(data, at)


@SLOWLY
@given(parts=st.lists(requests(), min_size=1, max_size=8), at=cuts)
def test_requests_in_any_order(parts: list[bytes], at: list[int]) -> None:
    feed(b"".join(parts), at)


STREAMS_AND_SIZES = {0, 64, 130, 135, 137, 139, 146}


@SLOWLY
@given(parts=st.lists(requests().filter(lambda r: r[0] not in STREAMS_AND_SIZES), min_size=1, max_size=8), at=cuts)
def test_how_requests_are_cut_into_pieces_changes_no_answer(parts: list[bytes], at: list[int]) -> None:
    """What a stream sends, what Status says of sizes and what Challenge asks differs each time; the rest does not."""
    data = b"".join(parts)
    whole, cut = Queue(), Queue()
    try:
        assert cut.feed(pieces(data, at)) == whole.feed([data])
    finally:
        whole.close()
        cut.close()


@pytest.mark.parametrize("command", [0, 1, 2, 3, 16, 17, 64, 65, 99, 100, *range(128, 142), 159, 255])
@pytest.mark.parametrize("size", [2**16, 2**32 - 1])
def test_claims_of_any_size_keep_no_more_than_the_bound(command: int, size: int) -> None:
    queue = Queue()
    head = bytes([command]) + (1).to_bytes(2, "little") + size.to_bytes(4, "little") + b"\1" + bytes(11) + b"\0" + b"t"
    try:
        queue.feed([head, *[b"\0" * 65536] * 24], wait_ms=10)
        queue.check()
    finally:
        queue.close()


def is_paused(line: Wire) -> bool:
    """Does the server leave the socket alone?"""
    return line.is_paused


def test_a_flood_behind_a_command_that_waits_is_not_read() -> None:
    """Bytes that come while earlier commands wait are kept up to a bound; then the socket is left alone."""
    queue = Queue()
    line = Wire(queue.server, queue.scheduler)
    line.send(wire.encode_create_topic(b"waits"))
    sent = 0
    while not is_paused(line) and sent < 10 * TAKEN_BYTES_MAX:
        line.send(wire.encode_alive() * 1000)
        sent += 20_000
    assert is_paused(line)
    assert held_by(line.connection) <= READ_AHEAD_BYTES_MAX + 20_000
    queue.scheduler.run_for(10)
    assert not is_paused(line)
    assert len(line.said) == 10 + sent // 2
    queue.close()


def test_acks_that_nobody_asked_for_end_the_connection() -> None:
    queue = Queue()
    line = Wire(queue.server, queue.scheduler)
    line.send(wire.encode_sub(b"u", b"s", after=0))
    queue.scheduler.run_ready()
    for _ in range(100):
        line.send(bytes(1000))
        if line.is_closed:
            break
    assert line.is_closed
    assert held_by(line.connection) <= 2000
    queue.close()


@pytest.mark.long
def test_guided_by_coverage() -> None:
    """The fuzzer of ``make fuzz``, for a few minutes; it is installed by ``make fuzz`` only."""
    pytest.importorskip("atheris", reason="the coverage-guided fuzzer is not installed; make fuzz installs it")
    root = Path(__file__).parents[2]
    found = subprocess.run(
        [sys.executable, str(root / "tools" / "fuzz_wire.py"), "-max_total_time=300"],
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr[-4000:]
