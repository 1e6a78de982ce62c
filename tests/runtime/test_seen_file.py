"""What a gateway has shown is known to its next life, however the last one ended."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pixiu.config import LinkSettings, Settings
from pixiu.config.registry import RegistryAddress
from pixiu.config.rooms import RoomSettings
from pixiu.machines.listeners import Listeners
from pixiu.machines.room_link import Frame
from pixiu.machines.rooms import Fan
from pixiu.node.processes.gateway.seen import keep_seen
from pixiu.node.processes.options import RoleOptions
from pixiu.runtime.clock import SystemClock
from pixiu.runtime.seen_file import SLOT_BYTES, SeenFile

SETTINGS = RoomSettings(dedup_count=100)
FANS = [Fan(9, 71, b"one", is_reliable=True), Fan(9, 72, b"two", is_reliable=True)]


def options(data: Path, *, port: int = 8401, kept: bool = True) -> RoleOptions:
    settings = Settings(rooms=SETTINGS, links=LinkSettings(keep_shown=kept))
    address = RegistryAddress.parse("zk://127.0.0.1:1/x")
    return RoleOptions(role="gateway", registry=address, data=data, port=port, settings=settings)


def life(data: Path, fans: list[Fan], number: int) -> list[bytes]:
    """One life of a gateway: what its session in the room is shown."""
    clock = SystemClock()
    listeners = Listeners(SETTINGS)
    file = keep_seen(listeners.seen, options(data), clock)
    assert file is not None
    listeners.enter(9, number)
    deliveries, _ = listeners.receive("broker", Frame(number, 1, 1, 1, fans), clock.monotonic_us() // 1000)
    file.close()
    return [body for delivery in deliveries for body in delivery.bodies]


@pytest.mark.feature("X26")
def test_a_copy_that_comes_after_a_restart_is_dropped(tmp_path: Path) -> None:
    assert life(tmp_path, FANS[:1], 1) == [b"one"]
    assert life(tmp_path, FANS, 2) == [b"two"]
    assert life(tmp_path, FANS, 3) == []


@pytest.mark.feature("X26")
def test_also_when_the_process_was_killed(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from tests.runtime.test_seen_file import *\n"
        "listeners = Listeners(SETTINGS); clock = SystemClock(); data = Path(sys.argv[1])\n"
        "file = keep_seen(listeners.seen, options(data), clock)\n"
        "listeners.enter(9, 1)\n"
        "listeners.receive('broker', Frame(1, 1, 1, 1, FANS[:1]), clock.monotonic_us() // 1000)\n"
        "print('shown', flush=True); sys.stdin.read()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert process.stdout is not None and process.stdin is not None
    assert process.stdout.readline() == b"shown\n"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    process.stdin.close()
    assert life(tmp_path, FANS, 2) == [b"two"]


def test_a_ring_that_forgets_the_oldest_and_what_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "seen"
    file = SeenFile(path, 4)
    for number in range(1, 7):
        file.add(number, 9, 1_000 + number)
    assert [mark[0] for mark in file.load(0)] == [3, 4, 5, 6]
    assert [mark[0] for mark in file.load(1_005)] == [5, 6]
    with pytest.raises(BlockingIOError):
        SeenFile(path, 4)
    file.close()
    data = bytearray(path.read_bytes())
    data[24 + SLOT_BYTES + 3] ^= 1  # of the second slot, which holds 6
    path.write_bytes(data)
    again = SeenFile(path, 4)
    assert [mark[0] for mark in again.load(0)] == [3, 4, 5]
    again.add(7, 9, 2_000)
    assert [mark[0] for mark in again.load(0)] == [4, 5, 7]
    again.close()
    other = SeenFile(path, 8)  # another size: it begins anew
    assert other.load(0) == []
    other.close()
    path.write_bytes(b"something else")
    SeenFile(path, 4).close()


def test_without_a_port_or_a_wish_nothing_is_kept(tmp_path: Path) -> None:
    listeners, clock = Listeners(SETTINGS), SystemClock()
    assert keep_seen(listeners.seen, options(tmp_path, port=0), clock) is None
    assert keep_seen(listeners.seen, options(tmp_path, kept=False), clock) is None
    first = keep_seen(listeners.seen, options(tmp_path), clock)
    assert first is not None
    assert keep_seen(Listeners(SETTINGS).seen, options(tmp_path), clock) is None, "another process has it"
    first.close()
    assert keep_seen(listeners.seen, options(tmp_path / "nowhere"), clock) is None
