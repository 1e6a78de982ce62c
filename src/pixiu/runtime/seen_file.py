"""What a gateway has shown, in a file: so that its next life shows no reliable message a second time.

A ring of slots in mapped memory: a mark is a copy into it, and no call of the system. It outlives the process, however
that ends; it does not outlive the machine, and then nobody is connected who could see something twice. A slot that was
half written is left out by its check.

::

    PXSEEN1 | slots: 8 | where the next goes: 8 | … | message id 8 | room 8 | at, ms since 1970: 8 | check 4 | 4
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import mmap
import os
from struct import Struct
from typing import TYPE_CHECKING
from zlib import crc32

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["SeenFile"]

log = logging.getLogger(__name__)

MAGIC = b"PXSEEN1\n"
_HEAD = Struct(">8sQQ")
_SLOT = Struct(">QQQ")
_CHECK = Struct(">I")
SLOT_BYTES = 32


class SeenFile:
    """The newest marks, up to ``count_max`` of them. One process at a time has it."""

    def __init__(self, path: Path, count_max: int) -> None:
        """Raises ``OSError`` when it cannot be had, ``BlockingIOError`` when another process has it."""
        self._count = count_max
        size = _HEAD.size + count_max * SLOT_BYTES
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(self._descriptor).st_size != size or not self._is_ours():
                os.ftruncate(self._descriptor, 0)
                os.ftruncate(self._descriptor, size)
                os.pwrite(self._descriptor, _HEAD.pack(MAGIC, count_max, 0), 0)
            self._memory = mmap.mmap(self._descriptor, size)
        except BaseException:
            os.close(self._descriptor)
            raise
        self._next = _HEAD.unpack_from(self._memory)[2] % count_max

    def load(self, since_ms: int) -> list[tuple[int, int, int]]:
        """Message id, room and time of each mark that is not older, oldest first."""
        found: list[tuple[int, int, int]] = []
        for place in range(_HEAD.size, len(self._memory), SLOT_BYTES):
            message_id, room, at_ms = _SLOT.unpack_from(self._memory, place)
            if message_id and at_ms >= since_ms:
                (check,) = _CHECK.unpack_from(self._memory, place + _SLOT.size)
                if check == crc32(self._memory[place : place + _SLOT.size]):
                    found.append((message_id, room, at_ms))
        found.sort(key=lambda mark: mark[2])
        return found

    def add(self, message_id: int, room: int, at_ms: int) -> None:
        """Something was shown."""
        slot = _SLOT.pack(message_id, room, at_ms)
        place = _HEAD.size + self._next * SLOT_BYTES
        self._memory[place : place + _SLOT.size + _CHECK.size] = slot + _CHECK.pack(crc32(slot))
        self._next = (self._next + 1) % self._count
        _HEAD.pack_into(self._memory, 0, MAGIC, self._count, self._next)

    def close(self) -> None:
        """Give it back."""
        with contextlib.suppress(ValueError, OSError):
            self._memory.close()
            os.close(self._descriptor)

    def _is_ours(self) -> bool:
        head = os.pread(self._descriptor, _HEAD.size, 0)
        return len(head) == _HEAD.size and _HEAD.unpack(head)[:2] == (MAGIC, self._count)
