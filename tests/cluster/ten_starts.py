"""Starts and stops a cluster again and again while the machine opens many connections; prints one line per start.

::

    python -m tests.cluster.ten_starts FOLDER STARTS
"""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from pathlib import Path

CLUSTER = """
name = "busy"
zookeeper = { nodes = 1 }
[roles.shard]
replicas = 3
[roles.router]
[roles.broker]
partitions = 2
[roles.proxy]
[roles.gateway]
"""
OPEN_AT_ONCE = 700
"""Source ports that are in use all the time; each connection lives for as many others."""


class ConnectionLoad:
    """Opens connections on loopback as fast as it may, and keeps the last ones open."""

    def __init__(self) -> None:
        self.opened = 0
        self._is_over = False
        self._server = socket.create_server(("127.0.0.1", 0), backlog=1000)
        threading.Thread(target=self._accept, daemon=True).start()
        threading.Thread(target=self._connect, daemon=True).start()

    def stop(self) -> None:
        self._is_over = True

    def _accept(self) -> None:
        while not self._is_over:
            with suppress(OSError):
                accepted, _ = self._server.accept()
                threading.Thread(target=self._hold, args=(accepted,), daemon=True).start()

    def _hold(self, accepted: socket.socket) -> None:
        with suppress(OSError), accepted:
            accepted.recv(1)

    def _connect(self) -> None:
        kept: deque[socket.socket] = deque()
        while not self._is_over:
            if len(kept) >= OPEN_AT_ONCE:
                kept.popleft().close()
            with suppress(OSError):
                made = socket.create_connection(self._server.getsockname(), timeout=5)
                made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # no TIME_WAIT
                kept.append(made)
                self.opened += 1
            time.sleep(0.002)


def main(folder: Path, starts: int) -> int:
    file = folder / "cluster.toml"
    file.write_text(CLUSTER, encoding="utf-8")
    load = ConnectionLoad()
    failed = 0
    for number in range(starts):
        data = folder / f"cluster-{number}"
        began = time.monotonic()
        up = pixiu_cluster("up", str(file), "--detach", "--data", str(data))
        took = time.monotonic() - began
        restarts = 0 if up.returncode else restarts_of(data)
        failed += up.returncode != 0 or restarts > 0
        result = up.stderr.strip() if up.returncode else f"up, {restarts} restarts"
        print(f"start {number}: {took:.1f} s, {result}", flush=True)
        pixiu_cluster("down", "--data", str(data))
    load.stop()
    print(f"{failed} of {starts} starts failed; {load.opened} connections were opened meanwhile")
    return 1 if failed else 0


def restarts_of(data: Path) -> int:
    """How often a process did not start at the first try: for want of its port, as nothing else is wrong."""
    rows = json.loads(pixiu_cluster("status", "--json", "--data", str(data)).stdout)["nodes"]
    return sum(row["restarts"] for row in rows)


def pixiu_cluster(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pixiu", "cluster", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
