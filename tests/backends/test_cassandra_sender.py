"""The thread that writes to Cassandra outlives whatever comes of asking: nobody else would ask again."""

from typing import TYPE_CHECKING, Any, cast

import pytest

from pixiu.backends.cassandra.job import Job
from pixiu.backends.cassandra.layout import Layout
from pixiu.backends.cassandra.sender import Sender
from tests.servers import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

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

    def probe(self, mend: "Callable[[], object]") -> bool:
        self._fail()
        if self.problem:
            mend()
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


@pytest.mark.feature("B08")
def test_what_was_written_lately_is_written_again_when_it_has_been_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """It had acknowledged that, and may not have had it on its disk. Ids never seem lower than they were."""
    monkeypatch.setattr("pixiu.backends.cassandra.sender.PROBE_SECONDS", 0.01)
    monkeypatch.setattr("pixiu.backends.cassandra.sender.KEPT_LOOKS", 1 << 30)
    link = OddLink(failures=0)
    sender = Sender(cast("Link", link), 0)
    try:
        for number in (1, 2):
            sender.send(Job(number, 10 * number, 100 * number, [], [], {}, []))
        assert sender.wait(2, 20)
        link.written.clear()
        link.trip(Odd("away"))
        wait_for(lambda: not link.problem, what="it to be asked again")
        said = [(name, *values[1:2]) for parts in link.written for name, values in parts]
        assert said == [("rise", 20), ("rise", 20), ("reach", 200)]
        sender.forget()
        link.written.clear()
        link.trip(Odd("away"))
        wait_for(lambda: not link.problem, what="it to be asked again")
        assert not link.written
    finally:
        sender.close()
