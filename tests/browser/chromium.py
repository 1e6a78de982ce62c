"""The browser of the tests: Debian's chromium, driven by playwright."""

import os
import shutil

import pytest

__all__ = ["ARGUMENTS", "CHROMIUM", "require_chromium"]

CHROMIUM = "/usr/bin/chromium"

ARGUMENTS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def require_chromium() -> None:
    """Skip without a browser; fail where this machine could have had one (tools/get_browser.sh)."""
    if os.access(CHROMIUM, os.X_OK):
        return
    can_install = os.geteuid() == 0 and shutil.which("apt-get") is not None
    if os.environ.get("CI") == "true" and can_install:
        pytest.fail(f"no {CHROMIUM}, though tools/get_browser.sh could have installed it")
    pytest.skip(f"no {CHROMIUM}: run tools/get_browser.sh")
