"""Small text files that a node cannot do without: with a checksum, and kept twice.

A sealed file is its text and one more line, ``# crc32 1a2b3c4d``, over the bytes of the text. Files of earlier versions
are the text alone; they are still read, and sealed when they are next written.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Pair", "choose", "seal", "unseal"]

_MARK = "# crc32 "


@dataclass(frozen=True, slots=True)
class Pair:
    """Two copies of one text, as they were found."""

    text: str | None
    """What to use; None if no copy is usable."""
    stale: tuple[int, ...]
    """Which copies (0, 1) differ from the sealed text and are to be written again."""
    faults: tuple[tuple[int, str], ...]
    """Copies that are damaged, or missing although the other one is sealed, and why."""

    @property
    def is_absent(self) -> bool:
        """Whether there is neither copy."""
        return self.text is None and not self.faults


def seal(text: str) -> bytes:
    """The text with its checksum. It must not end with a line feed."""
    return f"{text}\n{_MARK}{zlib.crc32(text.encode()):08x}\n".encode()


def unseal(data: bytes) -> tuple[str, bool]:
    """The text, and whether a checksum confirms it. Raises ``ValueError`` if the checksum is wrong or unreadable."""
    try:
        text, _, last = data.decode().removesuffix("\n").rpartition("\n")
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    if not text:
        return last, False
    if seal(text) != data:
        raise ValueError("its checksum is wrong")
    return text, True


def choose(copies: tuple[bytes | None, bytes | None], check: Callable[[str], object]) -> Pair:
    """Which of two copies to use: the first sound one, a sealed one before one without a checksum.

    ``check`` raises ``ValueError`` for a text that makes no sense. None stands for a copy that is missing.
    """
    found: list[tuple[str, bool] | str] = []
    for data in copies:
        try:
            if data is None:
                found.append("it is missing")
                continue
            text, is_sealed = unseal(data)
            check(text)
            found.append((text, is_sealed))
        except ValueError as error:
            found.append(str(error))
    sound = [each for each in found if not isinstance(each, str)]
    chosen = next((each for each in sound if each[1]), sound[0] if sound else None)
    has_sealed = chosen is not None and chosen[1]
    faults = tuple(
        (number, each)
        for number, each in enumerate(found)
        if isinstance(each, str) and (copies[number] is not None or has_sealed)
    )
    if chosen is None:
        return Pair(None, (), faults)
    stale = tuple(number for number, data in enumerate(copies) if data != seal(chosen[0]))
    return Pair(chosen[0], stale, faults)
