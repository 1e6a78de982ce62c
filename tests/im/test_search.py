"""The verb search over an index that does as it is told: params, pages, and hits that are not readable any more."""

import sys
from collections.abc import Callable

import pytest

from pixiu.im.search import HIGHLIGHTED_CHARS_MAX
from pixiu.machines.search import highlights
from pixiu.model.errors import NotAllowed, NotFound, Overloaded, PixiuError, RequestError, TooLarge, Unavailable
from pixiu.ports.search import Asked, Found, Hit
from tests.im.world import World, messages, texts

pytestmark = pytest.mark.feature("B03")


class Told:
    """``Searches`` that finds all private messages and all of some groups: rights are not its business here."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.hits: list[Hit] = []
        self.error: PixiuError | None = None
        self.meanwhile: Callable[[], object] = lambda: None

    def find(self, asked: Asked, done: Callable[[Found | PixiuError], object]) -> None:
        self.asked.append(asked)
        self.meanwhile()
        if self.error is not None:
            done(self.error)
            return
        newest = sorted(self.hits, reverse=True)
        fits = [hit for hit in newest if not asked.before or hit.message_id < asked.before]
        done(Found(fits[asked.skip :][: asked.limit]))


class Scene:
    def __init__(self) -> None:
        self.index = Told()
        self.world = World(searches=self.index)
        self.world.do("alice", "create_group", group="tea", members=["bob"], history="since_join")

    def say(self, count: int, text: str = "lunch") -> list[int]:
        said = [self.world.do("alice", "send", to="bob", text=f"{text} {n}") for n in range(count)]
        ids = [int(str(each["message_id"])) for each in said]
        self.index.hits += [Hit(each, 0) for each in ids]
        return ids

    def recall(self, message_ids: list[int]) -> None:
        for each in message_ids:
            self.world.do("alice", "recall", message_id=each)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_what_the_index_is_asked(scene: Scene) -> None:
    group = scene.world.proxy.context.directory.group("tea")
    joined = scene.world.stores.groups.member(group, scene.world.number("bob"))
    assert joined is not None
    scene.world.do("bob", "search", q="lunch from:alice from:me in:tea after:2026-01-01", limit=7)
    (asked,) = scene.index.asked
    alice, bob = scene.world.number("alice"), scene.world.number("bob")
    assert asked.phrases == (((0, "lunch"),),)
    assert (asked.user, asked.groups, asked.peers) == (bob, {group: joined.joined_message}, ())
    assert (set(asked.senders), asked.limit, asked.is_by_relevance) == ({alice, bob}, 8, False)
    assert asked.at_least == (1_767_225_600_000 - 1_577_836_800_000) << 22
    for params, peers, groups in (
        ({}, None, {group: joined.joined_message}),
        ({"with": "alice"}, (alice,), {}),
        ({"with": "0"}, (0,), {}),
        ({"group": "tea"}, (), {group: joined.joined_message}),
        ({"q": "lunch in:alice in:tea"}, (alice,), {group: joined.joined_message}),
    ):
        scene.world.do("bob", "search", {"q": "lunch", **params})
        assert (scene.index.asked[-1].peers, scene.index.asked[-1].groups) == (peers, groups), params


def test_pages_show_what_history_shows(scene: Scene) -> None:
    ids = scene.say(5)
    page = scene.world.do("bob", "search", q="lunch", limit=2)
    assert texts(page) == ["lunch 4", "lunch 3"]
    assert messages(page)[0]["highlights"] == [[0, 5]]
    shown = dict(messages(page)[0])
    del shown["highlights"]
    assert shown == messages(scene.world.do("bob", "history", {"with": "alice", "limit": 1}))[0]
    assert (page["has_more"], page["cursor"]) == (True, str(ids[3]))
    page = scene.world.do("bob", "search", q="lunch", limit=3, cursor=page["cursor"])
    assert (texts(page), page["has_more"], page["cursor"]) == (["lunch 2", "lunch 1", "lunch 0"], False, None)


def test_hits_that_are_gone_make_room_for_the_next_and_leave_no_trace(scene: Scene) -> None:
    ids = scene.say(12)
    scene.recall(ids[2:11])
    page = scene.world.do("bob", "search", q="lunch", limit=2)
    assert (texts(page), page["has_more"]) == (["lunch 11", "lunch 1"], True)
    assert len(scene.index.asked) == 4, "asked until the page was full, and one more was known"
    scene.recall(ids[:1])
    page = scene.world.do("bob", "search", q="lunch", limit=2)
    assert (texts(page), page["has_more"], page["cursor"]) == (["lunch 11", "lunch 1"], False, None)
    scene.index.hits = [Hit(999, 0), Hit(998, 77)]
    assert messages(scene.world.do("bob", "search", q="lunch")) == []


def test_one_page_asks_so_often_and_no_more(scene: Scene) -> None:
    ids = scene.say(40)
    scene.recall(ids[1:])
    page = scene.world.do("bob", "search", q="lunch", limit=1)
    assert (texts(page), page["has_more"], len(scene.index.asked)) == ([], True, 8)
    while page["has_more"]:
        page = scene.world.do("bob", "search", q="lunch", limit=1, cursor=page["cursor"])
    assert texts(page) == ["lunch 0"]


def test_who_quits_while_the_index_looks_finds_nothing(scene: Scene) -> None:
    sent = scene.world.do("alice", "gsend", group="tea", text="lunch")
    group = scene.world.proxy.context.directory.group("tea")
    scene.index.hits = [Hit(int(str(sent["message_id"])), group)]
    bob = scene.world.actor("bob")
    assert texts(scene.world.ask(bob, "search", {"q": "lunch"})) == ["lunch"]

    def quit_now() -> None:
        scene.index.meanwhile = lambda: None
        scene.world.ask(bob, "quit", {"group": "tea"})

    scene.index.meanwhile = quit_now
    assert texts(scene.world.ask(bob, "search", {"q": "lunch"})) == []


def test_by_relevance_there_is_an_end(scene: Scene) -> None:
    scene.say(5)
    page = scene.world.do("bob", "search", q="lunch", order="relevance", limit=2)
    assert (page["cursor"], scene.index.asked[-1].is_by_relevance) == ("2", True)
    page = scene.world.do("bob", "search", q="lunch", order="relevance", limit=2, cursor=page["cursor"])
    assert (texts(page), page["cursor"]) == (["lunch 2", "lunch 1"], "4")
    scene.world.do("bob", "search", q="lunch", order="relevance", limit=100, cursor="950")
    assert scene.index.asked[-1].limit == 51
    with pytest.raises(TooLarge, match="1000 messages"):
        scene.world.do("bob", "search", q="lunch", order="relevance", cursor="1000")


@pytest.mark.parametrize(
    ("params", "kind", "words"),
    [
        ({}, RequestError, "q is missing"),
        ({"q": 7}, RequestError, "q must be a text, not the number 7"),
        ({"q": "\ud800"}, RequestError, "q"),
        ({"q": "!"}, RequestError, "no word"),
        ({"q": "x", "order": "best"}, RequestError, "order must be one of newest, relevance"),
        ({"q": "x", "limit": 0}, RequestError, "limit must be"),
        ({"q": "x", "cursor": "a"}, RequestError, "cursor must be"),
        ({"q": "x", "page": 2}, RequestError, "search knows no 'page'"),
        ({"q": "x", "with": "nobody"}, NotFound, "nobody"),
        ({"q": "x", "group": "nowhere"}, NotFound, "nowhere"),
        ({"q": "x", "group": "tea"}, NotAllowed, "not a member"),
        ({"q": "x in:tea"}, NotFound, "no group of yours"),
        ({"q": "x in:nowhere"}, NotFound, "nowhere"),
        ({"q": "x from:nobody"}, NotFound, "nobody"),
        ({"q": "x", "with": "alice", "group": "tea"}, RequestError, "not both"),
    ],
)
def test_refusals(scene: Scene, params: dict[str, object], kind: type[PixiuError], words: str) -> None:
    with pytest.raises(kind, match=words):
        scene.world.do("carol", "search", params)
    assert scene.index.asked == []


def test_what_the_index_refuses_is_told(scene: Scene) -> None:
    scene.index.error = Overloaded("34 searches are under way; try again", retry_after_ms=200)
    with pytest.raises(Overloaded, match="34 searches"):
        scene.world.do("bob", "search", q="lunch")
    with pytest.raises(Unavailable, match="no index"):
        World().do("bob", "search", q="lunch")


def test_highlights_are_looked_for_in_a_bounded_number_of_characters_per_page(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cutting texts into terms is done in the event loop, and the largest message took half a second."""
    looked_at: list[int] = []

    def counted(text: str, phrases: object) -> list[tuple[int, int]]:
        looked_at.append(len(text))
        return highlights(text, phrases)  # type: ignore[arg-type]

    monkeypatch.setattr(sys.modules["pixiu.im.search"], "highlights", counted)
    scene.say(1, "lunch " + "x " * 20_000)
    scene.say(1, "x " * 1_000 + "lunch " + "x " * 3_000)
    scene.say(1)
    page = messages(scene.world.do("bob", "search", q="lunch"))
    assert [each["highlights"] for each in page] == [[[0, 5]], [[2_000, 2_005]], [[0, 5]]]
    assert looked_at == [7, 8_008, HIGHLIGHTED_CHARS_MAX - 8_015]
    del looked_at[:]
    scene.say(30, "lunch " + "x " * 20_000)
    page = messages(scene.world.do("bob", "search", q="lunch"))
    assert sum(looked_at) == HIGHLIGHTED_CHARS_MAX and len(looked_at) == 1
    assert [each["highlights"] for each in page][:2] == [[[0, 5]], []]
