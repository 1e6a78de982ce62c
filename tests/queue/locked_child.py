"""A program that reads a topic under a lock, and prints what it has handled: for others to kill."""

import asyncio
import sys

from pixiu.machines.tenure import TenureRules
from pixiu.queue import LockedSubscriber


async def main(servers: str, lock: str, rules: TenureRules) -> None:
    async with LockedSubscriber(servers, "order", "billing", lock=lock, rules=rules, batch=3) as orders:
        async for delivery in orders:
            print(delivery.text, flush=True)
            await asyncio.sleep(0.01)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], TenureRules(*(int(word) for word in sys.argv[3:]))))
