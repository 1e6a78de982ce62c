"""A bot that answers what it is told: ``python examples/chat_bot.py ws://127.0.0.1:8400 "$(pixiu token bot)"``.

Stop it, stop the server, cut the network: it goes on where it was, and answers every message once.
"""

import asyncio
import sys

import pixiu
from pixiu.sdk import Message


def answer(message: Message) -> str:
    """What to say to that."""
    return f"you said: {message.text}"


async def main(url: str, token: str) -> None:
    """Answer until somebody says goodbye."""
    async with pixiu.connect(url, token, patience_seconds=30) as me:
        print(f"{me.name} is online", flush=True)
        async for message in me.messages():
            if message.kind != "text" or message.sender == me.name:
                continue  # notices of the system, and what another bot of this user has said
            # The message's own id makes this send the same one, should the bot die before the message is acked.
            send_id = f"answer-{message.message_id}"
            if message.group:
                await me.gsend(message.group, answer(message), send_id=send_id)
            else:
                await me.send(message.sender, answer(message), send_id=send_id)
            if message.text == "goodbye":
                break


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit('usage: python examples/chat_bot.py URL TOKEN, such as ws://127.0.0.1:8400 "$(pixiu token bot)"')
    asyncio.run(main(*sys.argv[1:3]))
