"""``pixiu queue dump | tail | verify``: the files of a queue, without a server."""

import base64
import sys
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from pixiu.cli.examples import examples
from pixiu.cli.queue.asking import DEFAULT_DATA, Json
from pixiu.cli.queue.output import bytes_text, moment_text, print_json, print_rows, progress
from pixiu.cli.shown import shown
from pixiu.machines.queue_wire.messages import Message, split_messages
from pixiu.model.counted import counted
from pixiu.model.errors import Gone, NotFound, Unavailable
from pixiu.queue.delays import HEAD
from pixiu.queue.storage.damage import JournalDamage, find_damage, made_again, refill, require_sound_journal
from pixiu.queue.storage.journal import FOLDER, segments_of
from pixiu.queue.storage.record import MESSAGE_KINDS, Damage, Frame, Kind, Record, decode_block
from pixiu.queue.storage.redact import INTENT, finish_redaction
from pixiu.queue.storage.verify import Report, Verifier
from pixiu.runtime.datadir import DataDirectory, find_server
from pixiu.runtime.files import SystemFiles

__all__ = ["register"]

POLL_SECONDS = 0.2
TAIL_DEFAULT = 10
TEXT_SHOWN = 100

Directory = Annotated[Path, typer.Option("--data", metavar="DIR", help="The data directory.")]
After = Annotated[int, typer.Option("--after", metavar="EVENT", help="Begin behind this event id.", min=0)]
OfTopic = Annotated[str | None, typer.Option("--topic", metavar="NAME", help="Only records of this topic.")]


def dump(
    data: Directory = DEFAULT_DATA,
    after: After = 0,
    limit: Annotated[int, typer.Option("--limit", help="At most so many records; 0 is all.", min=0)] = 0,
    topic: OfTopic = None,
    json: Json = False,
) -> None:
    """Print the journal's records, oldest first. The queue may run meanwhile."""
    shown = 0
    for record, frame in _records(data, after):
        if topic is not None and record.topic.decode(errors="replace") != topic:
            continue
        _print_record(record, frame, as_json=json)
        shown += 1
        if shown == limit:
            return


def tail(
    data: Directory = DEFAULT_DATA,
    count: Annotated[int, typer.Option("--count", "-n", help="How many of the newest records.", min=0)] = TAIL_DEFAULT,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as more are written.")] = False,
    topic: OfTopic = None,
    json: Json = False,
) -> None:
    """Print the journal's newest records, and with -f those to come."""
    newest: deque[tuple[Record, Frame]] = deque(maxlen=count)
    last = 0
    for record, frame in _records(data, 0):
        last = frame.last_event_id
        if topic is None or record.topic.decode(errors="replace") == topic:
            newest.append((record, frame))
    for record, frame in newest:
        _print_record(record, frame, as_json=json)
    while follow:
        sys.stdout.flush()
        time.sleep(POLL_SECONDS)
        for record, frame in _records(data, last):
            last = frame.last_event_id
            if topic is None or record.topic.decode(errors="replace") == topic:
                _print_record(record, frame, as_json=json)


def verify(
    data: Directory = DEFAULT_DATA,
    repair: Annotated[
        bool, typer.Option("--repair", help="Make indexes and topic logs again from the journal.")
    ] = False,
    cut: Annotated[
        bool, typer.Option("--cut", help="Give up what follows damage in the journal. Loses messages.")
    ] = False,
    json: Json = False,
) -> None:
    """Read everything, check every checksum, and compare topic logs with the journal."""
    _require_queue(data)
    _finish_redaction(data)
    if repair or cut:
        _mend(data, cut=cut, quiet=json)
    is_running = find_server(data) is not None
    files = SystemFiles(data, read_only=True)
    sizing = Verifier(files, lambda count: None)
    with progress("checking", sizing.total_bytes()) as bar:
        report = Verifier(files, bar.advance).run()
    damage = None if report.is_sound else find_damage(files)
    if json:
        journal = None if damage is None else {**asdict(damage), "lost": damage.lost}
        print_json({**asdict(report), "sound": report.is_sound, "running": is_running, "journal_damage": journal})
    else:
        is_mendable = damage is not None and made_again(files, damage) is not None
        _print_report(report, damage, is_mendable=is_mendable, is_running=is_running)
    if not report.is_sound:
        raise typer.Exit(1)


def _print_report(report: Report, damage: JournalDamage | None, *, is_mendable: bool, is_running: bool) -> None:
    span = f"events {report.first_event_id} to {report.last_event_id}" if report.records else "no events"
    print(f"journal  {counted(report.segments, 'segment')}, {counted(report.records, 'record')}, {span}")
    print(f"topics   {report.topics}, with {counted(report.topic_messages, 'message')}")
    print(f"read     {bytes_text(report.bytes)}")
    if report.unfinished_bytes:
        why = "is being written" if is_running else "was not finished, and is cut at the next start"
        print(f"         {counted(report.unfinished_bytes, 'byte')} at the end: a write that {why}")
    if report.is_sound:
        print("sound    nothing is damaged")
        return
    print_rows(("file", "byte", "damage"), [(fault.file, fault.position, fault.reason) for fault in report.faults])
    if damage is None:
        print("The journal is whole: pixiu queue verify --repair makes topics and indexes again from it.")
    else:
        print(f"The journal is damaged from event {damage.event_id} on. Keep a copy of the directory as it is.")
        if is_mendable:
            print("A topic still has this event whole: pixiu queue verify --repair writes it into the journal again.")
        print(f"{damage.advice()}.")


