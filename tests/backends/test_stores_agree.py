"""The embedded stores against the reference: the same operations, the same answers, through commits and restarts.

Caches are tiny here, so that every path between memory, overlay and store is taken. What was not committed when the
process ends is gone, and the lanes apply it again: so the reference is replayed to the last commit that is left.
"""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import pytest

from pixiu.backends.embedded.keyvalue import RocksKeyValue
from pixiu.backends.embedded.stores import EmbeddedStores
from pixiu.backends.memory.stores import MemoryStores
from pixiu.model.conversation import Conversation, Direct, InGroup
from pixiu.model.errors import Unavailable
from pixiu.model.group import Group, Member, Role
from pixiu.model.timeline import GroupRow, PrivateRow
from pixiu.model.user import Profile
from pixiu.ports.keyvalue import KeyValue
from pixiu.ports.sendkeys import Sent
from pixiu.ports.stores import Lane, Stores
from pixiu.testing.keyvalue import SimulatedKeyValue, StoreContent

Step = tuple[str, str, tuple[Any, ...], dict[str, Any]]
PLATFORMS = ["first", "ios", "web", "desktop"]


def perform(stores: Stores, step: Step) -> object:
    """One call of one store; an error of ours is an answer too."""
    store, method, args, kwargs = step
    try:
        return getattr(getattr(stores, store), method)(*args, **kwargs)
    except Exception as error:
        if type(error).__name__ != "LocalProtocolError":
            raise
        return str(error)


