"""Three independent audits of one log, and a copy with a flipped bit that must be detected and repaired."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from examples.demo.lines import ALL_LINES
from pixiu.queue.storage.record import HEADER_BYTES, Kind, decode_block, read_frames

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["COUNTS", "Corruption", "SparkAudit", "audit_by_duckdb", "audit_by_pixiu", "corrupt_and_repair"]

COUNTS = ("accepted", "intended", "acked", "waiting", "expired", "dead")
"""What all three audits count."""
COMMAND_SECONDS_MAX = 300


def audit_by_pixiu(data: Path) -> dict[str, Any]:
    """Run `pixiu audit`: it replays the log into empty stores and compares them with the real ones."""
    outcome = _pixiu("audit", "--data", str(data), "--json")
    if not outcome.stdout:
        raise SystemExit(f"pixiu audit failed: {outcome.stderr.strip()}")
    return dict(json.loads(outcome.stdout))


def audit_by_duckdb(data: Path, through: int) -> dict[str, int] | str:
    """Decode the log of a stopped node into tables and count by SQL; or the reason why that is not possible.

    The tables go into `data`, so give it a copy.
    """
    if importlib.util.find_spec("duckdb") is None:
        return "not installed: make setup"
    from pixiu.pipeline.checker import check_audit
    from pixiu.pipeline.lake.local import fill_lake

    fill_lake(data)
    counts = check_audit(data, through)
    return {name: counts["expected_waiting" if name == "waiting" else name] for name in COUNTS}


class SparkAudit:
    """The pipeline's audit, in the background: Spark takes some seconds to start."""

    def __init__(self, data: Path) -> None:
        self._data = data
        words = [sys.executable, "-m", "pixiu", "pipeline", "run", "archive", "audit", "--once", "--data", str(data)]
        self._process = None if (reason := _no_spark()) else _start(words)
        self._reason = reason

    def counts(self) -> dict[str, int] | str:
        """Wait for the audit; or the reason why there is none."""
        if self._process is None:
            return self._reason
        output, _ = self._process.communicate(timeout=COMMAND_SECONDS_MAX)
        if self._process.returncode != 0:
            return f"failed: {output.strip().splitlines()[-1] if output.strip() else self._process.returncode}"
        sums = ", ".join(f"sum({name}) AS {name}" for name in COUNTS[1:])
        query = f"SELECT (SELECT count(*) FROM lake_messages) AS accepted, {sums} FROM audit"
        outcome = _pixiu("sql", query, "--data", str(self._data), "--json")
        rows = json.loads(outcome.stdout) if outcome.returncode == 0 else []
        return {name: int(rows[0][name] or 0) for name in COUNTS} if rows else f"failed: {outcome.stderr.strip()}"

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.communicate(timeout=COMMAND_SECONDS_MAX)


def _no_spark() -> str:
    """Why Spark cannot run here; empty if it can."""
    if importlib.util.find_spec("pyspark") is None:
        return "not installed: make setup"
    return "" if shutil.which("java") or os.environ.get("JAVA_HOME") else "no Java 17"


@dataclass(frozen=True, slots=True)
class Corruption:
    """One flipped bit in a copy of the log, and what `pixiu queue verify` did about it."""

    where: str
    is_detected: bool
    is_repaired: bool


def corrupt_and_repair(data: Path, copy: Path) -> Corruption:
    """Flip one bit in the text of a copied journal's oldest message; verify, repair, compare with the original."""
    shutil.copytree(data, copy)
    segment = min((copy / "queue" / "journal").glob("*.log"))
    content = bytearray(segment.read_bytes())
    at, text = _oldest_text(bytes(content))
    content[at] ^= 0x10
    segment.write_bytes(content)
    named = f"queue/journal/{segment.name}"
    verified = _pixiu("queue", "verify", "--data", str(copy))
    is_detected = verified.returncode == 1 and named in verified.stdout + verified.stderr
    repaired = _pixiu("queue", "verify", "--repair", "--data", str(copy))
    equal = _pixiu("verify", str(data), str(copy))
    is_same = segment.read_bytes() == (data / "queue" / "journal" / segment.name).read_bytes()
    is_repaired = repaired.returncode == 0 and equal.returncode == 0 and is_same
    return Corruption(f'{named}, byte {at:,}, in "{text}"', is_detected, is_repaired)


def _oldest_text(journal: bytes) -> tuple[int, str]:
    """Where the text of the oldest sent message begins, and the text. Scheduled messages are passed over."""
    for position, frame in read_frames(journal):
        if decode_block(frame.block).kind == Kind.APPEND:
            for text in ALL_LINES:
                within = frame.block.find(text.encode())
                if within >= 0:
                    return position + HEADER_BYTES + within, text
    raise SystemExit("the log holds no message of the demo")


def _pixiu(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pixiu", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_SECONDS_MAX, check=False)


def _start(words: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
