"""The keys that sign tokens: one small file each, in ``keys/`` of the data directory.

::

    keys/3f9a2c1d.json    {"kid": "3f9a2c1d", "alg": "EdDSA", "created_at": …, "kty": "OKP", "crv": "Ed25519",
                           "x": "…", "d": "…"}
    keys/77ab01c4.json.retired

A file is a JSON Web Key. The newest key that holds its secret signs; all of them verify; a retired one does neither.
A file without the secret half (``d``) verifies only: a node that issues no tokens needs no more. A running server
notices within a second. Secrets are readable by their owner alone, or the file is refused. A key that cannot be read or
is damaged stops a start; while a server runs, it is left out, logged, and reported by ``problems()``.
"""

from __future__ import annotations

import json
import logging
import secrets
import shlex
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256
from typing import TYPE_CHECKING, Literal, NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from pixiu.model.errors import ConfigError, CorruptData, NotFound, PixiuError
from pixiu.runtime.files import write_durably
from pixiu.runtime.owner import cannot_read

if TYPE_CHECKING:
    from pathlib import Path

    from pixiu.ports.clock import Clock

__all__ = ["Algorithm", "Key", "Keyring"]

log = logging.getLogger(__name__)

Algorithm = Literal["EdDSA", "HS256"]

SECRET_BYTES = 32
FOLDER = "keys"
LOOK_AGAIN_US = 1_000_000
LOOK_AGAIN_FOR_UNKNOWN_US = 50_000
"""A token of a key that was made a moment ago is good; a stranger's inventions do not keep the disk busy."""


class Key(NamedTuple):
    """One key, with the one algorithm that it may be used with."""

    kid: str
    algorithm: Algorithm
    created_at: int
    verifier: Ed25519PublicKey | bytes
    signer: Ed25519PrivateKey | bytes | None
    name: str
    """The id and a digest of the verifying half: another key under the same id has another name."""


class Keyring:
    """The keys of one data directory, kept up to date with its files."""

    def __init__(self, data: Path, clock: Clock) -> None:
        self._folder = data / FOLDER
        self._clock = clock
        self._keys: dict[str, Key] = {}
        self._names: frozenset[str] = frozenset()
        self._seen: list[tuple[str, int, int, int]] | None = None
        self._left_out: list[str] = []
        self._looked_at = 0
        self.generation = 0
        """Rises with every change."""
        self._look(strict=True)

    @property
    def keys(self) -> list[Key]:
        """All that verify, the newest last."""
        self._look_sometimes(LOOK_AGAIN_US)
        return sorted(self._keys.values(), key=lambda key: (key.created_at, key.kid))

    def look_sometimes(self) -> None:
        """Notice changes of the files, within a second. Whoever trusts ``generation`` asks for this first."""
        self._look_sometimes(LOOK_AGAIN_US)

    def is_current(self, name: str) -> bool:
        """Whether the key of this name (``Key.name``) still verifies."""
        self._look_sometimes(LOOK_AGAIN_US)
        return name in self._names

    def problems(self) -> list[str]:
        """Why no token can be verified: there are keys, and none was ever readable. Empty without any key."""
        self._look_sometimes(LOOK_AGAIN_US)
        return [] if self._keys else list(self._left_out)

    def notes(self) -> list[str]:
        """Keys that cannot be read now, while the keys that were read before stay in use."""
        self._look_sometimes(LOOK_AGAIN_US)
        return list(self._left_out) if self._keys else []

    def find(self, kid: str) -> Key | None:
        """The key of this id, unless it is unknown or retired."""
        self._look_sometimes(LOOK_AGAIN_US)
        found = self._keys.get(kid)
        if found is None:
            self._look_sometimes(LOOK_AGAIN_FOR_UNKNOWN_US)
            found = self._keys.get(kid)
        return found

    def signing(self) -> Key:
        """The newest key that can sign."""
        self._look()
        for key in reversed(self.keys):
            if key.signer is not None:
                return key
        raise NotFound(
            f"there is no key in {self._folder} to sign with; make one with: "
            f"pixiu token --new-key --data {self._folder.parent}"
        )

    def create(self, algorithm: Algorithm) -> Key:
        """Make a new key, which signs from now on. The older ones go on verifying until they are retired."""
        newest = max((key.created_at for key in self._keys.values()), default=0)
        created_at = max(self._clock.now_ms(), newest + 1)
        kid = secrets.token_hex(4)
        written: dict[str, object] = {"kid": kid, "alg": algorithm, "created_at": created_at}
        if algorithm == "EdDSA":
            private = Ed25519PrivateKey.generate()
            written |= {"kty": "OKP", "crv": "Ed25519"}
            written |= {"x": _text(private.public_key().public_bytes_raw()), "d": _text(private.private_bytes_raw())}
        else:
            written |= {"kty": "oct", "k": _text(secrets.token_bytes(SECRET_BYTES))}
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            write_durably(self._folder / f"{kid}.json", json.dumps(written) + "\n", mode=0o600, is_new=True)
        except OSError as error:
            raise PixiuError(f"cannot write a key into {self._folder}: {error.strerror}") from error
        self._look()
        return self._keys[kid]

    def retire(self, kid: str) -> None:
        """Let a key verify nothing any more. Its file stays, under another name."""
        path = self._folder / f"{kid}.json"
        if self.find(kid) is None or not path.exists():
            raise NotFound(f"there is no key {kid} in {self._folder}")
        path.rename(path.with_name(f"{kid}.json.retired"))
        self._look()

    def _look_sometimes(self, after_us: int) -> None:
        if self._clock.monotonic_us() - self._looked_at >= after_us:
            self._look()

    def _look(self, *, strict: bool = False) -> None:
        """Read the files again if any has changed. At the start a bad file is an error; later it is left out.

        While the folder itself cannot be read (a file system that fails), the keys stay as they are.
        """
        self._looked_at = self._clock.monotonic_us()
        paths, problem = self._paths()
        if strict and problem:
            raise PixiuError(problem)
        seen = [(problem, 0, 0, 0), *((path.name, *_mark(path)) for path in paths)]
        if seen == self._seen:
            return
        keys: list[Key] = []
        left_out = [problem] if problem else []
        for path in paths:
            try:
                keys.append(_read(path))
            except PixiuError as error:
                if strict:
                    raise
                left_out.append(str(error))
                if isinstance(error.__cause__, OSError) and path.stem in self._keys:
                    keys.append(self._keys[path.stem])  # it is there and cannot be read now: that retires nothing
        for reason in left_out:
            if reason not in self._left_out:
                log.error("signing_key_ignored", extra={"folder": str(self._folder), "reason": reason})
        self._left_out = left_out
        self._seen = seen
        if problem:
            return  # every key would seem to be retired
        self._keys = {key.kid: key for key in keys}
        self._names = frozenset(key.name for key in keys)
        self.generation += 1

    def _paths(self) -> tuple[list[Path], str]:
        """The key files, by name; and why they cannot be listed."""
        try:
            return sorted(path for path in self._folder.iterdir() if path.suffix == ".json"), ""
        except (FileNotFoundError, NotADirectoryError):
            return [], ""
        except OSError as error:
            return [], cannot_read(self._folder, error)


