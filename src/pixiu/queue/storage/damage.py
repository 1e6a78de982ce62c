"""Damage within the journal: where it begins, what a cut there would lose, and mending it from the topic logs.

The journal is the truth, so nothing derived may be thrown away while it is damaged: a topic's log may hold the only
good copy of a message. The rule of recovery holds here, too: what can be an unfinished write at the very end is none.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING
from zlib import crc32

from pixiu.model.counted import counted
from pixiu.model.errors import CorruptData
from pixiu.queue.delays import HEAD
from pixiu.queue.storage.journal import segments_of
from pixiu.queue.storage.record import HEADER, HEADER_BYTES, MESSAGE_KINDS, Damage, Kind, decode_block, encode_frame
from pixiu.queue.storage.recovery import whole_frame_after, whole_frames_after
from pixiu.queue.storage.topic_items import CHUNK, CHUNK_BYTES, items_of
from pixiu.queue.storage.topics import topic_folders

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pixiu.ports.files import Files
    from pixiu.queue.storage.segment import Segment

__all__ = ["JournalDamage", "find_damage", "made_again", "refill", "require_sound_journal"]

_LENGTH = Struct("<I")


@dataclass(frozen=True, slots=True)
class JournalDamage:
    """The first bytes of the journal that are not what was written."""

    file: str
    position: int
    reason: str
    event_id: int
    """The first event that cannot be read."""
    last_event_id: int
    """The last that the journal is known to have had."""

    @property
    def lost(self) -> int:
        """How many events a cut here gives up."""
        return max(self.last_event_id - self.event_id + 1, 1)

    def __str__(self) -> str:
        return f"{self.file} byte {self.position}: {self.reason} (event {self.event_id})"

    def advice(self) -> str:
        """What can be done about it."""
        return (
            "Restore a backup (pixiu restore), or copy from a follower (pixiu queue serve --follow). Where there is "
            f"neither: pixiu queue verify --cut gives up {counted(self.lost, 'event')}, {self.event_id} to "
            f"{self.last_event_id}; pixiu rebuild must follow"
        )


def find_damage(
    files: Files, advance: Callable[[int], object] = lambda size: True, *, newest_first: bool = False
) -> JournalDamage | None:
    """Read the journal until damage. ``advance`` is told how many bytes were read; a False from it ends the look."""
    segments = segments_of(files)
    try:
        numbers = range(len(segments))
        for number in reversed(numbers) if newest_first else numbers:
            following = segments[number + 1] if number + 1 < len(segments) else None
            found = _look(segments[number], following, advance)
            if isinstance(found, bool):
                if found:
                    continue
                return None
            at, expected = found
            if following is None:
                witness = whole_frame_after(segments[number], at.position + 1, expected)
                if witness is None or witness.flushed_through < expected:
                    continue  # an unfinished write, which the next start cuts
            last = _last_known(segments[-1], at.position if following is None else -1, expected)
            return JournalDamage(segments[number].path, at.position, at.reason, expected, last)
        return None
    finally:
        for segment in segments:
            segment.close()


def _look(segment: Segment, following: Segment | None, advance: Callable[[int], object]) -> bool | tuple[Damage, int]:
    """The damage of one segment with the event that should be there; or True: none; or False: the look is to end."""
    expected, end = segment.first_event_id, 0
    for position, frame in segment.scan():
        if isinstance(frame, Damage):
            return frame, expected
        if frame.event_id != expected:
            return Damage(position, f"holds event {frame.event_id} where {expected} should be"), expected
        expected += frame.count
        end = position + frame.size
        if advance(frame.size) is False:
            return False
    if following is not None and following.first_event_id != expected:
        return Damage(end, f"ends before event {expected}, and the next file begins with {following.first_event_id}"), (
            expected
        )
    return True


def _last_known(tail: Segment, damaged_at: int, expected: int) -> int:
    last = max(expected, tail.first_event_id - 1)
    if damaged_at < 0:
        damaged_at = tail.size
        for position, frame in tail.scan():
            if isinstance(frame, Damage):
                damaged_at = position
                break
            last = max(last, frame.last_event_id)
    witness = whole_frame_after(tail, damaged_at + 1, expected)
    return last if witness is None else max(last, witness.last_event_id)


def require_sound_journal(files: Files) -> None:
    """Raise ``CorruptData`` where the journal is damaged, with what can be done."""
    damage = find_damage(files)
    if damage is not None:
        raise CorruptData(
            f"the journal is damaged, and nothing was changed: {damage}. Topics and indexes are made from it, and a "
            f"topic's log may hold the only good copy. {damage.advice()}"
        )


def refill(files: Files) -> list[JournalDamage]:
    """Write damaged records again with the messages that the topic logs have. Returns those that were mended.

    Only what the record's own checksum proves right is written.
    """
    mended: list[JournalDamage] = []
    while (damage := find_damage(files)) is not None:
        frame = made_again(files, damage)
        if frame is None:
            return mended
        file = files.open(damage.file)
        try:
            file.write(frame, damage.position)
            file.flush()
        finally:
            file.close()
        mended.append(damage)
    return mended


def made_again(files: Files, damage: JournalDamage) -> bytes | None:
    """The frame that was at the damage: its neighbours say how long it is, the topics what was in it.

    None if that is not what its checksum says.
    """
    segments = segments_of(files)
    try:
        number = next(number for number, each in enumerate(segments) if each.path == damage.file)
        following = segments[number + 1].first_event_id if number + 1 < len(segments) else 0
        return _made_again(files, segments[number], damage, following)
    finally:
        for segment in segments:
            segment.close()


def _made_again(files: Files, segment: Segment, damage: JournalDamage, following: int) -> bytes | None:
    end, next_event_id = segment.size, following
    behind = next(whole_frames_after(segment, damage.position + 1), None)
    if behind is not None:
        end, next_event_id = behind[0], behind[1].event_id
    count = next_event_id - damage.event_id
    raw = segment.log.read(damage.position, end - damage.position)
    if count < 1 or len(raw) <= HEADER_BYTES:
        return None
    _, crc, epoch, _, flushed_through = HEADER.unpack_from(raw)
    block = raw[HEADER_BYTES:]
    for made in (block, _block_with(block, _messages(files, damage.event_id, count), count)):
        if made is not None:
            frame = encode_frame(made, epoch=epoch, count=count, flushed_through=flushed_through)
            if HEADER.unpack_from(frame)[1] == crc and decode_block(made).event_id == damage.event_id:
                return frame
    return None


def _block_with(block: bytes, messages: list[bytes], count: int) -> bytes | None:
    """A damaged block with whole messages in place of those it has."""
    try:
        (line_bytes,) = _LENGTH.unpack_from(block)
        line_end = _LENGTH.size + line_bytes
        kind = int(block[_LENGTH.size : line_end].split(b"\t")[1])
    except (ValueError, IndexError):
        return None
    if kind not in MESSAGE_KINDS or len(messages) != count:
        return None
    head = block[line_end : line_end + (HEAD.size if kind == Kind.FIRE else 0)]
    return b"".join((block[:line_end], head, *messages, b"\n"))


def _messages(files: Files, event_id: int, count: int) -> list[bytes]:
    """The messages of these events that the topics' logs have, as the journal has them."""
    found: dict[int, bytes] = {}
    for folder in topic_folders(files):
        for name in files.names(folder):
            if name.endswith(".log"):
                found.update(_items(files, f"{folder}/{name[:-4]}", event_id, event_id + count - 1))
    return [found[each] for each in sorted(found)]


def _items(files: Files, path: str, first: int, last: int) -> Iterator[tuple[int, bytes]]:
    log, index = files.open(f"{path}.log"), files.open(f"{path}.idx", create=True)
    try:
        for at in range(index.size() // CHUNK_BYTES):
            begins, ends, position, length, crc = CHUNK.unpack(index.read(at * CHUNK_BYTES, CHUNK_BYTES))
            if ends < first or begins > last:
                continue
            data = log.read(position, length)
            if len(data) != length or crc32(data) != crc:
                continue
            for item in items_of(data):
                if first <= item.event_id <= last:
                    yield item.event_id, data[item.start : item.end]
    finally:
        log.close()
        index.close()
