"""TLS (T4) with real certificates on loopback: 1.2 and up, renewed without a restart, plaintext refused."""

import asyncio
import datetime
import os
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from pixiu.api.server import HttpServer
from pixiu.config.security import SecuritySettings
from pixiu.model.errors import ConfigError
from pixiu.runtime.certificates import Certificates, certificates_from, client_context
from tests.api.world import open_world
from tests.certificates import Authority

pytestmark = pytest.mark.feature("T4")

REQUEST = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "authority")


@pytest.fixture
def pair(tmp_path: Path, authority: Authority) -> tuple[Path, Path]:
    certificate, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    authority.certify(certificate, key)
    return certificate, key


@asynccontextmanager
async def serving(folder: Path, certificates: Certificates) -> AsyncIterator[int]:
    async with open_world(folder / "data") as world:
        sock = socket.create_server(("127.0.0.1", 0))
        server = HttpServer(world.api, sock, tls=certificates.context)
        await server.start()
        try:
            yield sock.getsockname()[1]
        finally:
            await server.stop()


async def ask(port: int, context: ssl.SSLContext) -> tuple[bytes, int, str]:
    """The answer, the certificate's serial number, and the version of TLS."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="localhost")
    try:
        inside = writer.get_extra_info("ssl_object")
        shown = x509.load_der_x509_certificate(inside.getpeercert(binary_form=True))
        writer.write(REQUEST)
        async with asyncio.timeout(5):
            return await reader.read(), shown.serial_number, inside.version()
    finally:
        writer.close()


async def test_a_request_over_tls(tmp_path: Path, authority: Authority, pair: tuple[Path, Path]) -> None:
    async with serving(tmp_path, Certificates(*pair)) as port:
        answer, _, version = await ask(port, client_context(authority.path))
        assert answer.startswith(b"HTTP/1.1 200")
        assert b"strict-transport-security" in answer
        assert version == "TLSv1.3"


@pytest.mark.parametrize(("version", "works"), [("TLSv1_1", False), ("TLSv1_2", True), ("TLSv1_3", True)])
@pytest.mark.filterwarnings("ignore:.*TLSv1_1 is deprecated.*:DeprecationWarning")
async def test_nothing_below_1_2(
    tmp_path: Path, authority: Authority, pair: tuple[Path, Path], version: str, works: bool
) -> None:
    context = ssl.create_default_context(cafile=authority.path)
    context.set_ciphers("ALL:@SECLEVEL=0")  # otherwise this client itself would refuse the old version
    context.minimum_version = context.maximum_version = ssl.TLSVersion[version]
    async with serving(tmp_path, Certificates(*pair)) as port:
        if works:
            assert (await ask(port, context))[2] == version.replace("_", ".")
        else:
            with pytest.raises((ssl.SSLError, OSError)):
                await ask(port, context)


async def test_plaintext_is_refused(tmp_path: Path, authority: Authority, pair: tuple[Path, Path]) -> None:
    async with serving(tmp_path, Certificates(*pair)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(REQUEST)
        async with asyncio.timeout(5):
            answer = await asyncio.gather(reader.read(), return_exceptions=True)
        assert not isinstance(answer[0], bytes) or b"HTTP" not in answer[0]
        writer.close()
        assert (await ask(port, client_context(authority.path)))[0].startswith(b"HTTP/1.1 200")


async def test_a_renewed_certificate_is_taken_without_a_restart(
    tmp_path: Path, authority: Authority, pair: tuple[Path, Path]
) -> None:
    certificates = Certificates(*pair)
    context = client_context(authority.path)
    async with serving(tmp_path, certificates) as port:
        first = (await ask(port, context))[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="localhost")
        certificates.watch(asyncio.get_running_loop(), interval_ms=10)
        second = authority.certify(*pair, days=90)
        async with asyncio.timeout(10):
            while (await ask(port, context))[1] == first:
                await asyncio.sleep(0.01)
        assert (await ask(port, context))[1] == second
        assert certificates.problem is None
        remaining = certificates.expires_at / 1000 - datetime.datetime.now(datetime.UTC).timestamp()
        assert 89 < remaining / 86400 < 91
        writer.write(REQUEST)  # a connection of before goes on
        assert (await reader.read()).startswith(b"HTTP/1.1 200")
        writer.close()
        certificates.close()


def test_it_is_the_same_on_the_loop_of_the_server(
    tmp_path: Path, authority: Authority, pair: tuple[Path, Path]
) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(test_a_renewed_certificate_is_taken_without_a_restart(tmp_path, authority, pair))


@pytest.mark.parametrize("damage", ["nonsense", "other key", "gone"])
async def test_a_bad_renewal_changes_nothing(
    tmp_path: Path, authority: Authority, pair: tuple[Path, Path], damage: str
) -> None:
    certificate, key = pair
    certificates = Certificates(certificate, key)
    context = client_context(authority.path)
    async with serving(tmp_path, certificates) as port:
        first = (await ask(port, context))[1]
        if damage == "gone":
            certificate.unlink()
        elif damage == "nonsense":
            certificate.write_bytes(b"nonsense")
        else:
            authority.certify(certificate, tmp_path / "another-key.pem")
        assert not certificates.reload_if_changed()
        assert str(certificate) in str(certificates.problem)
        assert (await ask(port, context))[1] == first
        second = authority.certify(certificate, key)
        assert certificates.reload_if_changed()
        assert certificates.problem is None
        assert (await ask(port, context))[1] == second


async def test_only_certified_clients_where_that_is_asked_for(
    tmp_path: Path, authority: Authority, pair: tuple[Path, Path]
) -> None:
    client, client_key = tmp_path / "client.pem", tmp_path / "client-key.pem"
    stranger, stranger_key = tmp_path / "stranger.pem", tmp_path / "stranger-key.pem"
    authority.certify(client, client_key)
    Authority(tmp_path, "elsewhere").certify(stranger, stranger_key)
    async with serving(tmp_path, Certificates(*pair, client_ca=authority.path)) as port:
        answer, _, _ = await ask(port, client_context(authority.path, client, client_key))
        assert answer.startswith(b"HTTP/1.1 200")
        for certificate, key in ((None, None), (stranger, stranger_key)):
            try:
                answer, _, _ = await ask(port, client_context(authority.path, certificate, key))
            except OSError:  # ssl.SSLError among them
                answer = b""
            assert b"HTTP/1.1" not in answer


async def test_a_server_of_another_authority_is_not_believed(tmp_path: Path, pair: tuple[Path, Path]) -> None:
    other = Authority(tmp_path, "elsewhere")
    async with serving(tmp_path, Certificates(*pair)) as port:
        with pytest.raises(ssl.SSLCertVerificationError):
            await ask(port, client_context(other.path))


def test_settings_decide_and_what_is_missing_refuses_the_start(tmp_path: Path, pair: tuple[Path, Path]) -> None:
    assert certificates_from(SecuritySettings(), tmp_path) is None
    both = SecuritySettings(tls_certificate="chain.pem", tls_key=str(pair[1]))
    assert certificates_from(both, tmp_path) is not None
    for wrong in (
        SecuritySettings(tls_certificate="chain.pem"),
        SecuritySettings(tls_key="key.pem"),
        SecuritySettings(tls_client_ca="authority.pem"),
        SecuritySettings(tls_certificate="chain.pem", tls_key="nothing.pem"),
        SecuritySettings(tls_certificate="key.pem", tls_key="key.pem"),
    ):
        with pytest.raises(ConfigError):
            certificates_from(wrong, tmp_path)


def test_a_key_behind_a_password_does_not_ask_a_terminal(tmp_path: Path, pair: tuple[Path, Path]) -> None:
    certificate, key = pair
    private = serialization.load_pem_private_key(key.read_bytes(), None)
    form = serialization.PrivateFormat.PKCS8
    locked = private.private_bytes(
        serialization.Encoding.PEM, form, serialization.BestAvailableEncryption(os.urandom(8).hex().encode())
    )
    key.write_bytes(locked)
    with pytest.raises(ConfigError):
        Certificates(certificate, key)
