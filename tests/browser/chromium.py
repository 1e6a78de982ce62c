"""The browser of the tests: Debian's chromium, driven by playwright."""

import os
import subprocess
from pathlib import Path

import playwright

from tests.needs import skip_or_fail

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
    """Skip without a browser, or where its driver cannot run."""
    if not os.access(CHROMIUM, os.X_OK):
        skip_or_fail(f"no {CHROMIUM}; on Debian: apt install chromium")
    driver = Path(playwright.__file__).parent / "driver" / "node"
    linked = subprocess.run(["ldd", driver], capture_output=True, text=True, check=False).stdout
    if "libatomic.so.1 => not found" in linked:
        skip_or_fail("playwright's driver needs libatomic.so.1; on Debian: apt install libatomic1")
