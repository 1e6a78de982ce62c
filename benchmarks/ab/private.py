"""Print the CPU time of one durable private message in one process, in microseconds.

`benchmarks.ab` runs this file by its path, with the source and the benchmarks of one of the two commits on PYTHONPATH.
"""

import sys
from pathlib import Path

import uvloop

from benchmarks.messaging.private import end_to_end, people
from benchmarks.messaging.rig import rig, settings
from pixiu.runtime.collector import spare_the_collector


async def measure(folder: Path, messages: int) -> float:
    async with rig(folder, settings()) as node:
        numbers, meters = await people(node)
        await end_to_end(node, numbers, meters, messages // 5, prefix="warmup")
        _, per_cpu_second = await end_to_end(node, numbers, meters, messages)
        return 1e6 / per_cpu_second


if __name__ == "__main__":
    spare_the_collector()
    print(uvloop.run(measure(Path(sys.argv[1]), int(sys.argv[2]))))
