"""Who we are to the providers: a signed token for APNs, an access token for FCM.

The keys are read once, at the start: a file that is missing or wrong is an error of the settings, told there.
"""

from __future__ import annotations

import json
import logging
from os import fstat
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from pixiu.model.errors import ConfigError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

    from pixiu.config.phones import PhoneSettings
    from pixiu.ports.clock import Clock

__all__ = ["ApnsCredential", "FcmAccount"]

log = logging.getLogger(__name__)

APNS_RENEW_MS = 50 * 60_000
"""APNs takes a token for an hour."""
APNS_FORCED_MS = 20 * 60_000
"""And wants no new one more often than this."""

_FILE_BYTES_MAX = 64 * 1024
_SCOPE = "https://www.googleapis.com/auth/firebase.messaging"
_GRANT_SECONDS = 3600


class ApnsCredential:
    """The token that APNs asks for, signed by ourselves, renewed in time."""

    def __init__(self, settings: PhoneSettings, clock: Clock) -> None:
        for name in ("apns_key_id", "apns_team_id", "apns_topic"):
            if not getattr(settings, name):
                raise ConfigError(f"phones.{name} must be set beside phones.apns_key_file")
        key = _private_key(_read("phones.apns_key_file", settings.apns_key_file), "phones.apns_key_file")
        if not isinstance(key, EllipticCurvePrivateKey) or not isinstance(key.curve, SECP256R1):
            raise ConfigError("phones.apns_key_file must hold a P-256 key, as Apple gives it")
        self._key = key
        self._key_id = settings.apns_key_id
        self._team_id = settings.apns_team_id
        self._clock = clock
        self._text = ""
        self._made_at = 0
        self._forced_at: int | None = None

    def current(self) -> str:
        """The token of now; also when someone has set the clock back, it is not of the future."""
        now = self._clock.now_ms()
        if not self._text or not 0 <= now - self._made_at < APNS_RENEW_MS:
            self._make(now)
        return self._text

    def renew(self, refused: str) -> bool:
        """APNs calls this one expired. False: so it did a moment ago, and yet another one would not help."""
        if refused != self._text:
            return True  # someone else's answer came first
        now = self._clock.now_ms()
        if self._forced_at is not None and 0 <= now - self._forced_at < APNS_FORCED_MS:
            return False
        self._forced_at = now
        self._make(now)
        return True

    def _make(self, now: int) -> None:
        claims = {"iss": self._team_id, "iat": now // 1000}
        self._text = jwt.encode(claims, self._key, algorithm="ES256", headers={"kid": self._key_id})
        self._made_at = now


class FcmAccount(NamedTuple):
    """A service account of Google's."""

    project: str
    email: str
    key: RSAPrivateKey
    key_id: str
    token_url: str

    @classmethod
    def read(cls, path: str) -> FcmAccount:
        """From the JSON file that the console of Google gives."""
        setting = "phones.fcm_account_file"
        try:
            content = json.loads(_read(setting, path))
        except ValueError:
            raise ConfigError(f"{setting}: {path} is not JSON") from None
        names = ("project_id", "client_email", "private_key", "private_key_id", "token_uri")
        values = [content.get(name) if isinstance(content, dict) else None for name in names]
        for name, value in zip(names, values, strict=True):
            if type(value) is not str or not value:
                raise ConfigError(f"{setting}: {path} has no {name}; it must be the file of a service account")
        project, email, pem, key_id, token_url = map(str, values)
        key = _private_key(pem.encode(), setting)
        if not isinstance(key, RSAPrivateKey):
            raise ConfigError(f"{setting} must hold an RSA key, as Google gives it")
        return cls(project, email, key, key_id, token_url)

    def assertion(self, now_ms: int) -> str:
        """What an access token is asked for with."""
        now = now_ms // 1000
        claims = {"iss": self.email, "scope": _SCOPE, "aud": self.token_url, "iat": now, "exp": now + _GRANT_SECONDS}
        return jwt.encode(claims, self.key, algorithm="RS256", headers={"kid": self.key_id})


def _read(setting: str, path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            if fstat(file.fileno()).st_mode & 0o077:
                log.warning("others can read a provider's key", extra={"setting": setting, "path": path})
            return file.read(_FILE_BYTES_MAX)
    except OSError as error:
        raise ConfigError(f"{setting}: cannot read {path}: {error.strerror}") from None


def _private_key(pem: bytes, setting: str) -> PrivateKeyTypes:
    try:
        return load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ConfigError(f"{setting} holds no private key (PEM, without a password)") from None
