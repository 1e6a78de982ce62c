"""One run of the cluster's benchmarks: its ZooKeeper, its directory, and what its sections have found."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchmarks.cluster.roles import Roles
from benchmarks.cluster.whole import PixiuCluster
from benchmarks.queue.bench import Place
from pixiu.runtime.zookeeper import Ensemble

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["QUICK", "Amounts", "Bench"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Amounts:
    """How much load whole clusters get, and for how long."""

    pairs: int = 500
    rate: int = 500
    """Messages a second of the open loop."""
    seconds: float = 10.0
    """Counted, of each kind of load."""
    settle_seconds: float = 10.0
    idle_seconds: float = 20.0
    pause_rate: int = 50
    pause_seconds: float = 60.0


QUICK = Amounts(pairs=50, seconds=2.0, settle_seconds=2.0, idle_seconds=3.0, pause_seconds=5.0)


@dataclass(slots=True, kw_only=True)
class Bench(Place):
    """A run. ``figures`` are what sections found and ``scaling`` computes with: names in ``scaling.FIGURES``."""

    repetitions: int
    """Of each failover."""
    scale: float
    """1, or less in a quick run: how much of the load."""
    amounts: Amounts
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

    @contextmanager
    def cluster(self, name: str, file: str) -> Iterator[PixiuCluster]:
        """A whole cluster of `pixiu cluster up` that has just started; its data is removed at the end."""
        cluster = PixiuCluster(self.directory(name), file)
        try:
            with cluster:
                yield cluster
        finally:
            shutil.rmtree(cluster.folder, ignore_errors=True)
            os.sync()

    def close(self) -> None:
        """Stop ZooKeeper."""
        if self._ensemble is not None:
            self._ensemble.stop()
            self._ensemble = None
