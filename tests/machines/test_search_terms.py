"""How texts and queries are cut, and what of a text is marked. The index cuts at spaces; the rest is here."""

import random

import pytest

from pixiu.machines.search import highlights, parse_query, terms_of
from pixiu.machines.search.query import QUERY_CHARS_MAX, TERMS_MAX
from pixiu.machines.search.terms import WORD_CHARS_MAX, fold, index_text
from pixiu.model.errors import RequestError, TooLarge

pytestmark = pytest.mark.feature("B03")


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("Hello, World!", "hello world"),
        ("user@example.com", "user example com"),
        ("我们去吃饭", "我 我们 们 们去 去 去吃 吃 吃饭 饭"),
        ("好", "好"),
        ("OK吗", "ok 吗"),
        ("第3章 go", "第 3 章 go"),
        ("한국어 テスト ひら", "한 한국 국 국어 어 テ テス ス スト ト ひ ひら ら"),
        ("ＡＢＣ１２３", "abc123"),
        ("Straße ÉCOLE", "strasse école"),
        ("हिन्दी भाषा", "हिन्दी भाषा"),
        ("…!? 🍜 --", ""),
        ("", ""),
        ("x" * 100, "x" * WORD_CHARS_MAX),
        ("ﹰx", "ًx"),
    ],
)
def test_terms(text: str, terms: str) -> None:
    assert index_text(text) == terms
    assert " ".join(term.text for term in terms_of(text)) == terms


def test_terms_of_any_text_are_what_the_index_is_given() -> None:
    chance = random.Random(7)
    pool = [*"aZ9 _-明天午饭ＯＫ한국テスト\n\t'é", "e\u0301", "\ufe70", "\U0001f35c", "हि", "㍿", "①", "\u200d"]
    for _ in range(500):
        text = "".join(chance.choices(pool, k=chance.randint(0, 30)))
        terms = terms_of(text)
        assert index_text(text).split(" ") == ([term.text for term in terms] or [""])
        assert [term.place for term in terms] == list(range(len(terms)))
        for term in terms:
            assert 0 <= term.begin < term.end <= len(text)
            assert not any(character.isspace() for character in term.text)


@pytest.mark.parametrize(
    ("q", "text", "is_there"),
    [
        ("lunch", "Lunch!", True),
        ("lunch", "brunch", False),
        ("lunch tomorrow", "tomorrow: lunch", True),
        ('"lunch tomorrow"', "tomorrow: lunch", False),
        ('"lunch tomorrow"', "lunch, tomorrow", True),
        ("午饭", "明天午饭吃什么", True),
        ("午饭", "上午吃饭", False),
        ("明天午饭", "明天午饭", True),
        ("明天午饭", "明天吃午饭", False),
        ("明天 午饭", "午饭在明天", True),
        ("饭", "午饭", True),
        ("午饭ok", "午饭 OK", True),
        ("ok午饭吧", "ok 午饭吧", True),
        ("午饭ok", "午饭吧 ok", False),
        ("a@b.com", "a b com", True),
        ("a@b.com", "a com b", False),
    ],
)
def test_what_stands_together_is_found_together(q: str, text: str, is_there: bool) -> None:
    assert bool(all(highlights(text, [phrase]) for phrase in parse_query(q).phrases)) is is_there


def test_highlights() -> None:
    def marked(text: str, q: str) -> str:
        for begin, end in reversed(highlights(text, parse_query(q).phrases)):
            text = f"{text[:begin]}[{text[begin:end]}]{text[end:]}"
        return text

    assert marked("🍜🍜 明天午饭, 明天", "明天") == "🍜🍜 [明天]午饭, [明天]"
    assert marked("明天午饭", "明天午饭") == "[明天午饭]"
    assert marked("A big cat, big cats", '"big cat"') == "A [big] [cat], big cats"
    assert marked("one two three", "three one") == "[one] two [three]"
    assert highlights("a " * 1000, parse_query("a").phrases) == [(number * 2, number * 2 + 1) for number in range(50)]


def test_queries() -> None:
    wanted = parse_query('lunch from:alice from:me in:"my team" after:2026-01-31 before:2026-02-01T12:00+08:00')
    assert wanted.phrases == (((0, "lunch"),),)
    assert (wanted.senders, wanted.places) == (("alice", "me"), ("my team",))
    assert (wanted.at_least_ms, wanted.before_ms) == (1_769_817_600_000, 1_769_918_400_000)
    assert wanted.first_id == (1_769_817_600_000 - 1_577_836_800_000) << 22
    assert wanted.end_id(5) == 5
    assert parse_query("x before:1999-01-01").end_id() == 1, "before all messages there is none"
    assert parse_query("x after:1767225600000").at_least_ms == 1_767_225_600_000
    assert parse_query("http://x note:y").phrases == (((0, "http"), (1, "x")), ((0, "note"), (1, "y")))
    assert parse_query("FROM:bob x").senders == ("bob",)
    assert parse_query("x x X").phrases == (((0, "x"),),)


@pytest.mark.parametrize(
    ("q", "words"),
    [
        ("", "no word"),
        ("…!", "no word"),
        ("from:alice", "no word"),
        ('x from:""', "from: has nothing"),
        ("x after:soon", "takes a day such as"),
        ("x before:2026-13-01", "takes a day such as"),
    ],
)
def test_queries_that_make_no_sense(q: str, words: str) -> None:
    with pytest.raises(RequestError, match=words):
        parse_query(q)


def test_bounds() -> None:
    parse_query("x" * QUERY_CHARS_MAX)
    with pytest.raises(TooLarge, match="256 characters, not 257"):
        parse_query("x" * (QUERY_CHARS_MAX + 1))
    with pytest.raises(TooLarge, match=f"{TERMS_MAX} words"):
        parse_query(" ".join(map(str, range(TERMS_MAX + 1))))
    with pytest.raises(TooLarge, match="8 times from"):
        parse_query("x " + "from:a " * 9)
    assert fold("X" * 200) == "x" * WORD_CHARS_MAX
