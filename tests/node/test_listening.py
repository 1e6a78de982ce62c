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