def _mark(path: Path) -> tuple[int, int, int]:
    """Changes with a file's content, owner or mode."""
    try:
        status = path.stat()
    except OSError:
        return 0, 0, 0
    return status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def _read(path: Path) -> Key:
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
        mode = path.stat().st_mode & 0o777
        if mode & 0o077 and ("d" in held or "k" in held):
            raise ConfigError(f"{path} may be read by others (mode {mode:o}); keep it to yourself: chmod 600 {path}")
        kid, algorithm = held["kid"], held["alg"]
        if f"{kid}.json" != path.name or type(held["created_at"]) is not int:
            raise ValueError("kid and name differ")
        if (algorithm, held["kty"]) == ("EdDSA", "OKP") and held["crv"] == "Ed25519":
            public = Ed25519PublicKey.from_public_bytes(_bytes(held["x"]))
            private = Ed25519PrivateKey.from_private_bytes(_bytes(held["d"])) if "d" in held else None
            if private is not None and private.public_key() != public:
                raise ValueError("its halves do not belong together")
            return Key(kid, "EdDSA", held["created_at"], public, private, _name(kid, public.public_bytes_raw()))
        if (algorithm, held["kty"]) == ("HS256", "oct"):
            secret = _bytes(held["k"])
            if len(secret) < SECRET_BYTES:
                raise ValueError(f"a secret has at least {SECRET_BYTES} bytes")
            return Key(kid, "HS256", held["created_at"], secret, secret, _name(kid, secret))
        raise ValueError("alg must be EdDSA with an Ed25519 key, or HS256 with a secret")
    except OSError as error:
        raise PixiuError(cannot_read(path, error)) from error
    except (ValueError, KeyError, TypeError) as error:
        aside = f"mv {shlex.quote(str(path))} {shlex.quote(f'{path}.damaged')}"
        raise CorruptData(
            f"{path} is not a key: {error}. Restore the file from a copy, or set it aside: {aside}. Tokens signed with "
            f"that key are then refused; without another key, create one: "
            f"pixiu token --new-key --data {shlex.quote(str(path.parent.parent))}",
            path=str(path),
        ) from error


def _name(kid: str, verifier: bytes) -> str:
    return f"{kid}.{sha256(verifier).hexdigest()[:16]}"


def _text(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))
