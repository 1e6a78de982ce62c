"""The contract of timelines on Cassandra, in every layout and every state that a row can be in."""

from collections.abc import Iterator

import pytest

from pixiu.backends.cassandra.address import Address
from pixiu.backends.cassandra.timelines import CassandraTimelines
from pixiu.backends.memory.stores import MemoryStores
from pixiu.backends.mixed import MixedStores
from pixiu.ports.stores import Lane, Stores
from tests.contracts.timelines import TimelinesContract
from tools.cassandra_server import CassandraServer

pytestmark = pytest.mark.engines

KINDS = [
    "default pending", "default sent", "default committed", "default reopened",
    "seed committed", "bucketed reopened",
]  # fmt: skip


class OnCassandra(TimelinesContract):
    """``pending`` never commits, ``sent`` does not wait for it, ``reopened`` starts anew after each commit."""

    @pytest.fixture(params=KINDS, autouse=True)
    def prepare(self, request: pytest.FixtureRequest, cassandra: CassandraServer) -> Iterator[None]:
        layout, self._kind = str(request.param).split()
        self._address = Address(
            hosts=(cassandra.host,),
            port=cassandra.port,
            keyspace=f"contract_{layout}",
            layout=layout,
            timeout_ms=10_000,
        )
        self._base = MemoryStores()
        self._part = self._opened()
        self._part.clear()
        yield
        self._part.close()

    def _opened(self) -> CassandraTimelines:
        return CassandraTimelines(self._address, self._base.bodies.get)

    def stores(self) -> Stores:
        return MixedStores(self._base, [self._base, self._part], timelines=self._part)

    def settle(self) -> None:
        if self._kind != "pending":
            self.stores().commit({})
        if self._kind in ("committed", "reopened"):
            self._part.flush()
        if self._kind == "reopened":
            self._part.close()
            self._part = self._opened()


class TestTimelines(OnCassandra):
    pass


def test_a_lane_is_as_far_as_what_was_acknowledged(cassandra: CassandraServer) -> None:
    address = Address(hosts=(cassandra.host,), port=cassandra.port, keyspace="lanes")
    part = CassandraTimelines(address, lambda _: {})
    part.commit({Lane.TIMELINES: 7, Lane.INBOXES: 9})
    part.flush()
    assert part.applied(Lane.TIMELINES) == 7
    part.close()
    again = CassandraTimelines(address, lambda _: {})
    try:
        assert again.has_position
        assert again.applied(Lane.TIMELINES) == 7
        assert again.applied(Lane.INBOXES) > 2**62
    finally:
        again.close()
