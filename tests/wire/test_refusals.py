"""A client that is refused reads why; one that sends half a request is not waited for."""

import pytest

from tests.servers import QueueProcess, wait_for
from tests.wire.bytes_by_hand import alive, message, pub
from tests.wire.fixtures import Connect, StartServer, open_sockets
from tests.wire.raw import Closed

LARGE = 24 * 2**20


@pytest.mark.feature("W39")
def test_a_payload_that_is_too_large_is_refused_with_a_text_that_arrives(
    server: QueueProcess, connect: Connect
) -> None:
    """The whole payload is sent before the answer is read, as smss's clients do."""
    for _ in range(3):
        raw = connect(server)
        raw.send(pub(b"any", message(bytes(LARGE))))
        assert raw.error() == "payload is too large"
        with pytest.raises(Closed):
            raw.read_exact(1)


@pytest.mark.feature("W39")
def test_a_refused_client_that_goes_on_sending_is_cut_at_a_bound(start_server: StartServer, connect: Connect) -> None:
    queue = start_server(queue__request_timeout_ms=500)
    raw = connect(queue)
    raw.send(pub(b"any", message(bytes(LARGE)))[:1024])
    assert raw.error() == "payload is too large"
    before = open_sockets(queue)
    wait_for(lambda: open_sockets(queue) < before, what="the silent client to be cut")
    raw = connect(queue)
    raw.send(pub(b"any", message(bytes(LARGE)))[:1024])
    with pytest.raises(OSError, match=r"reset|Broken pipe"):
        for _ in range(128 * 16):
            raw.send(bytes(2**16))


@pytest.mark.feature("W39")
def test_a_request_that_is_half_sent_is_refused_after_the_timeout(start_server: StartServer, connect: Connect) -> None:
    queue = start_server(queue__request_timeout_ms=400)
    whole = connect(queue)
    whole.create(b"t")
    request = pub(b"t", message(b"a message"))
    halves = [
        connect(queue).send(alive()[:7]),
        connect(queue).send(request[:-3]),
        connect(queue).send(alive() + request[:25]),
    ]
    halves[2].alive()
    for raw in halves:
        text = raw.error()
        assert text.startswith("request is incomplete: "), text
        assert "queue.request_timeout_ms" in text
        with pytest.raises(Closed):
            raw.read_exact(1)
    whole.send(request).ok()
    whole.send(request[:30])
    whole.send(request[30:]).ok()


@pytest.mark.feature("W39")
def test_a_request_that_drips_in_is_refused(start_server: StartServer, connect: Connect) -> None:
    queue = start_server(queue__request_timeout_ms=300)
    raw = connect(queue)
    raw.create(b"t")
    raw.send(pub(b"t", message(b"x" * 4000))[:25])
    raw.socket.settimeout(0.05)

    def is_refused() -> bool:
        raw.send(b"x")
        try:
            return bool(raw.socket.recv(1))
        except TimeoutError:
            return False

    wait_for(is_refused, what="the refusal")