def _mend(data: Path, *, cut: bool, quiet: bool) -> None:
    """With the directory locked: mend the journal from the topics, cut it at damage if asked, make the rest again.

    Whatever cannot be mended is found before anything is removed.
    """
    holder = find_server(data)
    if holder is not None:
        raise Unavailable(f"a queue runs on {data} (pid {holder.pid}); stop it first")
    from pixiu.node.stopped import rebuild, require_whole_journal

    with DataDirectory.open(data):
        files = SystemFiles(data)
        mended = refill(files)
        for damage in mended:
            _say(f"mended {damage.file} byte {damage.position}: event {damage.event_id} was in a topic", quiet=quiet)
        try:
            require_whole_journal(data)
        except Gone:
            if mended and not cut:
                return  # topics cannot be made from it; whether they need to be is seen by whoever reads all
            raise
        if cut:
            _cut_journal(files, quiet=quiet)
        else:
            require_sound_journal(files)
        for segment in segments_of(files):
            files.remove(segment.index_path)
        rebuild(data)


def _say(text: str, *, quiet: bool) -> None:
    if not quiet:
        print(text)


def _cut_journal(files: SystemFiles, *, quiet: bool) -> None:
    damage = find_damage(files)
    if damage is None:
        return
    segments = segments_of(files)
    number = next(number for number, each in enumerate(segments) if each.path == damage.file)
    for gone in reversed(segments[number + 1 :]):  # newest first, so a crash leaves a prefix
        gone.remove()
        _say(f"removed {gone.path}", quiet=quiet)
    segments[number].log.truncate(damage.position)
    segments[number].log.flush()
    _say(f"cut {damage.file} at byte {damage.position}: {damage.reason}", quiet=quiet)
    _say(f"gave up {counted(damage.lost, 'event')}, {damage.event_id} to {damage.last_event_id}", quiet=quiet)
    _say("A node's stores may know more than that: run pixiu rebuild before pixiu serve.", quiet=quiet)


def _require_queue(data: Path) -> None:
    if not (data / FOLDER).is_dir():
        raise NotFound(f"there is no queue in {data}; name its data directory with --data")


def _records(data: Path, after: int) -> Iterator[tuple[Record, Frame]]:
    """Every record behind ``after``. Stops at an unfinished end; raises at damage."""
    _require_queue(data)
    _finish_redaction(data)
    segments = segments_of(SystemFiles(data, read_only=True))
    for number, segment in enumerate(segments):
        is_last = number + 1 == len(segments)
        if not is_last and segments[number + 1].first_event_id <= after + 1:
            segment.close()
            continue
        for _, frame in segment.scan():
            if isinstance(frame, Damage):
                if is_last and frame.reason == "cut off":
                    return
                raise segment.damaged(frame.position, frame.reason)
            if frame.last_event_id > after:
                yield decode_block(frame.block), frame
        segment.close()


def _finish_redaction(data: Path) -> None:
    """A redaction that was killed leaves half a frame: nobody is to take that for damage."""
    if (data / INTENT).exists() and find_server(data) is None:
        with DataDirectory.open(data):
            finish_redaction(SystemFiles(data))


def _print_record(record: Record, frame: Frame, *, as_json: bool) -> None:
    kind = Kind(record.kind).name.lower() if record.kind in Kind._value2member_map_ else str(record.kind)
    topic = record.topic.decode(errors="replace")
    messages = []
    if record.kind in MESSAGE_KINDS or record.kind == Kind.DELAY:
        skip = 0 if record.kind in (Kind.PUBLISH, Kind.APPEND) else HEAD.size
        messages = [Message.decode(each) for each in split_messages(record.payload[skip:]) or []]
    if as_json:
        rows = [{"headers": _headers(message), "body": _text(message.body)} for message in messages]
        print_json(
            {
                "event_id": record.event_id,
                "count": frame.count,
                "epoch": frame.epoch,
                "kind": kind,
                "topic": topic,
                "time": record.write_ms,
                "messages": rows,
            }
        )
        return
    print(f"{record.event_id}  {moment_text(record.write_ms)}  {kind}  {shown(topic)}")
    for message in messages:
        text = shown(_text(message.body))
        print(f"    {text[:TEXT_SHOWN]}{'…' if len(text) > TEXT_SHOWN else ''}")


def _headers(message: Message) -> dict[str, str]:
    return {_text(name): _text(value) for name, value in message.headers}


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(data).decode()


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(
        "dump", epilog=examples("pixiu queue dump --topic letters", "pixiu queue dump --after 100 --limit 10 --json")
    )(dump)
    app.command("tail", epilog=examples("pixiu queue tail", "pixiu queue tail --follow --topic letters"))(tail)
    app.command("verify", epilog=examples("pixiu queue verify", "pixiu queue verify --repair"))(verify)
