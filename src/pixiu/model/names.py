"""What users, groups, rooms and platforms may be called.

A public id is what people use: up to 64 bytes of UTF-8 without control characters. Everything is keyed by a 64-bit
number instead. A canonical decimal below 2^48 is its own number; every other public id gets a snowflake, which lies far
above. ``0`` is the system's number, so nobody may be called that.
"""

import re
import unicodedata
from functools import lru_cache

from pixiu.model.errors import RequestError, TooLarge
from pixiu.model.inbox import FIRST

__all__ = [
    "OPERATOR",
    "OWN_NUMBER_END",
    "PLATFORMS_MAX",
    "PLATFORM_BYTES_MAX",
    "PUBLIC_ID_BYTES_MAX",
    "SYSTEM",
    "check_platform",
    "check_public_id",
    "check_text",
    "has_controls",
    "new_public_id",
    "normalized",
    "own_number",
]

PUBLIC_ID_BYTES_MAX = 64
PLATFORM_BYTES_MAX = 32
PLATFORMS_MAX = 16
"""Platforms that one push, or the settings, may name."""
OWN_NUMBER_END = 2**48
"""Decimals below this are their own numbers."""

SYSTEM = "0"
"""The public id of number 0, which says what nobody said."""

OPERATOR = "pixiu"
"""By this public id the commands act that make a token with a node's own key: audit, top, push and others."""

_INVISIBLE = frozenset({"Cc", "Cf", "Cn", "Co", "Zl", "Zp"})
"""Unicode categories that a new public id does not hold: control, format, unassigned, private, separators of lines."""

_BLANK = frozenset(
    chr(each)
    for begin, end in (
        (0x034F, 0x034F), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x2800, 0x2800), (0x3164, 0x3164),
        (0xFE00, 0xFE0F), (0xFFA0, 0xFFA0), (0x1D159, 0x1D159), (0xE0100, 0xE01EF),
    )
    for each in range(begin, end + 1)
)  # fmt: skip
"""Letters and marks that are shown as nothing or as a space: fillers, joiners, variation selectors, empty braille."""

_ALIKE = frozenset({"LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC", "LISU"})

_AS_ASCII = str.maketrans(
    "ɑɡıɩɪǀƖʏɴɢʀʙʜʟꜰꜱᴀᴄᴅᴇᴊᴋᴍᴏᴘᴛᴜᴠᴡᴢ℮ꬲ",
    "agiiillyngrbhlfsacdejkmoptuvwzee",
)
"""Latin letters, among them all small capitals, that are hard to tell from an ASCII letter."""

_DOTS = re.compile("([ij])\u0307+")
"""A dot over a letter that has one is not shown."""

_CONTROLS = frozenset(map(chr, [*range(32), *range(127, 160)]))


def own_number(public_id: str) -> int | None:
    """The number that a canonical decimal is; None for every other public id, which is given one."""
    if not (len(public_id) < 16 and public_id.isascii() and public_id.isdigit()) or public_id[0] == "0":
        return None
    number = int(public_id)
    return number if number < OWN_NUMBER_END else None


def check_public_id(public_id: str, *, what: str) -> str:
    """Return it, or raise what is wrong with it. ``what`` names the thing: user, group."""
    if 1 < len(public_id) <= PUBLIC_ID_BYTES_MAX and public_id.isascii() and public_id.isprintable():
        return public_id  # as nearly all are
    check_text(public_id, what=what, bytes_max=PUBLIC_ID_BYTES_MAX)
    if not public_id:
        raise RequestError(f"{what} must not be empty")
    if public_id == SYSTEM:
        raise RequestError(f"{what} must not be {SYSTEM!r}, which is the system")
    return public_id


def normalized(public_id: str) -> str:
    """A public id as it is created: NFKC, without invisible characters, single spaces inside and none around.

    So ids that look the same are the same: full-width letters, ligatures, zero-width characters, doubled spaces, Latin
    letters such as a dotless i that look like ASCII ones.
    """
    if public_id.isascii() and "  " not in public_id and public_id[:1] != " " and public_id[-1:] != " ":
        return public_id  # as nearly all are
    text = unicodedata.normalize("NFKC", public_id)
    visible = (each for each in text if each not in _BLANK and unicodedata.category(each) not in _INVISIBLE)
    shown = "".join(" " if each.isspace() else each for each in visible).translate(_AS_ASCII)
    shown = _DOTS.sub(r"\1", shown)
    # Removing a character may bring others together that compose.
    return unicodedata.normalize("NFKC", " ".join(shown.split()))


def new_public_id(public_id: str, *, what: str) -> str:
    """The public id under which a user, a group or a room is created; raises if there can be none like it."""
    found = normalized(check_public_id(public_id, what=what))
    check_public_id(found, what=what)
    if not found.isascii():
        scripts = sorted({script for each in found if (script := _script(each))})
        if len(scripts) > 1:
            raise RequestError(
                f"{what} must not mix {' and '.join(scripts)} letters, which look alike: {found!r}; use one of them"
            )
    return found


def _script(character: str) -> str:
    """The script of a letter, for the scripts whose letters look alike; empty for everything else."""
    if not character.isalpha():
        return ""
    script = unicodedata.name(character, "").partition(" ")[0]
    return script.capitalize() if script in _ALIKE else ""


@lru_cache(maxsize=256)
def check_platform(platform: str) -> str:
    """Return it, or raise what is wrong with it. There are few of them, and each login asks."""
    check_text(platform, what="platform", bytes_max=PLATFORM_BYTES_MAX)
    if not platform:
        raise RequestError("platform must not be empty")
    if platform == FIRST:
        raise RequestError(f"platform must not be {FIRST!r}, the inbox of a user who has not logged in yet")
    return platform


def check_text(text: str, *, what: str, bytes_max: int) -> bytes:
    """Its bytes, or raise: too long, with control characters, or not UTF-8."""
    data = encoded(text, what=what)
    if len(data) > bytes_max:
        raise TooLarge(f"{what} may have {bytes_max} bytes, not {len(data)}")
    if has_controls(text):
        raise RequestError(f"{what} must not hold control characters: {text!r}")
    return data


def encoded(text: str, *, what: str) -> bytes:
    """UTF-8, or raise: a lone surrogate has no bytes."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise RequestError(f"{what} is not Unicode text: {text[:40]!r}") from None


def has_controls(text: str) -> bool:
    """Does it hold a control character? The line's end counts as one."""
    return not text.isprintable() and not _CONTROLS.isdisjoint(text)
