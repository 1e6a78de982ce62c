"""Random records, written past all checks into the log of a real node: its carrier has to make sense of them."""

import asyncio
import random
from functools import partial
from pathlib import Path
from typing import Any

from pixiu.model.pixiu_pb2 import (
    GROUP,
    P2P,
    BlockChanged,
    ContactChanged,
    GroupChanged,
    HistoryTrimmed,
    InboxOpened,
    Ledger,
    LimitsChanged,
    MemberChanged,
    MsgChat,
    Push,
    PushTo,
    ReadThrough,
    Recalled,
    Record,
    Rows,
    UserChanged,
)  # fmt: skip
from pixiu.ports.log import MAIN, Appended
from tests.pipeline.logs import with_node

__all__ = ["chaos"]

USERS = range(1, 7)
PLATFORMS = ("ios", "web", "tv")


class Chaos:
    """One stretch of history."""

    def __init__(self, seed: int, *, is_trimmed: bool = False) -> None:
        """``is_trimmed``: with readings and cuts, too."""
        self._more = 1 if is_trimmed else 0
        self.dice = random.Random(seed)
        self.at = 1_800_000_000_000
        self.groups: list[int] = []

    def record(self) -> Record:
        """The next one."""
        dice = self.dice
        self.at += dice.choice([0, 1, 50, 4000])
        make = dice.choices(
            [self.private, self.group_message, self.push, self.ledger, self.inbox, self.member, self.group, self.limits,
             self.notice, self.recall, self.read, self.trim],
            [30, 15, 8, 25, 4, 6, 2, 1, 4, 3, 4 * self._more, 2 * self._more],
        )[0]  # fmt: skip
        record = make()
        record.at = self.at
        return record

    def chat(self, kind: Any = P2P) -> bytes:
        return MsgChat(data=b"x" * self.dice.randrange(20), chatType=kind, tm=self.at).SerializeToString()

    def private(self) -> Record:
        return Record(actor=self.dice.choice([0, *USERS]), to=self.dice.choice(USERS), chat=self.chat(), options=7)

    def group_message(self) -> Record:
        if not self.groups:
            return self.private()
        return Record(
            actor=self.dice.choice(USERS), group=self.dice.choice(self.groups), chat=self.chat(GROUP), options=7
        )

    def push(self) -> Record:
        dice = self.dice
        users = dice.choices(USERS, k=3)
        push = Push(users=users)
        if dice.random() < 0.4:
            push.platforms.extend(dice.sample(PLATFORMS, dice.randrange(1, 3)))
        elif dice.random() < 0.6:
            push.without_platforms.extend(dice.sample([*PLATFORMS, "first"], 2))
        if dice.random() < 0.5:
            push.exclusive[users[0]].CopyFrom(
                PushTo(platforms=dice.sample(PLATFORMS, dice.randrange(2)), has_options=True, options=3)
            )
        if dice.random() < 0.3:
            push.opened.extend(dice.sample(PLATFORMS, 2))
        return Record(chat=self.chat(), push=push, options=7)

    def ledger(self) -> Record:
        dice = self.dice
        ledger = Ledger(platforms=[*PLATFORMS, "first"])
        for name in ("handed", "acked", "resent", "expired", "dead"):
            rows: Rows = getattr(ledger, name)
            for _ in range(dice.choice([0, 0, 1, 2])):
                first = dice.randrange(1, 40)
                rows.user.append(dice.choice(USERS))
                rows.platform.append(dice.randrange(4))
                rows.first.append(first)
                rows.through.append(first + dice.choice([0, 0, 1, 5]))
        return Record(ledger=ledger)

    def inbox(self) -> Record:
        return Record(inbox=InboxOpened(user=self.dice.choice(USERS), platform=self.dice.choice(PLATFORMS)))

    def group(self) -> Record:
        number = len(self.groups) + 100
        self.groups.append(number)
        owner, *members = self.dice.sample(USERS, 3)
        info = GroupChanged(group=number, public_id=f"g{number}", owner=owner, members=members)
        return Record(actor=owner, group=number, group_info=info, chat=self.chat(GROUP), options=3)

    def member(self) -> Record:
        if not self.groups:
            return self.inbox()
        dice = self.dice
        group = dice.choice(self.groups)
        if dice.random() < 0.07:
            info = GroupChanged(group=group, public_id=f"g{group}", name="large", is_large=True)
            return Record(actor=1, group=group, group_info=info)
        op = dice.choice([MemberChanged.JOIN, MemberChanged.QUIT, MemberChanged.MUTE])
        change = MemberChanged(group=group, user=dice.choice(USERS), op=op)
        return Record(actor=dice.choice(USERS), group=group, member=change, chat=self.chat(GROUP), options=3)

    def limits(self) -> Record:
        dice = self.dice
        return Record(
            limits=LimitsChanged(
                offline_max=dice.choice([3, 5, 8, -1]), offline_max_by_platform={"tv": dice.choice([2, 6])}
            )
        )

    def notice(self) -> Record:
        user, peer = self.dice.sample(USERS, 2)
        if self.dice.random() < 0.5:
            return Record(actor=user, chat=self.chat(), contact=ContactChanged(user=user, peer=peer, is_linked=True))
        return Record(actor=user, block=BlockChanged(user=user, peer=peer, is_blocked=True))

    def recall(self) -> Record:
        user, peer = self.dice.sample(USERS, 2)
        recalled = Recalled(message_id=12345, to=peer)
        setattr(recalled, "from", user)
        return Record(actor=user, to=peer, chat=self.chat(), recalled=recalled, options=3)

    def read(self) -> Record:
        """Through what is known when it is written."""
        dice = self.dice
        place = {"group": dice.choice(self.groups)} if self.groups and dice.random() < 0.6 else {}
        peer = {} if place else {"peer": dice.choice(USERS)}
        return Record(read=ReadThrough(user=dice.choice(USERS), **place, **peer))

    def trim(self) -> Record:
        """The same."""
        dice = self.dice
        users = dice.sample(USERS, dice.randrange(4))
        groups = dice.sample(self.groups, dice.randrange(len(self.groups) + 1))
        return Record(trimmed=HistoryTrimmed(users=users, groups=groups))

    def fill_in(self, record: Record, said: list[tuple[int, bytes]]) -> None:
        """What was said so far: message ids and keys."""
        if not said:
            return
        at = self.dice.randrange(len(said))
        if record.HasField("read"):
            record.read.through = said[at][0]
        else:
            record.trimmed.through = said[at][0]
            record.trimmed.keys.extend(key for _, key in self.dice.sample(said, min(len(said), 20)) if key)


