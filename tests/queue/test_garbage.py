"""Garbage from the network never crashes, hangs or confuses the queue, nor the client's readers.

``make fuzz`` takes the same harness further, guided by coverage.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tools.fuzz_wire import ALIVE, ALIVE_ANSWER, QueueUnderFuzz, feed_client, split

COMMANDS = [0, 1, 2, 3, 16, 17, 64, 65, 99, 100, 101, *range(128, 142)]
NAMES = [b"", b"order", b"pixiu.x", b"..", b"a/b", "订单".encode(), b"x" * 129]


@st.composite
def almost_requests(draw: st.DrawFn) -> bytes:
    """A request whose fields mostly fit, and sometimes do not."""
    command = draw(st.sampled_from(COMMANDS))
    name = draw(st.sampled_from(NAMES))
    part = draw(st.binary(max_size=60))
    stated = draw(st.sampled_from([0, 1, 8, 9, len(part), len(part), len(part), len(part) - 8, 70_000, 2**31]))
    own = max(stated, 0).to_bytes(4, "little") + draw(st.binary(min_size=12, max_size=12))
    return bytes([command]) + len(name).to_bytes(2, "little") + own + b"\0" + name + part


@pytest.fixture(scope="module")
def queue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueueUnderFuzz]:
    folder = tmp_path_factory.mktemp("garbage")
    running = QueueUnderFuzz(Path(folder))
    yield running
    running.engine.stop()


SLOWLY = settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.feature("QA5", "QD1")
@SLOWLY
@given(data=st.binary(max_size=400), size=st.integers(0, 50))
def test_noise_is_survived(queue: QueueUnderFuzz, data: bytes, size: int) -> None:
    queue.feed(split(data, size))
    queue.check()


@pytest.mark.feature("QA5", "QD1")
@SLOWLY
@given(requests=st.lists(almost_requests(), max_size=6), size=st.integers(0, 30))
def test_requests_that_do_not_add_up_are_survived(queue: QueueUnderFuzz, requests: list[bytes], size: int) -> None:
    queue.feed(split(b"".join(requests), size))
    queue.check()


@SLOWLY
@given(count=st.integers(1, 20), size=st.integers(1, 25))
def test_sense_in_any_pieces_is_answered(queue: QueueUnderFuzz, count: int, size: int) -> None:
    assert queue.feed(split(ALIVE * count, size)) == ALIVE_ANSWER * count


@SLOWLY
@given(choice=st.integers(0, 4), data=st.binary(max_size=300), size=st.integers(0, 40))
def test_the_clients_readers_raise_nothing_but_protocol_errors(choice: int, data: bytes, size: int) -> None:
    feed_client(choice, split(data, size))
