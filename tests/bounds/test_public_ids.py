"""Public ids that look the same are the same, and ids of older data keep working."""

import unicodedata
from pathlib import Path

import pytest

from pixiu.model.errors import Conflict, NotFound, RequestError
from pixiu.model.names import new_public_id, normalized
from pixiu.model.pixiu_pb2 import Record, UserChanged
from pixiu.ports.log import MAIN
from tests.api.world import open_world
from tests.im.world import World, unlimited

ALIKE = ("alice ", " alice", "ali\u200bce", "\u202ealice", "ａｌｉｃｅ", "alice\u00ad", "alice\u00a0")
BLANKS = "\u034f\u115f\u1160\u17b4\u180b\u180f\u2800\u3164\ufe0f\uffa0\U0001d159\U000e0100"
"""Letters, marks and signs that fonts show as nothing or as a space."""


LETTERS = (
    "\u0251lice",
    "al\u0131ce",
    "al\u0269ce",
    "al\u026ace",
    "a\u01c0ice",
    "ali\u1d04e",
    "alic\u212e",
    "ali\u0307ce",
)
"""With a Latin letter, or a dot over an i, that is shown like the one of ``alice``."""


@pytest.mark.parametrize("public_id", (*ALIKE, *LETTERS, *(f"al{blank}ice" for blank in BLANKS)))
async def test_an_id_that_looks_like_a_taken_one_is_taken(tmp_path: Path, public_id: str) -> None:
    async with open_world(tmp_path) as world:
        made = await world.act("bob", "create_user", {"user": public_id})
        assert made.status_code == 409 and "'alice'" in made.text
        shown = await world.act("bob", "user", {"user": public_id})
        assert shown.json()["user"] == "alice"
        # A token names its user exactly: a look-alike id is another user.
        stranger = await world.act(public_id, "user")
        assert stranger.status_code in (400, 401)


def test_groups_and_users_are_created_under_the_normal_form() -> None:
    world = World(unlimited())
    assert world.do("bob", "create_group", group="Tea\u200b  Club ")["group"] == "Tea Club"
    with pytest.raises(Conflict):
        world.do("bob", "create_group", group="Tea Club\u2060")
    assert world.do("bob", "group", group="Tea  Club")["group"] == "Tea Club"
    world.do("bob", "send", to="ｃａｒｏｌ", text="hi")
    assert world.do("bob", "user", user="carol")["user"] == "carol"


def test_letters_of_scripts_that_look_alike_are_not_mixed() -> None:
    cyrillic_greek, others = ("аlice", "αlice", "pаypal"), ("ꓮlice", "Ꭺlice", "ⲟlga", "օlga")
    for mixed in (*cyrillic_greek, *others):
        with pytest.raises(RequestError, match="must not mix"):
            new_public_id(mixed, what="user")
    for plain in ("алиса", "alice 貔貅", "élise", "Ωmega"[1:], "アリス-alice", "👩‍💻"):
        assert new_public_id(plain, what="user")


def test_latin_letters_that_look_like_ascii_ones_become_these() -> None:
    for odd, plain in (("\u0261o\u1d0fd", "good"), ("k\u0131z", "kiz"), ("\u1d00\u029f\u026a\u1d04\u1d07", "ALICE")):
        assert normalized(odd).casefold() == plain.casefold()
    for kept in ("ğüşöç İstanbul", "ŋɔɛ", "þórr", "ñandú", "łódź", "straße", "Ⅳ".lower()):
        assert normalized(kept) == unicodedata.normalize("NFKC", kept)


def test_normal_form_is_stable_and_keeps_ordinary_ids() -> None:
    for plain in ("alice", "a/b ü", "貔貅", "user 7", "x" * 64):
        assert normalized(plain) == plain
    for odd in (*ALIKE, *LETTERS, "i\u0307\u0307", "\u0131\u0307", "i\u200b\u0307", "e\u200b\u0301", "a \u200b b"):
        assert normalized(normalized(odd)) == normalized(odd)
    with pytest.raises(RequestError, match="must not be empty"):
        new_public_id("\u200b", what="user")


def test_user_of_older_data_is_reached_by_the_id_it_has() -> None:
    world = World(unlimited(), creates_users=False)
    for name in ("alice", "alice "):  # as an earlier version created them
        record = Record(at=1, user=UserChanged(public_id=name, name=name))
        world.log.append(MAIN, record.SerializeToString(), lambda _: None)
    world.settle()
    context = world.proxy.context.directory
    assert context.user("alice") != context.user("alice ")
    assert context.user("alice\u200b") == context.user("alice")
    with pytest.raises(NotFound):
        context.user("bob")
