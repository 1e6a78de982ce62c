r"""A chat whose only way to say something is Push, as a back end of yours would do it: who is named gets every line.

::

    python examples/push_chat.py http://127.0.0.1:8400 "$(pixiu token chat --admin)" \
        alice "$(pixiu token alice --platform ios)" bob

What is typed goes to both people, on all platforms where they are, and waits where they are not; ``alice`` may run it
twice, on ``ios`` and on ``web``, and reads the same in both. It ends with its input, once everything has come back.
"""

import asyncio
import sys
from contextlib import suppress

import httpx

import pixiu
from pixiu.sdk import Client

NEED_ACK_AND_OFFLINE = 3


async def say(http: httpx.AsyncClient, people: list[str], by: str, text: str) -> None:
    """One push to everybody, the one who says it included."""
    body = {"text": text, "fields": {"by": by}}
    request = {"uids": people, "msg_bodies": [body], "msg_options": NEED_ACK_AND_OFFLINE}
    (await http.post("/v1/push", json=request)).raise_for_status()


async def show(me: Client) -> None:
    """Print what was said, whoever said it."""
    async for message in me.messages():
        if by := message.fields.get("by"):
            print(f"{by}: {message.text}", flush=True)


async def main(url: str, admin_token: str, name: str, token: str, peer: str) -> None:
    """Talk until the input ends, then a moment longer."""
    headers = {"Authorization": f"Bearer {admin_token}"}
    async with httpx.AsyncClient(base_url=url, headers=headers) as http, pixiu.connect(url, token) as me:
        print(f"{name} is online", flush=True)
        showing = asyncio.create_task(show(me))
        while line := await asyncio.to_thread(sys.stdin.readline):
            await say(http, [name, peer], name, line.rstrip("\n"))
        with suppress(TimeoutError):
            await asyncio.wait_for(showing, 1)


if __name__ == "__main__":
    if len(sys.argv) != 6:
        sys.exit("usage: python examples/push_chat.py URL ADMIN_TOKEN NAME TOKEN PEER; the head of this file shows how")
    asyncio.run(main(*sys.argv[1:6]))
