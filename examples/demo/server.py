"""The demo's own server process: started, killed with SIGKILL while people chat, and started again."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["DemoServer"]

START_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 30.0


class DemoServer:
    """`pixiu serve --dev` on a data directory. It keeps its port when it is started again."""

    def __init__(self, data: Path, port: int) -> None:
        self._data = data
        self._port = port
        self._process: subprocess.Popen[str] | None = None
        self.kills = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start the process and wait until it listens. Ends the demo if it does not."""
        words = [sys.executable, "-m", "pixiu", "serve", "--dev", "--no-pipeline", "--data", str(self._data)]
        words += ["--port", str(self._port), "--queue-port", "0", "--set", "log.level=warning"]
        self._process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        for text in self._process.stdout:
            if text.startswith("http listening on "):
                self._port = int(text.rsplit(":", 1)[1])
                return
        raise SystemExit(f"the server ended with exit code {self._process.wait(START_SECONDS_MAX)} before it listened")

    def kill_and_restart(self) -> float:
        """Kill the process with SIGKILL and start it again; return the seconds until it listens."""
        assert self._process is not None
        began = time.monotonic()
        self._end(signal.SIGKILL)
        self.kills += 1
        self.start()
        return time.monotonic() - began

    def stop(self) -> None:
        if self._process is not None:
            self._end(signal.SIGTERM)
            self._process = None

    def _end(self, number: signal.Signals) -> None:
        assert self._process is not None and self._process.stdout is not None
        self._process.send_signal(number)
        self._process.wait(STOP_SECONDS_MAX)
        self._process.stdout.close()
