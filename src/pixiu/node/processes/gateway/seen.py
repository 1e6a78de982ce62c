"""What a gateway of a cluster has shown, kept over its restarts (X26)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pixiu.runtime.seen_file import SeenFile

if TYPE_CHECKING:
    from collections.abc import Hashable

    from pixiu.machines.dedup import Seen
    from pixiu.node.processes.options import RoleOptions
    from pixiu.ports.clock import Clock

__all__ = ["keep_seen"]

log = logging.getLogger(__name__)


def keep_seen(seen: Seen, options: RoleOptions, clock: Clock) -> SeenFile | None:
    """Remember what an earlier life of this gateway has shown, and keep what this one shows.

    A gateway is known by its port; one whose port is by chance has no earlier life that could be found.
    """
    settings = options.settings.rooms
    if not options.settings.links.keep_shown or not options.port:
        return None
    path = options.data / f"seen-{options.port}"
    try:
        file = SeenFile(path, settings.dedup_count)
    except OSError as error:
        log.warning("what was shown is not kept over a restart", extra={"path": str(path), "reason": str(error)})
        return None
    now_ms, monotonic_ms = clock.now_ms(), clock.monotonic_us() // 1000
    found = file.load(now_ms - settings.dedup_ms)
    seen.restore((message_id, room, monotonic_ms - max(now_ms - at_ms, 0)) for message_id, room, at_ms in found)

    def marked(message_id: int, key: Hashable) -> None:
        if type(key) is int:  # a room; what is for single sessions ends with them
            file.add(message_id, key, clock.now_ms())

    seen.marked = marked
    return file
