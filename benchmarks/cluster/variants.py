"""``pixiu`` with a change for a measurement: ``python -m benchmarks.cluster.variants [OPTIONS] -- role …``.

``--single-stage``: whatever comes is read, routed and sent on by itself, one message after the other, as a process does
it that has no stages. ``--samples``: where the CPU time goes, by function, sampled a thousand times per CPU second
from SIGUSR1 on and written to a file at the end.
"""

from __future__ import annotations

import json
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pixiu.node.processes.cluster_end as cluster_end
from pixiu.cli.main import main as pixiu_main
from pixiu.links.endpoint import Endpoint

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

INTERVAL = 0.001


class SingleStage(Endpoint):
    """Each message goes through all stages before the next one is looked at."""

    def received(self, boot: int, address: str, messages: Sequence[Any]) -> None:
        """One by one, and what follows from each leaves at once."""
        for message in messages:
            self._is_working = self._is_near = True  # nothing is left for the end of the turn
            super().received(boot, address, (message,))
            self._work()
            self.flush()


class Samples:
    """Where the process was, each time that another millisecond of its CPU time was used."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._found: Counter[str] = Counter()
        signal.signal(signal.SIGPROF, self._sample)
        signal.signal(signal.SIGUSR1, self._begin)

    def _begin(self, _number: int, _frame: FrameType | None) -> None:
        signal.setitimer(signal.ITIMER_PROF, INTERVAL, INTERVAL)

    def _sample(self, _number: int, frame: FrameType | None) -> None:
        if frame is not None:
            code = frame.f_code
            place = code.co_filename.rpartition("/pixiu/")[2] if "/pixiu/" in code.co_filename else "other"
            self._found[f"{place} {code.co_qualname}" if place != "other" else "the loop and other libraries"] += 1

    def write(self) -> None:
        """Keep what was found."""
        signal.setitimer(signal.ITIMER_PROF, 0)
        self._path.write_text(json.dumps(self._found.most_common()), encoding="utf-8")


def main() -> None:
    """Run ``pixiu`` with the words behind ``--``."""
    at = sys.argv.index("--")
    own, sys.argv[1:] = sys.argv[1:at], sys.argv[at + 1 :]
    if "--single-stage" in own:
        cluster_end.Endpoint = SingleStage  # type: ignore[attr-defined]
    samples = Samples(Path(own[own.index("--samples") + 1])) if "--samples" in own else None
    try:
        pixiu_main()
    finally:
        if samples is not None:
            samples.write()


if __name__ == "__main__":
    main()
