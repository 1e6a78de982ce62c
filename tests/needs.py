"""Programs that some tests need. Without them these tests are skipped by name.

With ``CI=true`` a missing program is a failure wherever this machine could have it: ``make test`` installs Debian's
packages where that needs no question (tools/get_packages.sh).
"""

import os
import shutil
from typing import NoReturn

import pytest

from pixiu.model.errors import Unavailable
from pixiu.pipeline.session import require_spark
from pixiu.runtime.java import can_install_packages

__all__ = ["require_command", "require_java", "skip_or_fail"]


def skip_or_fail(reason: str, *, can_be_had: bool | None = None) -> NoReturn:
    """Skip the test; fail it in CI if the machine can have what is missing. By default: if root can install it."""
    if can_be_had is None:
        can_be_had = can_install_packages()
    if os.environ.get("CI") == "true" and can_be_had:
        pytest.fail(f"{reason}; with CI=true this machine must have it (tools/get_packages.sh)")
    pytest.skip(reason)


def require_command(name: str) -> None:
    """Skip without a command of a Debian package of the same name."""
    if shutil.which(name) is None:
        skip_or_fail(f"needs the command {name}; on Debian: apt install {name}")


def require_java() -> None:
    """Skip without what Spark needs: its packages, and Java."""
    try:
        require_spark()
    except Unavailable as error:
        skip_or_fail(str(error))
