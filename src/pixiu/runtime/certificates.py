"""TLS for the ports that clients reach (T4): 1.2 and up, and a renewed certificate without a restart.

::

    certificates = Certificates(Path("chain.pem"), Path("key.pem"))
    server = await loop.create_server(factory, sock=sock, ssl=certificates.context)
    certificates.watch(loop, interval_ms=10_000)

The files are looked at every so often. A new pair is tried apart first, and taken for all later handshakes only when it
fits together; otherwise the old one stays, and ``problem`` says why. Connections that are open stay as they are.
Plaintext on such a port is no handshake: the connection is closed without an answer.
"""

from __future__ import annotations

import logging
import ssl
from typing import TYPE_CHECKING

from cryptography import x509

from pixiu.model.errors import ConfigError
from pixiu.runtime.owner import cannot_read

if TYPE_CHECKING:
    import asyncio
    from pathlib import Path

    from pixiu.config.security import SecuritySettings

__all__ = ["Certificates", "certificates_from", "client_context"]

log = logging.getLogger(__name__)

_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""For TLS 1.2: forward secrecy and authenticated encryption only. TLS 1.3 has no others."""


def certificates_from(settings: SecuritySettings, folder: Path) -> Certificates | None:
    """What the settings ask for; relative names are looked up in ``folder``. None: no TLS."""
    if not settings.tls_certificate and not settings.tls_key:
        if settings.tls_client_ca:
            raise ConfigError("security.tls_client_ca needs security.tls_certificate and security.tls_key beside it")
        return None
    if not settings.tls_certificate or not settings.tls_key:
        raise ConfigError("security.tls_certificate and security.tls_key go together; one of them is missing")
    client_ca = folder / settings.tls_client_ca if settings.tls_client_ca else None
    return Certificates(folder / settings.tls_certificate, folder / settings.tls_key, client_ca=client_ca)


class Certificates:
    """A server's certificate and key, as they are on disk now."""

    def __init__(self, certificate: Path, key: Path, *, client_ca: Path | None = None) -> None:
        """``client_ca``: only peers with a certificate of this authority are let in."""
        self._certificate = certificate
        self._key = key
        self._client_ca = client_ca
        self._mark = self._marks()
        self._current = self._load()
        self._timer: asyncio.TimerHandle | None = None
        self.problem: str | None = None
        """Why the files on disk were not taken; None if they were."""
        self.reloads = 0
        self.context = self._load()
        """For the listener. Each handshake takes the newest certificate from here."""
        self.context.sni_callback = self._choose

    @property
    def expires_at(self) -> int:
        """When the certificate in use ends: milliseconds since the epoch."""
        return self._expires_at

    @property
    def key_type(self) -> str:
        """``EC``, ``RSA``, ``Ed25519`` and so on: the kind of the certificate's key."""
        certificate = x509.load_pem_x509_certificate(self._certificate.read_bytes())
        return type(certificate.public_key()).__name__.removesuffix("PublicKey")

    def reload_if_changed(self) -> bool:
        """Take what is on disk, if it is new and good. True if it was taken."""
        mark = self._marks()
        if mark == self._mark:
            return False
        self._mark = mark
        try:
            self._current = self._load()
        except ConfigError as error:
            self.problem = str(error)
            log.error("certificate not taken, the old one stays", extra={"reason": self.problem})
            return False
        self.problem = None
        self.reloads += 1
        log.info("certificate taken", extra={"path": str(self._certificate), "expires_at": self._expires_at})
        return True

    def watch(self, loop: asyncio.AbstractEventLoop, *, interval_ms: int) -> None:
        """Look at the files every so often."""

        def look() -> None:
            self.reload_if_changed()
            self._timer = loop.call_later(interval_ms / 1000, look)

        self._timer = loop.call_later(interval_ms / 1000, look)

    def close(self) -> None:
        """Stop looking."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _choose(self, connection: ssl.SSLObject | ssl.SSLSocket, _: str | None, __: ssl.SSLContext) -> None:
        connection.context = self._current

    def _marks(self) -> list[tuple[int, int, int] | None]:
        return [_mark(path) for path in (self._certificate, self._key)]

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(_CIPHERS)
        context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
        context.set_alpn_protocols(["http/1.1"])
        for path in filter(None, (self._certificate, self._key, self._client_ca)):
            try:
                path.read_bytes()
            except OSError as error:
                raise ConfigError(cannot_read(path, error)) from error
        try:
            # Without an answer to a question for the password there is none: a terminal must not be asked.
            context.load_cert_chain(self._certificate, self._key, password=lambda: b"")
            self._expires_at = _expires_at(self._certificate)
            if self._client_ca is not None:
                context.load_verify_locations(self._client_ca)
                context.verify_mode = ssl.CERT_REQUIRED
        except (OSError, ssl.SSLError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            where = f"{self._certificate} and {self._key}"
            raise ConfigError(f"cannot use the certificate and key in {where}: {reason}") from error
        return context


def client_context(
    authority: Path | None = None, certificate: Path | None = None, key: Path | None = None
) -> ssl.SSLContext:
    """For links between nodes: the peer must be certified, and ``certificate`` shows who we are (mutual TLS)."""
    context = ssl.create_default_context(cafile=authority)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if certificate is not None:
        context.load_cert_chain(certificate, key)
    return context


def _mark(path: Path) -> tuple[int, int, int] | None:
    """Changes with the content, the owner and the permissions of a file, and with the target of a link."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ctime_ns, status.st_ino, status.st_size


def _expires_at(path: Path) -> int:
    certificate = x509.load_pem_x509_certificate(path.read_bytes())
    return int(certificate.not_valid_after_utc.timestamp() * 1000)
