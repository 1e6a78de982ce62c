"""Reading the log in Kafka for those who are behind memory: never ahead of its owner, and never for long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("confluent_kafka")

from pixiu.ports.log import MAIN
from tests.kafka import require_kafka
from tests.kafka_port import Port, all_of, opened_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pixiu.backends.kafka.batch import Batch
    from tools.kafka_server import KafkaServer

pytestmark = [pytest.mark.engines, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    with require_kafka(tmp_path_factory.mktemp("kafka")) as server:
        yield server


@pytest.fixture
def open_port(kafka: KafkaServer) -> Iterator[Callable[..., Port]]:
    with opened_ports(kafka.hosts) as open_one:
        yield open_one


def said(port: Port, topic: str, payload: bytes) -> int:
    """Its event id."""
    done: list[Any] = []
    port.log.publish(topic, payload, done.append)
    port.until(lambda: bool(done))
    assert isinstance(done[0], int), done
    return done[0]


def test_a_feed_is_not_given_what_its_owner_does_not_know_of(open_port: Callable[..., Port]) -> None:
    """Kafka has committed it, and the answer is on its way: a feed that had it would be refused when it comes back."""
    port = open_port(tail_bytes_max=1)
    known = [said(port, MAIN, b"%d" % number) for number in range(5)][-1]
    held: list[Callable[[], None]] = []
    sending = port.log.sending
    sent = sending._sent

    def hold(batch: Batch, offsets: list[int], error: BaseException | None) -> None:
        held.append(lambda: sent(batch, offsets, error))

    sending._sent = hold  # type: ignore[method-assign]
    port.log.publish(MAIN, b"written, and not known")
    port.until(lambda: bool(held))
    came: list[Any] = []
    port.served.read_behind(0, came.append)
    port.until(lambda: bool(came))
    assert [piece.last for piece in came[0]] == [known] == [port.log.committed]
    sending._sent = sent  # type: ignore[method-assign]
    held[0]()
    assert port.log.committed == known + 1
    assert port.run(all_of(port)) == [*(b"%d" % number for number in range(5)), b"written, and not known"]
