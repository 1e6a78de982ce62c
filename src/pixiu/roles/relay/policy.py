"""How many sessions a platform may have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.model.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pixiu.config import InboxSettings
    from pixiu.model.session import Session

__all__ = ["SessionPolicy", "read_numbers"]


class SessionPolicy:
    """``single`` is a limit of one, ``multi:N`` a limit of N (C4). The same device always replaces itself."""

    def __init__(self, settings: InboxSettings) -> None:
        self._sessions_max = settings.sessions_max
        self._by_platform = read_numbers(
            settings.sessions_max_by_platform, setting="inbox.sessions_max_by_platform", at_least=1
        )

    def excess(self, present: Iterable[Session], platform: str, device: str) -> list[Session]:
        """Who must go when a device logs in on a platform. ``present``: all sessions of the user, newest first."""
        room = self._by_platform.get(platform, self._sessions_max) - 1
        leaving = []
        for session in present:
            if session.platform != platform:
                continue
            if room == 0 or (device and session.device == device):
                leaving.append(session)
            else:
                room -= 1
        return leaving


def read_numbers(text: str, *, setting: str, at_least: int) -> dict[str, int]:
    """Numbers by platform, from ``"mobile:1, web:5"``."""
    numbers: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        platform, colon, number = (piece.strip() for piece in part.partition(":"))
        if not colon or not platform or not _is_integer(number):
            raise ConfigError(f'{setting} must look like "mobile:1, web:5", not {text!r}')
        if int(number) < at_least:
            raise ConfigError(f"{setting} must be at least {at_least} for {platform}, not {number}")
        if platform in numbers:
            raise ConfigError(f"{setting} names {platform} twice: {text!r}")
        numbers[platform] = int(number)
    return numbers


def _is_integer(text: str) -> bool:
    return text.removeprefix("-").isascii() and text.removeprefix("-").isdigit()
