"""Two users, one message, in one process: ``python examples/quickstart.py``."""

import asyncio
from tempfile import TemporaryDirectory

import pixiu


async def main(data: str) -> None:
    """Alice writes to Bob, who is away; Bob's phone comes online and gets it; the books balance."""
    async with pixiu.Node.embedded(data) as node:
        await node.create_user("alice", name="Alice")
        await node.create_user("bob", name="Bob")

        # Accepted means: flushed to disk. Sending it again with the same send_id is sending it once.
        sent = await node.send("alice", to="bob", text="hello, Bob", send_id="1")
        again = await node.send("alice", to="bob", text="hello, Bob", send_id="1")
        assert sent == again

        phone = await node.connect("bob", platform="ios")
        message = await phone.receive(timeout_seconds=5)
        print(f"{message['from']} to {message['to']}: {message['text']}")
        await phone.leave()  # what was received is acked, and will not come again

        books = await node.audit()
        print({name: books[name] for name in ("accepted", "intended", "acked", "waiting", "balanced")})


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        asyncio.run(main(folder))
