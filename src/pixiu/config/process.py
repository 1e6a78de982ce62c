"""Settings of the process: its logs and its HTTP port."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pixiu.config.section import Bounds, Count, Port, Section

__all__ = ["HttpSettings", "LogSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings(Section):
    """What Pixiu tells about itself."""

    name_in_file: ClassVar[str] = "log"

    path: str = "stderr"
    """Where to: stderr, stdout, or a directory in which pixiu.log is kept and rotated."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least serious level that is logged."""

    format: Literal["auto", "human", "json"] = "auto"
    """How: auto is human on a terminal and JSON lines elsewhere."""

    sample: Count = 10_000
    """Log one of this many publishes and topic commands; 1 logs each, 0 none."""

    rotate_bytes: Annotated[int, Bounds(4096)] = 500 * 2**20
    """Start a new log file past this size."""

    rotate_backups: Count = 10
    """Rotated log files kept; 0 keeps all."""

    rotate_days: Count = 14
    """Rotated log files older than this are removed; 0 keeps all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings(Section):
    """The HTTP port: health, readiness, metrics."""

    name_in_file: ClassVar[str] = "http"

    host: str = "127.0.0.1"
    """Address to listen on."""

    port: Port = 8400
    """Port to listen on; 0 picks a free one."""
