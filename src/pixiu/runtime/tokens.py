"""Signed tokens: who a caller is, on which platform and device, until when.

::

    keys = Keyring(data, SystemClock())
    tokens = Tokens(keys, SystemClock(), settings.security)
    token = tokens.issue(Identity("alice", "web"))
    tokens.verify(token)                 # Identity("alice", "web", …), or raises Unauthenticated

A token is a JWT: header ``alg``, ``kid``; claims ``sub`` (public user id), ``platform``, ``device``, ``admin``,
``iat``, ``exp``. What is believed of it is decided by the key that its ``kid`` names, never by its ``alg``: each key
goes with one algorithm. A caller is told that a token is not valid, and never what would make it valid; a log may know
more.
"""

from __future__ import annotations

import hmac
from binascii import a2b_base64, b2a_base64
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import jwt
import msgspec
from cryptography.exceptions import InvalidSignature

from pixiu.model.errors import RequestError, Unauthenticated
from pixiu.model.names import check_platform, check_public_id, check_text
from pixiu.ports.authentication import Identity

if TYPE_CHECKING:
    from collections.abc import Callable

    from pixiu.config.security import SecuritySettings
    from pixiu.model.errors import PixiuError
    from pixiu.ports.clock import Clock
    from pixiu.runtime.keys import Key, Keyring

__all__ = ["TokenRefused", "Tokens", "checked_identity", "remember"]

TOKEN_BYTES_MAX = 4096
DEVICE_BYTES_MAX = 64
REMEMBERED_MAX = 50_000
"""Tokens whose signature was found right, and need not be checked again when a crowd comes back."""

Reason = Literal["missing", "malformed", "unknown_key", "bad_signature", "bad_claims", "expired", "early", "refused"]

_TEXTS: dict[Reason, str] = {
    "missing": "a token is needed: Authorization: Bearer TOKEN",
    "expired": "the token has expired",
    "early": "the token is not valid yet",
}
_decode = msgspec.json.decode
_PADDING = (b"", b"=", b"==", b"===")
_TO_BASE64 = bytes.maketrans(b"-_+/=", b"+/!!!")
"""From base64url without padding to base64. The characters that base64url does not have become invalid ones."""


