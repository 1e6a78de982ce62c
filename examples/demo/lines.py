"""The people of the demo and their messages."""

from random import Random
from typing import NamedTuple

__all__ = ["ALL_LINES", "GROUPS", "ROOMS", "Cast", "line", "make_cast"]

_GIVEN = {
    "en": ["anna", "ben", "clara", "david", "emma", "frank", "grace", "henry", "iris", "jack", "kate", "leo", "mia",
           "noah", "olive", "paul", "rosa", "sam", "tess", "will"],
    "zh": ["美琳", "建国", "晓雨", "子轩", "雅婷", "志强", "思远", "佳怡", "浩然", "丽华", "文博", "欣怡", "俊杰",
           "雨桐", "明辉", "诗涵", "国栋", "小芳", "天宇", "静怡"],
}  # fmt: skip
_FAMILY = {
    "en": ["baker", "carter", "dawson", "evans", "fisher", "grant", "hughes", "irving", "jensen", "keller", "lane",
           "mason", "norris", "owens", "porter", "quinn"],
    "zh": ["陈", "林", "王", "李", "张", "刘", "黄", "周", "吴", "徐", "孙", "马", "朱", "胡", "郭", "何"],
}  # fmt: skip
_LINES = {
    "en": [
        "Are you coming to lunch?",
        "The train is late again, ten minutes at least.",
        "Did you see the numbers from last night?",
        "I'll send you the draft this afternoon.",
        "Happy birthday! Cake at four.",
        "Can someone review my change?",
        "It rains. Take an umbrella.",
        "That was a good match, wasn't it?",
        "Let's move the meeting to three.",
        "Who has the key to the small room?",
        "I read it twice and still don't get the ending.",
        "Thanks, that helps a lot!",
        "Back in five minutes.",
        "The soup is better than it looks.",
        "Shall we take the bikes on Saturday?",
        "No hurry, tomorrow is fine.",
    ],
    "zh": [
        "中午一起吃饭吗？",
        "地铁又晚点了，至少十分钟。",
        "昨晚的数据你看了吗？",
        "下午我把初稿发给你。",
        "生日快乐！四点有蛋糕。",
        "谁能帮我看一下这个改动？",
        "外面下雨了，记得带伞。",
        "那场球真精彩！",
        "会议改到三点吧。",
        "小会议室的钥匙在谁那里？",
        "我看了两遍，还是没懂结局。",
        "谢谢，帮大忙了！",
        "五分钟就回来。",
        "这汤比看起来好喝。",
        "周六骑车出去玩怎么样？",
        "不急，明天也行。",
    ],
}
GROUPS = ["Lunch", "读书会", "Release", "羽毛球", "Band", "摄影", "Night shift", "家人", "Climbing", "周末爬山"]
ROOMS = ["lobby", "match-day", "大厅"]

ALL_LINES = [text for texts in _LINES.values() for text in texts]


class Cast(NamedTuple):
    """One simulated person."""

    user: str
    """The public id."""
    name: str
    language: str


def make_cast(count: int, random: Random) -> list[Cast]:
    """People with distinct names, half of them Chinese."""
    people: dict[str, Cast] = {}
    number = 0
    while len(people) < count:
        language = "zh" if number % 2 else "en"
        given, family = random.choice(_GIVEN[language]), random.choice(_FAMILY[language])
        name = f"{family}{given}" if language == "zh" else f"{given.title()} {family.title()}"
        user = name if language == "zh" else f"{given}.{family}"
        if user in people:
            user = f"{user}{number}"
        people[user] = Cast(user, name, language)
        number += 1
    return list(people.values())


def line(language: str, random: Random) -> str:
    """A random message text."""
    return random.choice(_LINES[language])
