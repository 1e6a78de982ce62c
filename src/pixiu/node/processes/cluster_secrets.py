"""The secret of a cluster: where it is read from, and what stands in for it on one machine."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pixiu.machines.links.sealing import Secrets
from pixiu.model.errors import ConfigError
from pixiu.model.hosts import is_loopback
from pixiu.model.sealed_text import unseal
from pixiu.runtime.machine_secret import machine_secret

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from pathlib import Path

__all__ = [
    "SecretsFile",
    "needed_queue_keys",
    "queue_key",
    "queue_keys",
    "read_secrets",
    "secrets_of",
]

log = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
"""A file of secrets is looked at this often."""


def secrets_of(text: str, bind: str) -> Secrets:
    """The cluster's secrets, one per line. On loopback without any, that of this user. Raises ``ConfigError``."""
    if text:
        return Secrets.from_text(text)
    if not is_loopback(bind):
        raise ConfigError(f"{bind} can be reached by others: give the cluster a secret with --secret-file")
    return Secrets([machine_secret().encode()])


def queue_key(text: str, bind: str) -> str:
    """What the queue's own roles show it: the first of its keys. Empty: there is none."""
    return next(iter(queue_keys(text, bind)), "")


def queue_keys(text: str, bind: str) -> tuple[str, ...]:
    """What the queue accepts from its own: the secrets; on loopback without any, that of this user.

    Raises ``ConfigError`` for a secret that is too short, as links do.
    """
    lines = (line.strip() for line in text.splitlines())
    found = tuple(line for line in lines if line and not line.startswith("#"))
    if found:
        Secrets.from_text(text)
    return found or ((machine_secret(),) if is_loopback(bind) else ())


def needed_queue_keys(text: str, bind: str) -> tuple[str, ...]:
    """The same for who serves them: where others can connect there must be one. Raises ``ConfigError``."""
    secrets_of(text, bind)
    return queue_keys(text, bind)


def read_secrets(path: Path | None) -> str:
    """The text of a file of secrets; empty without a file. Raises ``ConfigError``."""
    if path is None:
        return ""
    try:
        if path.stat().st_mode & 0o077:
            log.warning("others can read the cluster's secret", extra={"path": str(path)})
        return _checked(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"cannot read the secret in {path}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"cannot read the secret in {path}: {error}") from None


def _checked(data: bytes) -> str:
    """The text of a file of secrets. That of a ``node.key`` must have the checksum that it names."""
    text = data.decode()
    if "\n# crc32 " in text:
        unseal(data)
    return text


class SecretsFile:
    """A file of secrets, looked at now and then: a secret can be changed while everything runs."""

    def __init__(
        self, path: Path, text: str, loop: asyncio.AbstractEventLoop, changed: Callable[[str], object]
    ) -> None:
        """``text`` is what was read of it and is in use; ``changed`` is told the text of what is to be used then."""
        self._path = path
        self._text = text
        self._loop = loop
        self._changed = changed
        self._timer = loop.call_later(LOOK_SECONDS, self._again)

    def look(self) -> None:
        """Has it changed? What cannot be read or is no good changes nothing."""
        try:
            text = self._path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return
        if text == self._text:
            return
        self._text = text
        try:
            Secrets.from_text(text)
        except ConfigError as error:
            log.error("the new secrets are no good; the old ones stay", extra={"reason": str(error)})
        else:
            self._changed(text)
            log.info("the cluster's secrets have changed", extra={"path": str(self._path)})

    def close(self) -> None:
        """Look no more."""
        self._timer.cancel()

    def _again(self) -> None:
        self._timer = self._loop.call_later(LOOK_SECONDS, self._again)
        self.look()
