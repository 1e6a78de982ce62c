"""What handling a turn's talk as one batch gains over one message at a time, sealed datagrams included (X22)."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

import pytest

from pixiu.machines.links.codec import TALK, encode
from pixiu.machines.links.messages import Talk
from pixiu.machines.scheduling import Priority
from pixiu.testing.cluster.world import Cluster, Node

if TYPE_CHECKING:
    from collections.abc import Callable

MESSAGES = 4_096
BATCH = 64


def passed_on(batch: int) -> tuple[float, int, int]:
    """Pass everything on, so many in a turn. Returns messages a second of CPU, how many went, in how many datagrams."""
    cluster = Cluster(random.Random(4), brokers=2)
    cluster.add_gateway()
    cluster.add_router()
    cluster.add_broker(0)
    cluster.add_broker(1)
    proxy: Node = cluster.add_proxy()
    assert cluster.run_until(lambda: bool(proxy.member.path))
    cluster.run(2_000)
    handle, sent = proxy.endpoint._talks, [0]
    assert handle is not None
    talks: list[tuple[int, tuple[int, bytes] | Talk]] = [
        (99, (TALK, encode(Talk(0, n % 16, n + 1, 99, 0, Priority.CHAT, is_reliable=False, body=b"x" * 100))))
        for n in range(MESSAGES)
    ]

    class Counted:
        """The way out: it is never full, and loses nothing."""

        is_full = False
        when_free: Callable[[], object] = staticmethod(lambda: None)

        def send(self, _address: str, _data: bytes) -> bool:
            sent[0] += 1
            return True

    proxy.way.datagrams = Counted()
    role = getattr(handle, "__self__")  # noqa: B009 - the RoomProxy behind the endpoint
    before, began = role.passed, time.process_time()
    for start in range(0, MESSAGES, batch):
        handle(talks[start : start + batch])
        cluster.run(0.0)
    spent = time.process_time() - began
    return MESSAGES / spent, role.passed - before, sent[0]


@pytest.mark.feature("X22")
def test_the_gain_of_batches_is_measured_and_nothing_is_lost_by_it(capsys: pytest.CaptureFixture[str]) -> None:
    one, one_passed, one_datagrams = passed_on(1)
    many, many_passed, many_datagrams = passed_on(BATCH)
    assert one_passed == many_passed == MESSAGES
    assert many_datagrams * 4 < one_datagrams, "a turn's talk for one broker shares datagrams"
    with capsys.disabled():
        print(f"\nproxy: {one:,.0f} messages per CPU second one by one, {many:,.0f} in batches: {many / one:.1f} x")
