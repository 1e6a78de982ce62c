"""X41: a session ends once, and it is said why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pixiu.machines.wire import LogOut, encode
from pixiu.machines.wire.codec import decode
from pixiu.model.errors import RemoteProtocolError
from pixiu.model.session import LOGOUT_CAUSES
from tests.roles.gateway.scene import Scene

if TYPE_CHECKING:
    from pixiu.model.session import LogoutCause


LENGTH = 4
"""Bytes before a frame's kind."""


@pytest.mark.feature("X41")
def test_quitting_a_heartbeat_that_stays_away_and_a_failed_write_end_a_session_once_each_with_its_cause() -> None:
    scene = Scene(ping_interval_ms=1_000, idle_timeout_ms=3_000)
    quits, _ = scene.open("u1")
    quits.lost()
    silent, _ = scene.open("u2")
    scene.run(10_000)
    broken, _ = scene.open("u3")
    broken.lost("send_error")
    slow, _ = scene.open("u4")
    slow.kick("slow")
    kicked, _ = scene.open("u5")
    kicked.kick("new_session")
    for connection in (quits, silent, broken, slow, kicked):
        connection.lost("send_error")  # what the socket says afterwards changes nothing
    assert scene.messaging.causes == ["quit", "timeout", "send_error", "send_error", "server"]
    assert scene.messaging.gone == [1000, 1001, 1002, 1003, 1004]


@pytest.mark.feature("X41")
@pytest.mark.parametrize("cause", sorted(LOGOUT_CAUSES))
def test_a_gateway_process_tells_the_cause(cause: LogoutCause) -> None:
    assert decode(encode(LogOut(7, cause))[LENGTH:]) == LogOut(7, cause)


def test_a_cause_that_there_is_not_is_no_message() -> None:
    spoilt = encode(LogOut(7, "quit")).replace(b"quit", b"tuiq")
    with pytest.raises(RemoteProtocolError, match="does not end by"):
        decode(spoilt[LENGTH:])
