"""TLS to an engine, as the one line says that names it: ``?tls=yes&ca=FILE&verify=…&certificate=FILE&key=FILE``.

Files are read when a connection is made, so that a certificate which was renewed counts from the next one on.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pixiu.model.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["TLS_OPTIONS", "EngineTls", "read_secret", "take_tls", "tls_context"]

TLS_OPTIONS = ("tls", "ca", "verify", "certificate", "key")
VERIFY = ("yes", "chain", "no")


class EngineTls(NamedTuple):
    """How an engine is spoken to."""

    is_on: bool = False
    ca: str = ""
    """A file with the certificates that are trusted; empty: the system's."""
    verify: str = "yes"
    """``yes``: who certified it, and that it is for this host; ``chain``: who certified it; ``no``: nothing."""
    certificate: str = ""
    key: str = ""
    """Files of our own, for engines that want to know who comes."""


def take_tls(options: Mapping[str, str], setting: str) -> EngineTls:
    """The part of an address's options that is about TLS. Raises ``ConfigError`` that names what is wrong."""
    is_on = options.get("tls", "no")
    if is_on not in ("yes", "no"):
        raise ConfigError(f"tls of {setting} must be yes or no, not {is_on!r}")
    given = [name for name in TLS_OPTIONS[1:] if name in options]
    if given and is_on == "no":
        raise ConfigError(f"{given[0]} of {setting} counts with tls=yes alone")
    verify = options.get("verify", "yes")
    if verify not in VERIFY:
        raise ConfigError(f"verify of {setting} must be one of {', '.join(VERIFY)}, not {verify!r}")
    if ("certificate" in options) != ("key" in options):
        raise ConfigError(f"{setting} needs certificate and key, or none of them")
    for name in given:
        if not options[name]:
            raise ConfigError(f"{name} of {setting} is empty")
    return EngineTls(
        is_on == "yes", options.get("ca", ""), verify, options.get("certificate", ""), options.get("key", "")
    )


def tls_context(tls: EngineTls, setting: str) -> ssl.SSLContext | None:
    """For a connection made by Python; None without TLS. Raises ``ConfigError`` for files that cannot be used."""
    if not tls.is_on:
        return None
    try:
        context = ssl.create_default_context(cafile=tls.ca or None)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if tls.verify != "yes":
            context.check_hostname = False
        if tls.verify == "no":
            context.verify_mode = ssl.CERT_NONE
        if tls.certificate:
            context.load_cert_chain(tls.certificate, tls.key)
    except OSError as error:  # what the ssl module raises is one, too
        files = ", ".join(filter(None, (tls.ca, tls.certificate, tls.key)))
        raise ConfigError(f"the files for TLS of {setting} cannot be used ({files}): {error}") from error
    return context


def read_secret(path: str, setting: str) -> str:
    """The password that a file holds, alone. Raises ``ConfigError``."""
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"password_file of {setting} cannot be read: {path}: {error}") from error
