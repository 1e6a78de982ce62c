"""The secret that processes of one user on one machine share where no secret file is given."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

from pixiu.model.errors import ConfigError
from pixiu.runtime.files import write_durably

__all__ = ["MACHINE_SECRET", "machine_secret"]

MACHINE_SECRET = "pixiu/loopback.secret"
"""In the user's state folder. Other users cannot read it."""


def machine_secret() -> str:
    """The secret of this user's processes on this machine, made when it is first needed. Raises ``ConfigError``."""
    state = os.environ.get("XDG_STATE_HOME", "")
    try:
        path = (Path(state) if state else Path.home() / ".local" / "state") / MACHINE_SECRET
        if not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            beside = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
            write_durably(beside, secrets.token_hex(32) + "\n", mode=0o600)
            with contextlib.suppress(FileExistsError):
                os.link(beside, path)  # of several that begin together the first one's stays
            beside.unlink()
        found = path.stat()
        if found.st_uid != os.geteuid() or found.st_mode & 0o077:
            raise ConfigError(f"{path} must be readable by its owner alone: chmod 600 it, or give --secret-file FILE")
        return path.read_text(encoding="ascii").strip()
    except (OSError, ValueError, RuntimeError) as error:
        raise ConfigError(
            f"processes on this machine need a shared secret, and the user's own cannot be kept ({error}): "
            "give each of them --secret-file FILE"
        ) from error
