"""Settings of the pipeline that a server runs beside itself."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pixiu.config.section import Bounds, Section

__all__ = ["PipelineSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSettings(Section):
    """The pipeline that `pixiu serve` runs in a process of its own."""

    name_in_file: ClassVar[str] = "pipeline"

    enabled: bool = True
    """Run it at all. `--no-pipeline` is false."""

    every_s: Annotated[int, Bounds(1, 86_400)] = 60
    """How often what is new in the log goes to the tables. Without anything new nothing runs."""

    first_after_s: Annotated[int, Bounds(0, 86_400)] = 30
    """How long after the start of the server the first run begins."""

    audit_every_s: Annotated[int, Bounds(0, 7 * 86_400)] = 900
    """How often a run makes the audit, too, which asks for all that waits; 0 is never. A long one comes less often."""

    idle_s: Annotated[int, Bounds(0, 86_400)] = 300
    """The process ends, and gives its memory back, when nothing new came for this long; it comes back with the log."""

    memory_mb: Annotated[int, Bounds(512, 1_048_576)] = 1024
    """The most that Spark's Java takes for its heap."""

    install: str = ""
    """A command that installs the pipeline's packages, before the first run; empty is none. `make serve` has one."""

    may_be_empty: ClassVar[frozenset[str]] = frozenset({"install"})