def chaos(path: Path, seed: int, count: int, *, is_trimmed: bool = False) -> None:
    """Write so many random records into a new data directory; ``is_trimmed``: with send keys, readings and cuts."""
    made = Chaos(seed, is_trimmed=is_trimmed)

    async def work(node: Any) -> None:
        log = node.host.log
        done = asyncio.Event()
        left = 0
        said: list[tuple[int, bytes]] = []

        def answered(result: object, key: bytes = b"") -> None:
            nonlocal left
            if isinstance(result, Appended):
                said.append((result.message_id, key))
            left -= 1
            if not left:
                done.set()

        users = [Record(at=made.at, user=UserChanged(user=n, public_id=f"user {n}")) for n in USERS if n != 4]
        records = [*users, made.group(), *(made.record() for _ in range(count))]
        for number, record in enumerate(records):
            record.at = record.at or made.at
            if record.WhichOneof("what") in ("read", "trimmed"):
                if left:
                    await done.wait()
                made.fill_in(record, said)
            left += 1
            done.clear()
            if record.WhichOneof("what") in ("ledger", "trimmed"):
                log.publish(MAIN, record.SerializeToString(), answered)
            else:
                key = (
                    record.actor.to_bytes(8, "big") + b"%d" % number
                    if is_trimmed and record.chat and number % 3
                    else b""
                )
                log.append(MAIN, record.SerializeToString(), partial(answered, key=key), key=key)
        await done.wait()

    with_node(path, work)
