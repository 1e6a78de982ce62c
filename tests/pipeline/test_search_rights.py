"""The right to find a message is the right to read it.

Whatever happens in a world, each user finds by ``search`` what ``history`` shows them, and nothing else.
"""

import random
from pathlib import Path

import pytest

pytest.importorskip("tantivy")

from pixiu.im.draft import Actor, Answer
from pixiu.model.errors import PixiuError
from tests.im.world import messages
from tests.pipeline.finding import FindingWorld

pytestmark = pytest.mark.feature("B03")

USERS = ("ann", "bob", "cy", "dee")
GROUPS = ("tea", "go", "所有人")
WORDS = ("lunch", "Lunch", "tomorrow", "午饭", "明天", "明天午饭", "吃午饭吧", "ＯＫ", "ok", "brunch")


class Life:
    """Random things that users do. What is refused is a part of it."""

    def __init__(self, data: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.world = FindingWorld(data)
        self.said: list[str] = []
        for user in USERS:
            self.world.actor(user)

    def step(self) -> None:
        pick = self.random.choice
        user, other, group = pick(USERS), pick(USERS), pick(GROUPS)
        history = pick(("all", "since_join"))
        deed = self.random.choices(
            ["send", "gsend", "recall", "create", "join", "quit", "manage", "history", "block", "special"],
            [10, 14, 3, 3, 5, 3, 4, 2, 2, 2],
        )[0]
        if deed == "send":
            self._say(user, "send", to=other)
        elif deed == "gsend":
            self._say(user, "gsend", group=group)
        elif deed == "recall" and self.said:
            self._try(user, "recall", message_id=pick(self.said))
        elif deed == "create":
            self._try(user, "create_group", group=group, members=[other], history=history)
        elif deed in ("join", "quit"):
            self._try(user, deed, group=group)
        elif deed == "manage":
            op = pick(("invite", "remove", "admin", "transfer", "mute", "unmute"))
            self._try(user, "manage", group=group, user=other, op=op)
        elif deed == "history":
            self._try(user, "manage", group=group, op="history", history=history)
        elif deed == "block":
            self._try(user, pick(("block", "unblock", "contact", "unlink")), user=other)
        elif deed == "special":
            self._special(user, other, group)
        self.world.pass_time(self.random.randrange(3))

    def _special(self, user: str, other: str, group: str) -> None:
        text = self._text()
        case = self.random.randrange(4)
        if case == 0:
            self._try(user, "send", to=other, body="bHVuY2g=", kind="text", enc="aes")
        elif case == 1:
            self._admin("system", to=user, text=text)
        elif case == 2:
            self._admin("broadcast", group=group, text=text)
        else:
            self._admin("push", uids=[user], msg_bodies=[text], msg_options=3)

    def _text(self) -> str:
        return self.random.choice((" ", ", ", "")).join(self.random.choices(WORDS, k=self.random.randint(1, 4)))

    def _say(self, user: str, action: str, **where: object) -> None:
        answer = self._try(user, action, text=self._text(), **where)
        if answer is not None:
            self.said.append(str(answer["message_id"]))

    def _try(self, actor: str, action: str, /, **params: object) -> Answer | None:
        try:
            return self.world.do(actor, action, params)
        except PixiuError:
            return None

    def _admin(self, action: str, **params: object) -> None:
        try:
            self.world.ask(Actor(0, is_admin=True), action, params)
        except PixiuError:
            pass

    # What a user can read.

    def readable(self, user: str) -> dict[int, str]:
        """Texts by message id, by history alone."""
        texts: dict[int, str] = {}
        places: list[dict[str, object]] = [{}]
        places += [{"group": group} for group in GROUPS]
        for place in places:
            before: dict[str, object] = {}
            while True:
                try:
                    page = self.world.do(user, "history", {**place, **before, "limit": 7})
                except PixiuError:
                    break
                for each in messages(page):
                    if each.get("text"):
                        texts[int(str(each["message_id"]))] = str(each["text"])
                if not page["has_more"]:
                    break
                before = {"before": page["min"]}
        return texts

    def check(self) -> None:
        for user in USERS:
            readable = {key: text for key, text in self.readable(user).items() if key in self.world.indexed}
            for q in ("lunch", "午饭", "明天", "明天午饭", "饭", "ok", "lunch 午饭"):
                expected = sorted(key for key, text in readable.items() if has(text, q))
                newest = self.world.found(user, q, limit=self.random.randint(1, 9))
                assert newest == expected[::-1], (user, q)
                assert sorted(self.world.found(user, q, limit=50, order="relevance")) == expected, (user, q)


def has(text: str, q: str) -> bool:
    """By other means than the index: characters as they stand, words as between signs."""
    plain = text.replace("ＯＫ", "ok").lower()
    for word in q.split():
        if word.isascii():
            spaced = "".join(each if each.isascii() and each.isalnum() else " " for each in plain)
            if word not in spaced.split():
                return False
        elif word not in plain:
            return False
    return True


@pytest.mark.parametrize("seed", range(8))
def test_whoever_finds_it_can_read_it_and_the_other_way_round(tmp_path: Path, seed: int) -> None:
    life = Life(tmp_path, seed)
    for _ in range(90):
        life.step()
    life.world.index()
    life.check()
    for _ in range(40):  # the index is behind now, and rights are as they are now
        life.step()
    life.check()
    life.world.index()
    life.check()


def test_such_a_world_has_all_that_it_is_about(tmp_path: Path) -> None:
    """The test above would hold in a world in which nothing happens."""
    life = Life(tmp_path, 4)
    for _ in range(200):
        life.step()
    life.world.index()
    world = life.world
    records = world.records()
    kinds = {record.WhichOneof("what") for record in records}
    assert {"group_info", "member", "recalled", "block", "push", None} <= kinds
    assert any(world.found(user, "午饭") for user in USERS)
    readable = [set(life.readable(user)) for user in USERS]
    assert any(one - other and other - one for one in readable for other in readable), "users read different things"
    since = [group for group in map(world.stores.groups.number_of, GROUPS) if group is not None]
    assert any(group is not None and group.is_since_join for group in map(world.stores.groups.get, since))
