"""An owner of a log in Kafka with its port, for tests that ask it as the roles of a cluster do."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pixiu.backends.kafka.served.commands import KAFKA_HANDLERS
from pixiu.backends.kafka.served.served import ServedLog
from pixiu.backends.queue_log import RemoteLog
from pixiu.config import QueueSettings
from pixiu.queue.client import Client
from pixiu.queue.server.server import QueueServer
from pixiu.runtime.scheduler import LoopScheduler
from pixiu.runtime.server import address_of, listen
from tests.kafka import Driven, new_prefix
from tests.remote_logs import arrived, read_all

__all__ = ["KEY", "Port", "all_of", "opened_ports"]

KEY = "the key of this cluster"


class Port(Driven):
    """One owner of a log, and its port."""

    def __init__(self, hosts: str, prefix: str, **more: Any) -> None:
        tail_bytes_max = more.pop("tail_bytes_max", 2**20)
        super().__init__(hosts, prefix, **more)
        self.reading = LoopScheduler(self.loop)
        self.served = ServedLog(
            self.log.address, {}, QueueSettings(), self.clock, self.scheduler, self.reading, keys=(KEY,),
            tail_bytes_max=tail_bytes_max,
        )  # fmt: skip
        self.server = QueueServer(self.served, KAFKA_HANDLERS, connections_max=100)
        self.listener = self.run(listen(self.server.connection, "127.0.0.1", 0))
        self.address = address_of(self.listener)
        self.open(applied=2**62, finished=2**62)
        self.served.begin(self.log, 1)

    def close(self) -> None:
        """As a process that ends."""
        if not self._is_closed:
            self.served.end()
            self.listener.close()
            self.server.close_all()
            self.served.close()
            self.pass_ms(1)
            self.reading.close()
            super().close()


@contextmanager
def opened_ports(hosts: str) -> Iterator[Callable[..., Port]]:
    """Owners that are closed in the end; the same prefix again is the same log."""
    opened: list[Port] = []

    def open_one(prefix: str = "", **more: Any) -> Port:
        opened.append(Port(hosts, prefix or new_prefix(), **more))
        return opened[-1]

    yield open_one
    for port in opened:
        port.close()


async def all_of(port: Port) -> list[bytes]:
    """Everything that was said, as a carrier gets it."""
    async with Client(port.address, key=KEY) as client:
        log = RemoteLog(client)
        log.follow(0, lambda: None)
        await arrived(log, port.log.committed)
        found = [record.payload for record in read_all(log)]
        await log.close()
    return found
