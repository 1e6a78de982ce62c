"""Ports for servers: outside the ephemeral range, and held against outgoing connections."""

import errno
import socket
import subprocess

import pytest

from pixiu.model.errors import Unavailable
from pixiu.runtime import ports
from pixiu.runtime.ports import ephemeral_ports, free_ports, hold_port, is_free
from tests import private_network
from tests.servers import free_port

HOLD_ALL = """
from pixiu.runtime.ports import ephemeral_ports, free_ports, hold_port

assert ephemeral_ports() == range(1024, 65536), ephemeral_ports()
held = {port: hold_port("127.0.0.1", port) for port in free_ports(8)}
print("chosen", *held)
"""

USE_ALL = """
import errno, socket
from pixiu.runtime.ports import hold_port

server = socket.create_server(("127.0.0.1", 9000), backlog=100)
other = socket.create_server(("127.0.0.1", 30010))
held = hold_port("127.0.0.1", 30005)
used, kept = [], []
try:
    while True:
        kept.append(socket.create_connection(("127.0.0.1", 9000)))
        used.append(kept[-1].getsockname()[1])
except OSError as error:
    assert error.errno == errno.EADDRNOTAVAIL, error
assert len(used) >= 15 and not {30005, 30010} & set(used), sorted(used)
socket.create_server(("127.0.0.1", 30005)).close()
print("never used")
"""


def in_private_network(first: int, last: int, program: str) -> str:
    command = private_network.command(first, last, "-c", program)
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode == private_network.NOT_ALLOWED:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_chosen_ports_are_outside_the_ephemeral_range() -> None:
    chosen = free_ports(200)
    assert len(set(chosen)) == 200
    assert not set(chosen) & set(ephemeral_ports())
    assert min(chosen) >= 1024
    assert free_port() not in ephemeral_ports()


def test_ports_to_avoid_and_ports_in_use_are_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    avoided, taken, wanted = sorted(free_ports(3))
    monkeypatch.setattr(ports, "ephemeral_ports", lambda: range(avoided, wanted + 1))
    monkeypatch.setattr(ports, "FIRST", ports.UNPRIVILEGED)
    monkeypatch.setattr(ports, "LAST", ports.UNPRIVILEGED - 1)
    others = set(range(avoided, wanted)) - {taken}
    with socket.create_server(("127.0.0.1", taken)):
        assert free_ports(1, avoid=others) == [wanted]
        with pytest.raises(Unavailable, match="no 2 free ports"):
            free_ports(2, avoid=others)


def test_a_held_port_is_in_use_for_others_and_free_for_its_server() -> None:
    (port,) = free_ports(1)
    with hold_port("127.0.0.1", port):
        assert not is_free(port)
        assert port not in free_ports(50)
        with socket.socket() as client, pytest.raises(OSError) as refused:
            client.bind(("127.0.0.1", port))
        assert refused.value.errno == errno.EADDRINUSE
        with socket.create_server(("127.0.0.1", port)), pytest.raises(OSError):
            hold_port("127.0.0.1", port)
    assert is_free(port)


def test_a_held_port_is_no_source_port_where_all_others_are_used_up() -> None:
    assert in_private_network(30_000, 30_020, USE_ALL) == "never used\n"


def test_ports_are_chosen_where_the_ephemeral_range_is_everything() -> None:
    chosen = in_private_network(1024, 65_535, HOLD_ALL).split()
    assert chosen[0] == "chosen" and len(set(chosen[1:])) == 8
