"""``rediss://``: the wheel's Valkey speaks no TLS, so a real TLS end stands before it."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pixiu.backends.redis.address import RedisAddress
from pixiu.backends.redis.stores import RedisStores
from pixiu.model.errors import Unavailable
from pixiu.ports.stores import Lane
from tests.certificates import Authority
from tests.engines import ValkeyProcess


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def tls_before(port: int, certificate: Path, key: Path) -> Iterator[int]:
    """A port that takes TLS and passes on what is inside."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    ends: list[socket.socket] = []

    def serve(listener: socket.socket) -> None:
        while True:
            try:
                raw, _ = listener.accept()
                near = context.wrap_socket(raw, server_side=True)
            except ssl.SSLError:
                continue
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", port))
            ends.extend((near, far))
            for pair in ((near, far), (far, near)):
                threading.Thread(target=_pass_on, args=pair, daemon=True).start()

    listener = socket.create_server(("127.0.0.1", 0))
    serving = threading.Thread(target=serve, args=(listener,), daemon=True)
    serving.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        serving.join(5)
        for end in ends:
            end.close()


def test_a_server_is_asked_through_tls_and_must_prove_who_it_is(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "pixiu-test")
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    authority.certify(certificate, key)
    with (
        ValkeyProcess(tmp_path / "valkey") as server,
        tls_before(server.port, certificate, key) as port,
    ):
        url = f"rediss://127.0.0.1:{port}"
        stores = RedisStores(RedisAddress.parse(f"{url}?ca={authority.path}"), "n1")
        stores.commit({Lane.INBOXES: 7})
        stores.close()
        with pytest.raises(Unavailable, match=r"(?i)certificate verify failed"):
            RedisStores(RedisAddress.parse(url), "n1")
        stores = RedisStores(RedisAddress.parse(f"{url}?verify=no"), "n1")
        assert stores.applied(Lane.INBOXES) == 7
        stores.close()
