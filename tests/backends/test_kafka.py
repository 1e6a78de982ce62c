"""The log on a real Kafka: the contract."""

from collections.abc import Callable, Iterator

import pytest

from pixiu.ports.log import Log
from tests.contracts.log import LogContract
from tests.kafka import Driven, new_prefix, require_kafka
from tools.kafka_server import KafkaServer

pytestmark = pytest.mark.engines


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    with require_kafka(tmp_path_factory.mktemp("kafka")) as server:
        yield server


class TestKafkaLog(LogContract):
    @pytest.fixture(autouse=True)
    def server(self, kafka: KafkaServer) -> None:
        self.hosts, self.prefix = kafka.hosts, new_prefix()

    def start(self) -> Log:
        self.driven = Driven(self.hosts, self.prefix)
        return self.driven.open()

    def restart(self) -> Log:
        self.driven.close()
        return self.start()

    def stop(self) -> None:
        self.driven.close()

    def until(self, condition: Callable[[], bool]) -> None:
        self.driven.until(condition)

    def pass_ms(self, milliseconds: float) -> None:
        self.driven.pass_ms(milliseconds)

    def now_ms(self) -> int:
        return self.driven.clock.now_ms()