class Draw:
    """Draws steps: few users and groups, so that they meet."""

    def __init__(self, rng: random.Random, reference: Callable[[], Stores]) -> None:
        self.rng = rng
        self.reference = reference
        self.event_id = 0
        self.joined: dict[tuple[int, int], Member] = {}
        self.writes = [value for name, value in vars(Draw).items() if name.startswith("write_")]
        self.reads = [value for name, value in vars(Draw).items() if name.startswith("read_")]

    def step(self) -> Step:
        self.event_id += self.rng.choice([0, 1, 1, 2])
        chosen: Callable[[Draw], Step] = self.rng.choice(self.writes if self.rng.random() < 0.6 else self.reads)
        return chosen(self)

    def user(self) -> int:
        return self.rng.choice([1, 2, 3, 4, 2**48 + 5])

    def group(self) -> int:
        return self.rng.choice([1, 7, 2**50])

    def conversation(self) -> Conversation:
        choices: list[Conversation] = [Direct(1), Direct(7), InGroup(1), InGroup(7)]
        return self.rng.choice(choices)

    def message(self) -> int:
        """Mostly new and rising, sometimes an old one."""
        return max(self.event_id - self.rng.choice([0, 0, 0, 1, 2, 5, 30, 100]), 0) * 10

    def useq(self) -> tuple[int, str, int]:
        """An inbox, and a place in it: about its floor, its end, or anywhere."""
        user, platform = self.user(), self.platform()
        state = self.reference().inboxes.state(user, platform)
        if state is None:
            return user, platform, 1
        edge = self.rng.choice([state.floor, state.floor, state.latest, self.rng.randint(0, state.latest)])
        return user, platform, self.rng.choice([0, 10**6, *(max(edge + step, 0) for step in range(-3, 9))])

    def limit(self) -> int:
        return self.rng.choice([0, 1, 2, 3, 7, 100])

    def platform(self) -> str:
        return self.rng.choice(PLATFORMS)

    def write_user(self) -> Step:
        user = self.user()
        fields = {"k": "v\u00e9"} if self.rng.random() < 0.5 else {}
        return "users", "put", (Profile(user, f"name{user}", f"N{self.event_id}", "a", fields, self.event_id),), {}

    def write_link(self) -> Step:
        return "contacts", "link", (self.user(), self.user(), self.event_id), {}

    def write_unlink(self) -> Step:
        return "contacts", "unlink", (self.user(), self.user()), {}

    def write_block(self) -> Step:
        return "contacts", "block", (self.user(), self.user()), {"is_blocked": self.rng.random() < 0.6}

    def write_group(self) -> Step:
        group, is_large = self.group(), self.rng.random() < 0.2
        made = Group(group, f"g{group}", "n", "", 1, is_large=is_large, message_count=self.event_id, fields={"a": "b"})
        return "groups", "put", (made,), {}

    def write_member(self) -> Step:
        group, user = self.group(), self.user()
        stay = self.joined.get((group, user))
        if stay is None or (stay.left and self.rng.random() < 0.8):
            self.event_id += 1
            stay = Member(user, Role.MEMBER, self.event_id, self.event_id * 1000)
        elif self.rng.random() < 0.5:
            self.event_id += 1
            stay = Member(user, stay.role, stay.joined, stay.joined_at, self.event_id)
        else:
            is_muted, count = self.rng.random() < 0.5, self.rng.randint(0, 9)
            stay = Member(user, self.rng.choice(list(Role)), stay.joined, stay.joined_at, stay.left, is_muted, count)
        self.joined[group, user] = stay
        return "groups", "put_member", (group, stay), {}

    def write_request(self) -> Step:
        return "groups", "request", (self.group(), self.user(), self.rng.choice([0, self.event_id])), {}

    def write_forget_left(self) -> Step:
        return "groups", "forget_left", (max(self.event_id - self.rng.choice([0, 10, 100]), 0),), {}

    def write_unread_add(self) -> Step:
        return "unread", "add", (self.user(), self.conversation(), self.event_id), {}

    def write_unread_set(self) -> Step:
        event_id = self.event_id - self.rng.choice([0, 0, 3])
        return "unread", "set", (self.user(), self.conversation(), self.rng.randint(0, 3), event_id), {}

    def write_unread_drop(self) -> Step:
        return "unread", "drop", (self.user(), self.conversation()), {}

    def write_open(self) -> Step:
        return "inboxes", "open", (self.user(), self.platform()), {}

    def write_add(self) -> Step:
        entry = {"message_id": self.message(), "event_id": self.event_id, "at": self.event_id * 7, "options": 7}
        return "inboxes", "add", (self.user(), self.platform()), {**entry, "session": self.rng.choice([0, 2**60])}

    write_add2 = write_add3 = write_add4 = write_add

    def write_ack(self) -> Step:
        return "inboxes", "ack", self.useq(), {}

    def write_remove(self) -> Step:
        user, platform, first = self.useq()
        return "inboxes", "remove", (user, platform, first, first + self.rng.choice([-1, 0, 1, 9])), {}

    def write_body(self) -> Step:
        body = b"body%d" % self.event_id * self.rng.choice([1, 50])
        return "bodies", "put", (self.message(), body, self.rng.choice([0, 1, 2, 4])), {}

    write_body2 = write_body

    def write_release(self) -> Step:
        return "bodies", "release", (self.message(), self.rng.choice([1, 1, 2])), {}

    write_release2 = write_release

    def write_replace(self) -> Step:
        return "bodies", "replace", (self.message(), b"recalled"), {}

    def write_key(self) -> Step:
        key = b"%d/%d" % (self.user(), self.rng.randint(0, 9))
        return "keys", "put", (key, Sent(self.message(), self.event_id, 5)), {}

    def write_private(self) -> Step:
        row = PrivateRow(self.message(), self.user(), self.rng.random() < 0.5)
        return "timelines", "put_private", (self.user(), row), {}

    write_private2 = write_private3 = write_private

    def write_timeline(self) -> Step:
        return "timelines", "put_group", (self.group(), GroupRow(self.message(), self.user(), self.message())), {}

    def write_mark(self) -> Step:
        times = {"delivered_at": self.rng.choice([0, self.event_id]), "read_at": self.rng.choice([0, self.event_id])}
        return "timelines", "mark", (self.user(), self.message()), times

    def write_recall(self) -> Step:
        return "timelines", "recall_private", (self.user(), self.message()), {}

    def write_recall_group(self) -> Step:
        return "timelines", "recall_group", (self.group(), self.message()), {}

    def write_drop(self) -> Step:
        name, owner = self.rng.choice([("drop_private", self.user()), ("drop_group", self.group())])
        return "timelines", name, (owner,), {"through": self.message() - self.rng.choice([0, 500])}

    def read_users(self) -> Step:
        return self.rng.choice([
            ("users", "get", (self.user(),), {}),
            ("users", "number_of", (f"name{self.user()}",), {}),
            ("users", "all", (), {}),
        ])  # fmt: skip

    def read_contacts(self) -> Step:
        return self.rng.choice([
            ("contacts", "of", (self.user(),), {}),
            ("contacts", "is_blocked", (self.user(), self.user()), {}),
            ("contacts", "count", (self.user(),), {}),
            ("contacts", "linked_at", (self.user(), self.user()), {}),
            ("contacts", "page", (self.user(), self.limit()), {}),
            ("contacts", "page", (self.user(), self.limit()), {"after": (self.event_id - 5, self.user())}),
        ])  # fmt: skip

    def read_groups(self) -> Step:
        choices: list[Step] = [
            ("groups", "get", (self.group(),), {}),
            ("groups", "number_of", (f"g{self.group()}",), {}),
            ("groups", "member", (self.group(), self.user()), {}),
            ("groups", "members", (self.group(),), {}),
            ("groups", "members", (self.group(),), {"at": self.event_id - self.rng.choice([0, 1, 5, 50])}),
            ("groups", "groups_of", (self.user(),), {}),
            ("groups", "requests", (self.group(),), {}),
            ("groups", "requests", (self.group(),), {"after": self.user(), "limit": self.limit()}),
            ("groups", "joined_page", (self.user(), self.limit()), {}),
            ("groups", "joined_page", (self.user(), self.limit()), {"after": (self.event_id * 999, self.group())}),
            ("groups", "count_of", (self.user(),), {}),
        ]
        return self.rng.choice(choices)

    def read_unread(self) -> Step:
        return self.rng.choice([
            ("unread", "get", (self.user(), self.conversation()), {}),
            ("unread", "of", (self.user(),), {}),
            ("unread", "many", (self.user(), [self.conversation() for _ in range(3)]), {}),
            ("unread", "direct", (self.user(), self.limit()), {"after": self.rng.choice([-1, self.user()])}),
        ])  # fmt: skip

    def read_inboxes(self) -> Step:
        after = self.rng.choice([None, (self.user(), self.platform())])
        return self.rng.choice([
            ("inboxes", "platforms", (self.user(),), {}),
            ("inboxes", "after", (*self.useq(), self.limit()), {}),
            ("inboxes", "state", (self.user(), self.platform()), {}),
            ("inboxes", "states", (), {"after": after, "limit": self.limit()}),
        ])  # fmt: skip

    read_inboxes2 = read_inboxes

    def read_bodies(self) -> Step:
        return self.rng.choice([
            ("bodies", "get", ([self.message() for _ in range(self.rng.randint(0, 5))],), {}),
            ("bodies", "references", (self.message(),), {}),
        ])  # fmt: skip

    def read_key(self) -> Step:
        return "keys", "get", (b"%d/%d" % (self.user(), self.rng.randint(0, 9)),), {}

    def read_timelines(self) -> Step:
        after, limit, before = self.message(), self.limit(), self.rng.choice([None, self.message()])
        peer = self.rng.choice([None, self.user()])
        private: dict[str, Any] = {"limit": limit, "peer": peer}
        choices: list[Step] = [
            ("timelines", "private_row", (self.user(), self.message()), {}),
            ("timelines", "group_row", (self.group(), self.message()), {}),
            ("timelines", "private_forward", (self.user(),), {"after": after, "through": before, **private}),
            ("timelines", "private_backward", (self.user(),), {"before": before, "down_to": after - 300, **private}),
            ("timelines", "group_forward", (self.group(),), {"after": after, "limit": limit}),
            ("timelines", "group_backward", (self.group(),), {"before": before, "down_to": 5, "limit": limit}),
        ]
        return self.rng.choice(choices)

    read_timelines2 = read_timelines


