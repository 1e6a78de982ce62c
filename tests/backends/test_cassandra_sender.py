"""The thread that writes to Cassandra outlives whatever comes of asking: nobody else would ask again."""

from typing import TYPE_CHECKING, Any, cast

import pytest

from pixiu.backends.cassandra.job import Job
from pixiu.backends.cassandra.layout import Layout
from pixiu.backends.cassandra.sender import Sender

if TYPE_CHECKING:
    from pixiu.backends.cassandra.link import Link


class Odd(Exception):
    """What no list of errors has: a driver's bug, or an answer of a server that is starting."""


class OddLink:
    """Fails in odd ways a few times, then takes everything."""

    def __init__(self, failures: int) -> None:
        self.layout = Layout("default")
        self.problem = ""
        self.tripped: list[str] = []
        self.written: list[Any] = []
        self._left = failures

    def _fail(self) -> None:
        if self._left:
            self._left -= 1
            raise Odd("is starting")

    def write(self, writes: Any) -> None:
        self._fail()
        self.written += writes

    def trip(self, error: Exception) -> None:
        self.problem = str(error)
        self.tripped.append(type(error).__name__)

    def probe(self) -> bool:
        self._fail()
        self.problem = ""
        return True


@pytest.mark.feature("B08")
def test_odd_errors_of_a_write_and_of_probes_are_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pixiu.backends.cassandra.sender.PROBE_SECONDS", 0.01)
    link = OddLink(failures=4)
    sender = Sender(cast("Link", link), 0)
    try:
        sender.send(Job(1, 7, 7, [], [], {}, []))
        assert sender.wait(1, 20)
        assert (sender.position, link.problem) == (7, "")
        assert link.tripped == ["Odd"] * 4
        assert link.written
        link.trip(Odd("again"))  # and while nothing waits
        sender.send(Job(2, 0, 8, [], [], {}, []))
        assert sender.wait(2, 20)
    finally:
        sender.close()
