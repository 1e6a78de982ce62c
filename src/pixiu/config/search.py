"""Settings of the search action."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pixiu.config.section import Bounds, Count, Positive, Section

__all__ = ["SearchSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSettings(Section):
    """How many ask the index at a time. The pipeline makes it; without it, search is unavailable."""

    name_in_file: ClassVar[str] = "search"
    may_be_empty: ClassVar[frozenset[str]] = frozenset({"data"})

    data: str = ""
    """The data directory whose pipeline makes the index. Empty: the server's own. A cluster's carriers have none of
    their own: name that of one of the log's replicas, where the pipeline runs."""

    threads: Annotated[int, Bounds(1, 64)] = 2
    """Searches that run at the same time, each in a thread."""

    waiting_max: Count = 32
    """Searches that wait for a thread; more are refused as busy."""

    per_user_max: Positive = 4
    """Searches of one user that run or wait; more are refused as busy."""
