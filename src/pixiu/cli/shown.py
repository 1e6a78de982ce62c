"""Texts of other people on a terminal, or in lines that a program reads: as they are, but for what would act there.

A control character can clear the screen, name the window, or begin a line that seems to come from somebody else; marks
of direction can turn what stands before them around. They are shown as escapes. Joiners and wide spaces stay, since
emoji and Chinese need them.
"""

from __future__ import annotations

__all__ = ["shown"]

_ACTING = [*range(32), *range(127, 160), 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
_ESCAPES = {code: chr(code).encode("unicode_escape").decode() for code in _ACTING}
_IN_LINES = {code: escape for code, escape in _ESCAPES.items() if code != ord("\n")}


def shown(text: str, *, keeps_lines: bool = False) -> str:
    """The text with escapes for what acts on a terminal; line ends stay if asked for."""
    if text.isprintable():
        return text
    found = text.translate(_IN_LINES if keeps_lines else _ESCAPES)
    return found.encode("utf-8", "backslashreplace").decode()
