"""How far each lane of appliers has got, and what they are allowed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pixiu.model.errors import ConfigError
from pixiu.model.pixiu_pb2 import LimitsChanged
from pixiu.ports.stores import Lane, Stores

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pixiu.config.messaging import InboxSettings

__all__ = ["Limits", "Reached"]


class Reached:
    """The last record that each lane has applied in full. Appliers write their own number and read the others'."""

    __slots__ = ("inboxes", "rosters", "timelines")

    def __init__(self, stores: Stores) -> None:
        self.rosters = stores.applied(Lane.ROSTERS)
        self.inboxes = stores.applied(Lane.INBOXES)
        self.timelines = stores.applied(Lane.TIMELINES)


@dataclass(frozen=True, slots=True)
class Limits:
    """The settings that results depend on: they are in the log, so that a replay finds the same ones."""

    offline_max: int = 10_000
    """Entries kept per inbox; -1 keeps all."""
    offline_max_by_platform: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def from_record(cls, record: LimitsChanged) -> Limits:
        """The limits that a record names."""
        return cls(record.offline_max, dict(record.offline_max_by_platform))

    def as_record(self) -> LimitsChanged:
        """The limits for a record."""
        return LimitsChanged(offline_max=self.offline_max, offline_max_by_platform=dict(self.offline_max_by_platform))

    @classmethod
    def from_settings(cls, settings: InboxSettings) -> Limits:
        """The limits that ``[inbox]`` names."""
        by_platform: dict[str, int] = {}
        for part in filter(None, map(str.strip, settings.offline_max_by_platform.split(","))):
            platform, _, count = part.rpartition(":")
            if not platform or not count.strip().removeprefix("-").isdecimal() or int(count) < -1:
                raise ConfigError(f'inbox.offline_max_by_platform must be like "desktop:80, mobile:-1", not {part!r}')
            by_platform[platform.strip()] = int(count)
        return cls(settings.offline_max, by_platform)