class TokenRefused(Unauthenticated):
    """A token that is not believed. ``reason`` is for the log; the text is for whoever sent it, and says less."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(_TEXTS.get(reason, "the token is not valid"))
        self.reason = reason


class _Opened(NamedTuple):
    """A token taken apart, and not believed yet."""

    header: dict[str, object]
    claims: bytes
    signature: bytes
    signed: bytes


class Tokens:
    """Issues and verifies tokens with the keys of this node."""

    def __init__(self, keys: Keyring, clock: Clock, settings: SecuritySettings) -> None:
        self.keys = keys
        self._clock = clock
        self._settings = settings
        self._verified: dict[bytes, Identity] = {}
        self._generation = keys.generation

    def issue(self, identity: Identity, *, lifetime_ms: int | None = None) -> str:
        """A token for a user, signed by the newest key."""
        checked = checked_identity(identity)
        key = self.keys.signing()
        assert key.signer is not None
        now_ms = self._clock.now_ms()
        claims: dict[str, object] = {
            "sub": checked.user,
            "platform": checked.platform,
            "device": checked.device,
            "admin": checked.is_admin,
            "iat": now_ms // 1000,
            "exp": (now_ms + (lifetime_ms or self._settings.token_ms)) // 1000,
        }
        return jwt.encode(claims, key.signer, algorithm=key.algorithm, headers={"kid": key.kid})

    def authenticate(self, token: str, done: Callable[[Identity | PixiuError], object]) -> None:
        """``Authentication``: answered at once."""
        try:
            identity = self.verify(token)
        except Unauthenticated as error:
            done(error)
        else:
            done(identity)

    @property
    def generation(self) -> int:
        """``Authentication``: rises with every change of the keys."""
        self.keys.look_sometimes()
        return self.keys.generation

    def recheck(self, identity: Identity, done: Callable[[Identity | PixiuError], object]) -> None:
        """``Authentication``: the token stays valid until it expires or its key is retired."""
        if not self.keys.is_current(identity.key):
            done(TokenRefused("unknown_key"))
        elif identity.expires_at + self._settings.clock_skew_ms <= self._clock.now_ms():
            done(TokenRefused("expired"))
        else:
            done(identity)

    def knows(self, token: str) -> bool:
        """Does it claim to be signed by a key of this node? Then nobody else decides about it."""
        try:
            return self._key_of(_opened(token).header) is not None
        except TokenRefused:
            return False

    def verify(self, token: str) -> Identity:
        """Whom it names; raises ``TokenRefused``."""
        self.keys.look_sometimes()
        if self.keys.generation != self._generation:
            self._verified.clear()
            self._generation = self.keys.generation
        digest = sha256(token.encode("utf-8", "surrogatepass")).digest()
        identity = self._verified.get(digest)
        if identity is None:
            opened = _opened(token)
            key = self._key_of(opened.header)
            if key is None:
                raise TokenRefused("unknown_key")
            identity = self._identity(_claims(opened, key))._replace(key=key.name)
            if self.keys.generation == self._generation:
                remember(self._verified, digest, identity, REMEMBERED_MAX)
        if identity.expires_at + self._settings.clock_skew_ms <= self._clock.now_ms():
            self._verified.pop(digest, None)
            raise TokenRefused("expired")
        return identity

    def _key_of(self, header: dict[str, object]) -> Key | None:
        """The key that a header names, if the header fits that key."""
        kid = header.get("kid")
        key = self.keys.find(kid) if type(kid) is str else None
        if key is not None and (header.get("alg") != key.algorithm or "crit" in header):
            raise TokenRefused("bad_signature")
        return key

    def _identity(self, claims: dict[str, object]) -> Identity:
        """What a rightly signed token says, if it makes sense."""
        now_ms, skew_ms = self._clock.now_ms(), self._settings.clock_skew_ms
        expires_at = _milliseconds(claims, "exp")
        if expires_at is None:
            raise TokenRefused("bad_claims")
        for name in ("nbf", "iat"):
            if name in claims and (_milliseconds(claims, name) or 0) > now_ms + skew_ms:
                raise TokenRefused("early")
        user, platform = claims.get("sub"), claims.get("platform", "web")
        device, is_admin = claims.get("device", ""), claims.get("admin", False)
        if type(user) is not str or type(platform) is not str or type(device) is not str or type(is_admin) is not bool:
            raise TokenRefused("bad_claims")
        try:
            return checked_identity(Identity(user, platform, device, is_admin, expires_at))
        except RequestError:
            raise TokenRefused("bad_claims") from None


def checked_identity(identity: Identity) -> Identity:
    """Return it, or raise what is wrong with its names."""
    check_public_id(identity.user, what="user")
    check_platform(identity.platform)
    check_text(identity.device, what="device", bytes_max=DEVICE_BYTES_MAX)
    return identity


def remember(memory: dict[bytes, Any], key: bytes, value: object, limit: int) -> None:
    """Add, and forget what was learnt first beyond the bound."""
    memory[key] = value
    if len(memory) > limit:
        del memory[next(iter(memory))]


def _opened(token: str) -> _Opened:
    """Its parts. Each must be the one base64url text of its bytes: two texts must not be the same token."""
    if not token:
        raise TokenRefused("missing")
    if len(token) > TOKEN_BYTES_MAX or not token.isascii() or token.count(".") != 2:
        raise TokenRefused("malformed")
    signed, _, signature = token.rpartition(".")
    head, _, claims = signed.partition(".")
    try:
        return _Opened(_header(head), _bytes_of(claims), _bytes_of(signature), signed.encode())
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise TokenRefused("malformed") from None


@lru_cache(maxsize=64)
def _header(part: str) -> dict[str, object]:
    """A token's head: all tokens of a key have the same. Nobody may change it."""
    header = _decode(_bytes_of(part))
    if type(header) is not dict:
        raise TokenRefused("malformed")
    return header


def _bytes_of(part: str) -> bytes:
    """Decoders forgive much; this one nothing."""
    text = part.encode().translate(_TO_BASE64) + _PADDING[-len(part) % 4]
    data = a2b_base64(text)
    if b2a_base64(data, newline=False) != text:
        raise TokenRefused("malformed")
    return data


def _claims(opened: _Opened, key: Key) -> dict[str, object]:
    """What it says, if the key has signed it. The key alone decides how that is checked.

    Whoever has the private half signs again and compares: Ed25519 gives the same bytes each time (RFC 8032), and
    signing takes a third of the time that checking takes. The comparison tells nobody how much of a forgery was right.
    A signer that makes other bytes is not wrong for that, so what differs is checked in the usual way.
    """
    verifier, signer = key.verifier, key.signer
    if isinstance(verifier, bytes):
        if not hmac.compare_digest(hmac.digest(verifier, opened.signed, "sha256"), opened.signature):
            raise TokenRefused("bad_signature")
    elif (
        signer is None
        or isinstance(signer, bytes)
        or not hmac.compare_digest(signer.sign(opened.signed), opened.signature)
    ):
        try:
            verifier.verify(opened.signature, opened.signed)
        except InvalidSignature:
            raise TokenRefused("bad_signature") from None
    try:
        claims = _decode(opened.claims)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise TokenRefused("bad_claims") from None
    if type(claims) is not dict:
        raise TokenRefused("bad_claims")
    return claims


def _milliseconds(claims: dict[str, object], name: str) -> int | None:
    """A time in seconds, as JWT has it."""
    value = claims.get(name)
    if type(value) is int and 0 <= value < 2**40:
        return value * 1000
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not -(2**40) < value < 2**40:
        raise TokenRefused("bad_claims")
    return int(value * 1000)
