"""A delivery in random weather loses nothing and never stalls; put a seed's error back, and the weather finds it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pixiu.machines.delivery import NOTHING, Command, Delivery, Push
from tests.machines.one_user import App, run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pixiu.config import InboxSettings
    from pixiu.model.session import Session


@pytest.mark.sim
@pytest.mark.feature("E20", "E22", "E23", "E24", "E43", "X63", "X66", "X67")
@pytest.mark.parametrize("loss", [0.0, 0.1, 0.3])
def test_every_message_arrives_once_and_in_order(loss: float) -> None:
    pushes = messages = 0
    for seed in range(100):
        world = run(seed, loss)
        assert not world.failure, f"seed {seed}, loss {loss}: {world.failure}"
        assert world.app.seen == sorted(set(world.app.seen))
        pushes += world.pushes
        messages += world.messages
    assert pushes / messages < 6  # repeats are the price of loss, within reason


class LogoutSettlesWhatWasSent(Delivery):
    """E22."""

    __slots__ = ()

    def _settled_by_logout(self) -> int:
        return self.items[self.sent - 1].useq if self.sent else self.acked_through


class NoResend(Delivery):
    """E23."""

    __slots__ = ()

    def ack_timed_out(self) -> Sequence[Command]:
        return NOTHING


class NoRequestTimeout(Delivery):
    """E23."""

    __slots__ = ()

    def request_timed_out(self) -> Sequence[Command]:
        return NOTHING


class ReadsFromTheBeginning(Delivery):
    """E20."""

    __slots__ = ()

    def _read_after(self) -> int:
        return 0


class HeartbeatIsNoLogin(Delivery):
    """A lost login is never made good."""

    __slots__ = ()

    def heartbeat(self, session: Session) -> Sequence[Command]:
        return super().heartbeat(session) if self.session == session else NOTHING


class AnyLogoutEndsIt(Delivery):
    """E43."""

    __slots__ = ()

    def _is_current(self, session_id: int) -> bool:
        return True


class AnyLogoutEndsItForGood(HeartbeatIsNoLogin):
    """E43, without the heartbeat that repairs it."""

    __slots__ = ()

    def _is_current(self, session_id: int) -> bool:
        return True


class ForgetsAWakeDuringAnEmptyRead(Delivery):
    """E24, the race of seed 004."""

    __slots__ = ()

    def _must_read_again(self) -> bool:
        return False


class IgnoresWhatComesBefore(App):
    """A client that takes whatever is newer."""

    def takes(self, push: Push) -> bool:
        return push.useq > self.last


@pytest.mark.sim
@pytest.mark.parametrize(
    ("make", "app"),
    [
        pytest.param(LogoutSettlesWhatWasSent, App, id="E22 a logout settles what was sent"),
        pytest.param(NoResend, App, id="E23 nothing is sent again"),
        pytest.param(NoRequestTimeout, App, id="E23 nothing is asked again"),
        pytest.param(ReadsFromTheBeginning, App, id="E20 reads from the beginning"),
        pytest.param(ForgetsAWakeDuringAnEmptyRead, App, id="E24 a wake during an empty read is forgotten"),
        pytest.param(HeartbeatIsNoLogin, App, id="a lost login is never made good"),
        pytest.param(AnyLogoutEndsIt, App, id="E43 any logout ends it"),
        pytest.param(AnyLogoutEndsItForGood, App, id="E43 any logout ends it for good"),
        pytest.param(Delivery, IgnoresWhatComesBefore, id="the client ignores previous_useq"),
    ],
)
def test_the_weather_finds(make: Callable[[InboxSettings], Delivery], app: type[App]) -> None:
    assert any(run(seed, loss, make, app()).failure for seed in range(100) for loss in (0.3, 0.0))
