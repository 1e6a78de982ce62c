"""A node under load in a process of its own, made to be killed.

What it knows it writes to files, one line per fact, before it acts on it: a killed process takes nothing back that it
had handed to the system. Devices keep what they have shown in such a file, as a phone does, and come back with the
cursor that it holds.

    python -m tests.crash.messaging_child DATA FACTS load|settle SEED [LOG]
"""

import asyncio
import json
import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvloop

from pixiu.config import CarrierSettings, EngineSettings, HornSettings, JournalSettings, MessagingSettings, Settings
from pixiu.config.engines import EMBEDDED
from pixiu.im.draft import Actor
from pixiu.machines.delivery import Push
from pixiu.model.errors import PixiuError
from pixiu.model.pixiu_pb2 import MsgChat
from pixiu.node.embedded import EmbeddedNode

USERS = 6
PLATFORMS = ("ios", "web")
GROUP = "all"


class Facts:
    """Files of lines.

    A kill may end a write between two pages of the file. A line that is not whole is no fact: nobody has acted on it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: dict[str, int] = {}

    def add(self, name: str, line: str) -> None:
        """One fact, in one write."""
        if name not in self._open:
            file = os.open(self._folder / name, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
            os.ftruncate(file, len(self._whole(name)))
            self._open[name] = file
        os.write(self._open[name], f"{line}\n".encode())

    def read(self, name: str) -> list[list[str]]:
        """All facts of a file, as words."""
        return [line.split() for line in self._whole(name).decode().splitlines()]

    def _whole(self, name: str) -> bytes:
        """The lines that are all there."""
        path = self._folder / name
        found = path.read_bytes() if path.exists() else b""
        return found[: found.rfind(b"\n") + 1]


class Phone:
    """A device: shows a message once, writes that down, then acks."""

    def __init__(self, node: EmbeddedNode, facts: Facts, user: str, platform: str, rng: random.Random) -> None:
        self._node = node
        self._facts = facts
        self._rng = rng
        self.name = f"shown.{user}.{platform}"
        shown = facts.read(self.name)
        self.last = max((int(line[0]) for line in shown), default=0)
        self.closed = ""

    def push(self, session_id: int, pushes: list[Push]) -> None:
        """Show what follows on."""
        for push in pushes:
            if push.useq > self.last and push.previous_useq <= self.last:
                self.last = push.useq
                self._facts.add(self.name, f"{push.useq} {MsgChat.FromString(push.body).msgId}")
        delay = self._rng.choice([0.0, 0.0, 0.001, 0.01])
        asyncio.get_running_loop().call_later(delay, self._node.messaging.ack, session_id, self.last)

    def event(self, _session_id: int, _event: object) -> None:
        """Nothing to do."""

    def close(self, _session_id: int, reason: str) -> None:
        """Remember why."""
        self.closed = reason


async def asked(node: EmbeddedNode, user: str, action: str, params: dict[str, Any]) -> Any:
    """One action by callbacks."""
    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    number = node.messaging.proxy.context.directory.user(user)
    node.messaging.act(Actor(number), action, params, answer.set_result)
    return await answer


def sends(rng: random.Random, facts: Facts) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """First what was never answered, again; then new ones, each written down before it is sent."""
    answered = {(line[0], line[1]) for line in facts.read("accepted")}
    attempts = facts.read("attempted")
    for user, send_id, action, target in attempts:
        if (user, send_id) not in answered:
            yield user, action, _params(action, target, send_id)
    number = len(attempts)
    while True:
        user = f"u{rng.randrange(USERS)}"
        action = rng.choice(["send", "send", "gsend"])
        target = GROUP if action == "gsend" else f"u{rng.randrange(USERS)}"
        send_id = f"s{number}"
        number += 1
        facts.add("attempted", f"{user} {send_id} {action} {target}")
        yield user, action, _params(action, target, send_id)


def _params(action: str, target: str, send_id: str) -> dict[str, Any]:
    where = "group" if action == "gsend" else "to"
    return {where: target, "text": send_id, "send_id": send_id}


async def load(node: EmbeddedNode, facts: Facts, rng: random.Random, *, seconds: float) -> None:
    """Several senders until the end, which is most likely a kill."""
    jobs = sends(rng, facts)

    async def sender() -> None:
        for user, action, params in jobs:
            answer = await asked(node, user, action, params)
            if isinstance(answer, PixiuError):
                raise answer
            facts.add("accepted", f"{user} {params['send_id']} {answer['message_id']}")
            if rng.random() < 0.05:
                reader = f"u{rng.randrange(USERS)}"
                facts.add("read", f"{reader} {user} {answer['message_id']}")
                await asked(node, reader, "read", {"with": user, "through": answer["message_id"]})

    senders = [asyncio.create_task(sender()) for _ in range(8)]
    await asyncio.wait(senders, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
    for task in senders:
        if task.done() and (error := task.exception()):
            raise error
        task.cancel()


async def settle(node: EmbeddedNode, facts: Facts, rng: random.Random) -> None:
    """Send again what was not answered, let everything come to rest, and write down how things stand."""
    answered = {(line[0], line[1]) for line in facts.read("accepted")}

    async def again(user: str, send_id: str, action: str, target: str) -> None:
        answer = await asked(node, user, action, _params(action, target, send_id))
        if isinstance(answer, PixiuError):
            raise answer
        if (user, send_id) not in answered:
            facts.add("accepted", f"{user} {send_id} {answer['message_id']}")
        facts.add("repeated", f"{user} {send_id} {answer['message_id']}")

    attempted = facts.read("attempted")
    for first in range(0, len(attempted), 200):
        await asyncio.gather(*(again(*attempt) for attempt in attempted[first : first + 200]))
    while True:
        report = await node.audit()
        if report["waiting"] == 0 or not report["balanced"]:
            break
        await asyncio.sleep(0.2)
    unread: dict[str, Any] = {}
    for user, other, through in facts.read("read"):  # some may have been lost with the process: all are done again
        unread[f"{user} {other}"] = (await asked(node, user, "read", {"with": other, "through": through}))["unread"]
    print(json.dumps({"report": report, "unread": unread}), flush=True)


async def main(data: Path, facts: Facts, mode: str, rng: random.Random, log: str) -> None:
    """Open the node, bring users and devices online, then do what was asked."""
    settings = Settings(
        engines=EngineSettings(log=log),
        messaging=MessagingSettings(sends_per_second=0),
        horn=HornSettings(provider="none"),
        carrier=CarrierSettings(commit_ms=rng.choice([1, 5, 50])),
        journal=JournalSettings(segment_bytes=262144, checkpoint_bytes=65536, checkpoint_interval_ms=150),
    )
    async with EmbeddedNode(data, settings=settings) as node:
        users = [f"u{number}" for number in range(USERS)]
        for user in users:
            await node.create_user(user)
        if node.messaging.proxy.context.directory.find_group(GROUP) is None:
            await node.create_group(users[0], GROUP, members=users[1:], name="everyone")
        for user in users:
            for platform in PLATFORMS:
                phone = Phone(node, facts, user, platform, rng)
                connected: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
                node.messaging.connect(user, platform, "d", phone, connected.set_result, cursor=phone.last)
                await connected
        print("ready", flush=True)
        if mode == "load":
            await load(node, facts, rng, seconds=20)
        else:
            await settle(node, facts, rng)


if __name__ == "__main__":
    where = sys.argv[5] if len(sys.argv) > 5 else EMBEDDED
    uvloop.run(main(Path(sys.argv[1]), Facts(Path(sys.argv[2])), sys.argv[3], random.Random(int(sys.argv[4])), where))
