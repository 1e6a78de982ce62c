"""One run of the cluster's benchmarks: its ZooKeeper, its directory, and what its sections have found."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchmarks.cluster.roles import Roles
from benchmarks.queue.bench import Place
from pixiu.runtime.zookeeper import Ensemble

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Bench"]


@dataclass(slots=True, kw_only=True)
class Bench(Place):
    """A run. ``figures`` are what sections found and ``scaling`` computes with: names in ``scaling.FIGURES``."""

    repetitions: int
    """Of each failover."""
    scale: float
    """1, or less in a quick run: how much of the load."""
    server_cores: str = ""
    """Where servers are while latency is compared; empty: any."""
    crowd_cores: str = ""
    figures: dict[str, float] = field(default_factory=dict)
    _ensemble: Ensemble | None = None

    @property
    def hosts(self) -> str:
        """Where ZooKeeper is; started when first asked for."""
        if self._ensemble is None:
            self._ensemble = Ensemble(self.root / "zookeeper")
            self._ensemble.start()
        return self._ensemble.hosts

    @contextmanager
    def roles(self, name: str) -> Iterator[Roles]:
        """An empty cluster of role processes."""
        with Roles(self.hosts, self.directory(name)) as roles:
            yield roles

    def close(self) -> None:
        """Stop ZooKeeper."""
        if self._ensemble is not None:
            self._ensemble.stop()
            self._ensemble = None
