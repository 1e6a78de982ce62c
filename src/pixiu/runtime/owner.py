"""Whose files these are: what to say of one that this process cannot read, and how root becomes their owner.

A file that root writes into the data directory of a service is unreadable for the service. So a command of root on the
data directory of another user becomes that user first.
"""

from __future__ import annotations

import os
import pwd
import sys
from typing import TYPE_CHECKING

import pixiu

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["become_owner", "become_user", "cannot_read", "current_user"]


def current_user() -> str:
    """The name of the user that this process runs as."""
    return _user_name(os.geteuid())


def cannot_read(path: Path, error: OSError) -> str:
    """Says who owns the file or folder that keeps this process out, who this process is, and what to do.

    The path of an unreadable file can lead through an unreadable folder: then the folder is named.
    """
    said = f"cannot read {path}: {error.strerror or error}"
    if not isinstance(error, PermissionError):
        return said
    for place in (*reversed(path.parents), path):
        wanted = os.R_OK | os.X_OK if place.is_dir() else os.R_OK
        if (place != path and os.access(place, os.X_OK)) or (place == path and os.access(place, wanted)):
            continue
        status = place.stat()
        where = "" if place == path else f" of {place}"
        mode = status.st_mode & 0o777
        owner, user = _user_name(status.st_uid), current_user()
        advice = f"chown {user} {place}" if mode & 0o400 else f"chmod u+rX {place}"
        return f"{said} (owner {owner}{where}, mode {mode:o}; this process runs as {user}). Run as root: {advice}"
    return said


def become_owner(path: Path) -> None:
    """If this process is root and another user owns the path, run as that user from now on.

    Raises ``PermissionError``, and stays root, if that user may not read Python or the installed Pixiu.
    """
    if os.geteuid() != 0:
        return
    try:
        status = path.stat()
    except OSError:
        return
    if status.st_uid != 0:
        _become(status.st_uid, status.st_gid)


def become_user(name: str) -> None:
    """Run as a user from now on. Raises ``KeyError`` for an unknown name, ``PermissionError`` if not allowed."""
    found = pwd.getpwnam(name)
    if found.pw_uid != os.geteuid():
        _become(found.pw_uid, found.pw_gid)


def _become(uid: int, gid: int) -> None:
    name = _user_name(uid)
    before = os.getgroups()
    os.setgroups([gid] if name == str(uid) else os.getgrouplist(name, gid))
    os.setresgid(gid, gid, 0)
    os.setresuid(uid, uid, 0)
    needed = (pixiu.__file__, os.__file__, sys.executable)
    hidden = next((path for path in needed if not os.access(path, os.R_OK)), None)
    if hidden is not None:
        os.setresuid(0, 0, 0)
        os.setresgid(0, 0, 0)
        os.setgroups(before)
        raise PermissionError(f"the user {name} cannot read {hidden}")
    os.setresuid(uid, uid, uid)
    os.setresgid(gid, gid, gid)
    os.environ["HOME"] = _home(uid)


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _home(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_dir
    except KeyError:
        return "/"
