"""A port that somebody has: which setting it is, who that is, and the way out."""

import errno
import os
import socket
from dataclasses import replace

import pytest

from pixiu.config import Settings
from pixiu.node.listening import why_not_listening


@pytest.mark.parametrize("http, option", [(True, "--queue-port 0"), (False, "--port 0")])
def test_a_taken_port_is_named_with_its_setting_its_holder_and_the_way_out(http: bool, option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        settings = replace(Settings(), queue=replace(Settings().queue, port=port))
        error = OSError(errno.EADDRINUSE, f"error while attempting to bind on address ('127.0.0.1', {port})")
        said = why_not_listening(error, settings, http=http)
    assert f"port {port} (queue.port) is in use by pid {os.getpid()}" in said
    assert option in said


def test_what_is_no_taken_port_is_said_as_it_is() -> None:
    assert why_not_listening(OSError(errno.EACCES, "Permission denied"), Settings(), http=True) == "Permission denied"


@pytest.mark.parametrize(
    "error", [OSError(errno.EADDRNOTAVAIL, "cannot assign"), socket.gaierror(socket.EAI_NONAME, "not known")]
)
@pytest.mark.parametrize("setting", ["queue.host", "http.host"])
def test_an_address_of_another_machine_is_named_with_its_setting(error: OSError, setting: str) -> None:
    part = setting.partition(".")[0]
    settings = replace(Settings(), **{part: replace(getattr(Settings(), part), host="192.0.2.7")})
    said = why_not_listening(error, settings, http=True)
    assert f"{setting} is 192.0.2.7, which is no address of this machine" in said and "0.0.0.0" in said


def test_two_settings_with_one_port_are_both_named() -> None:
    """Nobody else has it: the node itself does."""
    settings = replace(Settings(), queue=replace(Settings().queue, port=8400), http=replace(Settings().http, port=8400))
    said = why_not_listening(OSError(errno.EADDRINUSE, "in use"), settings, http=True)
    assert said == "queue.port and http.port are both 8400: each needs a port of its own"
    assert "http.port" not in why_not_listening(OSError(errno.EADDRINUSE, "in use"), settings, http=False)