class Opened(Stores, Protocol):
    """Stores that say how much waits."""

    @property
    def pending_bytes(self) -> int: ...


class Pair:
    """The reference and the embedded stores, kept in step."""

    def __init__(
        self,
        seed: int,
        open_store: Callable[[], KeyValue],
        lose_machine: Callable[[random.Random], object] | None = None,
    ) -> None:
        self.rng = random.Random(seed)
        self.open_store = open_store
        self.lose_machine = lose_machine
        self.draw = Draw(self.rng, lambda: self.reference)
        self.steps: list[Step] = []
        self.commits = [(0, 0)]
        """(steps, event id) at each commit; the lane of tasks notes which commit it is."""
        self.reference: Stores = MemoryStores()
        self.stores = self.open()

    def open(self) -> Opened:
        self.store = self.open_store()
        return EmbeddedStores(
            self.store,
            cached_users_max=self.rng.choice([2, 5, 100]),
            kept_entries_max=self.rng.choice([1, 2, 64]),
            cached_body_bytes=self.rng.choice([2, 1000, 10**6]),
        )

    def run(self, count: int) -> None:
        for number in range(count):
            step = self.draw.step()
            expected = perform(self.reference, step)
            assert perform(self.stores, step) == expected, (number, step)
            self.steps.append(step)
            choice = self.rng.random()
            if choice < 0.05:
                self.commit()
            elif choice < 0.07:
                self.refuse()
            elif choice < 0.075:
                self.restart()
            elif choice < 0.08 and self.lose_machine is not None:
                self.lose_machine(self.rng)
                self.restart()
            elif choice < 0.1:
                self.store.flush()

    def commit(self) -> None:
        self.stores.commit(self.applied())
        self.commits.append((len(self.steps), self.draw.event_id))
        assert self.stores.pending_bytes == 0

    def applied(self) -> dict[Lane, int]:
        return {**dict.fromkeys(Lane, self.draw.event_id), Lane.TASKS: len(self.commits)}

    def refuse(self) -> None:
        """A commit that the store refuses changes nothing."""
        if isinstance(self.store, SimulatedKeyValue):
            self.store.fail_write = lambda: True
            with pytest.raises(Unavailable):
                self.stores.commit(self.applied())
            self.store.fail_write = lambda: False
            assert self.stores.applied(Lane.INBOXES) == self.commits[-1][1]

    def restart(self) -> None:
        """What was not committed is gone from both; of a lost machine some last commits, too."""
        self.stores.close()
        self.stores = self.open()
        count = self.stores.applied(Lane.TASKS)
        assert count == len(self.commits) - 1 or self.lose_machine
        del self.commits[count + 1 :]
        assert {self.stores.applied(lane) for lane in Lane if lane != Lane.TASKS} == {self.commits[-1][1]}
        del self.steps[self.commits[-1][0] :]
        self.reference = MemoryStores()
        self.draw.joined.clear()
        for step in self.steps:
            perform(self.reference, step)
            if step[1] == "put_member":
                self.draw.joined[step[2][0], step[2][1].user] = step[2][1]


@pytest.mark.parametrize("seed", range(40))
def test_embedded_stores_answer_as_the_reference_does(seed: int) -> None:
    content = StoreContent()
    Pair(seed, lambda: SimulatedKeyValue(content), content.crash).run(1500)


@pytest.mark.parametrize("seed", range(100, 104))
def test_on_rocksdb_too(seed: int, tmp_path: Path) -> None:
    pair = Pair(seed, lambda: RocksKeyValue(tmp_path / "stores"))
    pair.run(1500)
    pair.stores.close()
