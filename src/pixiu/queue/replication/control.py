"""Where the control record is kept, and what a name's address is.

Without a registry each node keeps a record of its own in a small file, and the operator decides. With one, all nodes
share the record ``ctl`` in the folder of their partition::

    /pubsub/shard/partition0/ctl            {"epoch": 7, "leader": "q1", "in_sync": ["q1", "q2"]}
    /pubsub/shard/partition0/leader         {"epoch": 7, "name": "q1", "address": "10.0.0.1:12301"}   for clients
    /pubsub/shard/partition0/0000000003     {"name": "q1", "address": "10.0.0.1:12301", "state": "Running"}

The numbered nodes live as long as their sessions. Only a change of ``ctl`` says who leads; it also changes with the
in-sync set, and a leader alone in that set writes it again and again, so clients watch ``leader``, which changes with
the leader alone.
"""

from __future__ import annotations

import json
import logging
from functools import partial
from typing import TYPE_CHECKING, Protocol

from pixiu.machines.replication import Control, ControlRefused, ControlSeen, SessionLost
from pixiu.model.errors import Conflict, CorruptData, NotFound, PixiuError
from pixiu.model.sealed_text import choose, seal
from pixiu.ports.registry import Entry, SessionState, Write, sequence_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from pixiu.machines.replication import Event
    from pixiu.ports.files import Files
    from pixiu.ports.registry import Folder, Registry
    from pixiu.ports.scheduler import Scheduler

__all__ = [
    "CONTROL",
    "LEADER",
    "SHARD",
    "ControlSource",
    "FileControl",
    "RegistryControl",
    "partition_folder",
    "read_control",
]

log = logging.getLogger(__name__)

CONTROL_PATHS = ("control", "control.copy")
"""The file of a node without a registry, and its second copy."""
SHARD = "shard"
"""The role, and its folder in the registry."""
CONTROL = "ctl"
LEADER = "leader"
REGISTER_AGAIN_MS = 500
CHANGES_MAX = 4
GLANCES_MAX = 3
"""Readings of the record alone between two of everything."""
GRACE_MS = 3_000
"""A replica whose place has vanished counts as live for this long: after an outage of the registry, places vanish with
their sessions and come back."""


def partition_folder(root: str, partition: int) -> str:
    """Where the replicas of one shard meet."""
    return f"{root}/{SHARD}/partition{partition}"


class ControlSource(Protocol):
    """Reads and changes the control record; whatever comes of it is told as the machine's events."""

    def start(self, tell: Callable[[Event], object]) -> None:
        """Begin; ``tell`` takes every event from now on."""
        ...

    def read(self, asked_ms: int) -> None:
        """Read the record. No answer at all is allowed."""
        ...

    def change(self, expected_version: int, control: Control, asked_ms: int) -> None:
        """Set the record if it still has this version."""
        ...

    def address_of(self, name: str) -> str | None:
        """Where a node listens, as far as known."""
        ...

    def leads(self, epoch: int) -> None:
        """This node leads now."""
        ...

    def stands(self, state: str) -> None:
        """What others shall read about this node."""
        ...

    def shows_damage(self, *, is_damaged: bool) -> None:
        """Let others read whether this node's journal has a damaged record."""
        ...

    def stop(self) -> None:
        """Tell nothing more, and leave nothing behind."""
        ...


class FileControl:
    """Without a registry: a file of this node's own."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._tell: Callable[[Event], object] = _nobody

    def start(self, tell: Callable[[Event], object]) -> None:
        """Begin."""
        self._tell = tell

    def read(self, asked_ms: int) -> None:
        """Read the file."""
        self._tell(ControlSeen(*self._found(), asked_ms=asked_ms))

    def change(self, expected_version: int, control: Control, asked_ms: int) -> None:
        """Replace the file."""
        version, _ = self._found()
        if version != expected_version:
            self._tell(ControlRefused(expected_version))
            return
        data = seal(json.dumps({"version": version + 1, **_row(control)}))
        for path in CONTROL_PATHS:
            self._files.replace(path, data)
        self._tell(ControlSeen(version + 1, control, asked_ms=asked_ms, is_granted=True))

    def address_of(self, name: str) -> str | None:
        """The operator names leaders by their addresses."""
        return name

    def leads(self, epoch: int) -> None:
        """Nobody asks."""

    def stands(self, state: str) -> None:
        """Nobody asks."""

    def shows_damage(self, *, is_damaged: bool) -> None:
        """Nobody asks."""

    def stop(self) -> None:
        """Nothing is left but the file."""
        self._tell = _nobody

    def _found(self) -> tuple[int, Control | None]:
        return read_control(self._files) or (0, None)


def read_control(files: Files) -> tuple[int, Control] | None:
    """The record of a node without a registry, with its version; None if it has none.

    A copy that is damaged, or that a crash between the two writes has left older, is replaced by the other: otherwise a
    later fault of the good one would bring back an older record. Raises ``CorruptData`` if neither can be read.
    """
    pair = choose((_read_if_there(files, CONTROL_PATHS[0]), _read_if_there(files, CONTROL_PATHS[1])), _parse_control)
    faults = dict(pair.faults)
    for number in pair.stale:
        if number in faults:
            log.warning("damaged_file_replaced", extra={"path": CONTROL_PATHS[number], "reason": faults[number]})
        else:
            log.info("stale_file_replaced", extra={"path": CONTROL_PATHS[number]})
        try:
            files.replace(CONTROL_PATHS[number], seal(pair.text or ""))
        except OSError as error:
            log.warning("file_not_written", extra={"path": CONTROL_PATHS[number], "reason": str(error)})
    if pair.text is not None:
        return _parse_control(pair.text)
    if pair.is_absent:
        return None
    reasons = "; ".join(f"{CONTROL_PATHS[number]}: {reason}" for number, reason in pair.faults)
    raise CorruptData(
        f"the file {CONTROL_PATHS[0]} of the data directory, which says who leads, is damaged ({reasons}). Restore it "
        f"from a backup; or, if no other node has been promoted since, remove {' and '.join(CONTROL_PATHS)} with the "
        "node stopped: a node that follows no other then leads again, in an epoch above all in its journal",
        path=CONTROL_PATHS[0],
    )


def _read_if_there(files: Files, path: str) -> bytes | None:
    try:
        file = files.open(path)
    except FileNotFoundError:
        return None
    try:
        return file.read(0, file.size())
    finally:
        file.close()


def _parse_control(text: str) -> tuple[int, Control]:
    try:
        found = json.loads(text)
        version, epoch, leader = int(found["version"]), int(found["epoch"]), str(found["leader"])
        return version, Control(epoch, leader, frozenset(map(str, found["in_sync"])), str(found.get("unfenced", "")))
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"it is no control record ({error!r})") from error


class RegistryControl:
    """The shared record, and this node's own place among its peers."""

    def __init__(
        self,
        registry: Registry,
        scheduler: Scheduler,
        *,
        folder: str,
        name: str,
        address: str,
        more: Mapping[str, object] | None = None,
    ) -> None:
        """``more`` is what else others read about this node, and about it as the leader."""
        self._more = dict(more or {})
        self._registry = registry
        self._scheduler = scheduler
        self._folder = folder
        self._name = name
        self._address = address
        self._state = "Init"
        self._path = ""
        self._version = 0
        self._shown: dict[str, object] = {}
        """What others can read of this node."""
        self._is_writing = False
        self._is_registering = False
        self._is_reading = False
        self._seen: tuple[int, Control | None] = (0, None)
        self._glances_left = 0
        self._sessions_lost = 0
        self._changes_waiting = 0
        self._epoch = 0
        """The last one in which this node led."""
        self._is_telling = False
        self._is_stopped = False
        self._addresses: dict[str, str] = {}
        self._live: frozenset[str] = frozenset()
        self._vanished: dict[str, object] = {}
        """Names without a place that still have their grace period, each with a token of its timer."""
        self._founders: frozenset[str] = frozenset()
        self._damaged: frozenset[str] = frozenset()
        self._tell: Callable[[Event], object] = _nobody
        registry.when_session(self._session_changed)

    def start(self, tell: Callable[[Event], object]) -> None:
        """Take a place among the peers."""
        self._tell = tell
        self._register()

    # The record.

    def read(self, asked_ms: int) -> None:
        """Read the record and who is there. One that the registry cannot answer is not answered.

        While it does not answer, one request waits and no further one is made. As long as the record names the same
        leader, most readings are a glance at it alone: a look at everyone takes a dozen requests.
        """
        if self._is_reading:
            return
        self._is_reading = True
        if self._glances_left and self._path:
            self._glances_left -= 1
            self._glance(asked_ms)
        else:
            self._look_at_all(asked_ms)

    def _look_at_all(self, asked_ms: int) -> None:
        path = self._path

        def done(folder: Folder | PixiuError) -> None:
            self._is_reading = False
            if isinstance(folder, PixiuError) or self._is_stopped:
                return
            self._note_peers(folder, is_since_registered=bool(path) and path == self._path)
            found = _control_in(folder)
            if found is not None:
                self._glances_left = GLANCES_MAX if _is_same_reign(self._seen, found) else 0
                self._seen = found
                self._tell_of(found, asked_ms)

        self._registry.read(self._folder, done)

    def _glance(self, asked_ms: int) -> None:
        """Whatever is not as expected is looked at as a whole."""

        def done(record: Folder | PixiuError) -> None:
            found = None if isinstance(record, PixiuError) or "" not in record else _control_in({CONTROL: record[""]})
            if self._is_stopped:
                return
            if found is None or not _is_same_reign(self._seen, found):
                self._glances_left = 0
                self._look_at_all(asked_ms)
                return
            self._is_reading = False
            self._seen = found
            self._tell_of(found, asked_ms)

        self._registry.read(f"{self._folder}/{CONTROL}", done)

    def _tell_of(self, found: tuple[int, Control | None], asked_ms: int) -> None:
        self._tell(ControlSeen(*found, self._live, asked_ms, founders=self._founders, damaged=self._all_damaged))

    @property
    def _all_damaged(self) -> frozenset[str]:
        """Of itself it knows better than what was read, which may be of before."""
        own = frozenset({self._name})
        return self._damaged | own if self._more.get("damaged") else self._damaged - own

    def change(self, expected_version: int, control: Control, asked_ms: int) -> None:
        """Compare and set. The registry counts versions from 0, the machine from 1: 0 there is "none yet".

        Beyond ``CHANGES_MAX`` that wait for an answer a change is not sent, which is as if it had been lost.
        """
        if self._changes_waiting >= CHANGES_MAX:
            return
        self._changes_waiting += 1

        def done(version: int | PixiuError) -> None:
            self._changes_waiting -= 1
            if self._is_stopped:
                return
            if isinstance(version, Conflict | NotFound):
                self._tell(ControlRefused(expected_version))
            elif not isinstance(version, PixiuError):
                damaged = self._all_damaged
                self._tell(ControlSeen(version + 1, control, self._live, asked_ms, is_granted=True, damaged=damaged))

        self._registry.write(Write(f"{self._folder}/{CONTROL}", _row(control), expected_version - 1), done)

    def address_of(self, name: str) -> str | None:
        """As the node itself has said."""
        return self._addresses.get(name)

    def leads(self, epoch: int) -> None:
        """Tell clients, unless a later leader has told them already; again while the registry does not take it.

        Nobody else would: whoever leads renews the record, and clients do not read that.
        """
        self._epoch = epoch
        if not self._is_telling:
            self._is_telling = True
            self._tell_clients()

    def _tell_clients(self) -> None:
        path, epoch = f"{self._folder}/{LEADER}", self._epoch
        row = {"epoch": epoch, "name": self._name, "address": self._address, **self._more}

        def ended(result: object) -> None:
            if self._is_stopped:
                return
            if isinstance(result, PixiuError):
                self._scheduler.after(REGISTER_AGAIN_MS, self._tell_clients)
            elif epoch != self._epoch:
                self._tell_clients()
            else:
                self._is_telling = False

        def done(folder: Folder | PixiuError) -> None:
            if isinstance(folder, PixiuError) or self._is_stopped:
                ended(folder)
                return
            found = folder.get("")
            if found is None or _whole(found.data.get("epoch")) < epoch:
                self._registry.write(Write(path, row, -1 if found is None else found.version), ended)
            else:
                ended(folder)

        self._registry.read(path, done)

    # This node's place.

    def stands(self, state: str) -> None:
        """Change what others read about this node."""
        if state != self._state:
            self._state = state
            self._write_place()

    def tell_more(self, more: Mapping[str, object]) -> None:
        """What else others shall read about this node."""
        self._more.update(more)
        self._write_place()

    def shows_damage(self, *, is_damaged: bool) -> None:
        """Others let us lead only if there is nobody else."""
        if is_damaged:
            self._more["damaged"] = True
        else:
            self._more.pop("damaged", None)
        self._write_place()

    def _write_place(self) -> None:
        """One write at a time: two of the same version would be one that is refused."""
        path, place = self._path, self._place()
        if not path or self._is_writing or self._is_stopped or place == self._shown:
            return
        self._is_writing = True

        def done(version: int | PixiuError) -> None:
            self._is_writing = False
            if isinstance(version, int) and path == self._path:
                self._version, self._shown = version, place
            if isinstance(version, int) or path != self._path:
                self._write_place()
            elif isinstance(version, Conflict | NotFound):  # it is gone, or not as we know it
                self._look_at_place()
            else:
                self._scheduler.after(REGISTER_AGAIN_MS, self._write_place)

        self._registry.write(Write(path, place, self._version), done)

    def _place(self) -> dict[str, object]:
        return {"name": self._name, "address": self._address, "state": self._state, **self._more}

    def _register(self) -> None:
        if self._is_registering or self._is_stopped or self._path:
            return
        self._is_registering = True
        place, sessions_lost = self._place(), self._sessions_lost

        def done(path: str | PixiuError) -> None:
            self._is_registering = False
            if isinstance(path, PixiuError):
                if not self._is_stopped:
                    self._scheduler.after(REGISTER_AGAIN_MS, self._register)
                return
            if self._is_stopped:
                self._registry.remove(path, _nobody)
                return
            self._path, self._version, self._shown = path, 0, place
            log.info("registered", extra={"path": path, "replica": self._name})
            self._write_place()
            if sessions_lost != self._sessions_lost:
                self._look_at_place()

        self._registry.register(self._folder, place, done)

    def _look_at_place(self) -> None:
        """See whether our place is there. It may have gone with a session that ended before we heard that we had it.

        Whoever leads writes the record and reads nothing, and would not find out.
        """
        path = self._path

        def done(folder: Folder | PixiuError) -> None:
            if self._is_stopped or not path or path != self._path:
                return
            if isinstance(folder, PixiuError):
                self._scheduler.after(REGISTER_AGAIN_MS, self._look_at_place)
                return
            found = folder.get("")
            if found is None:
                log.warning("our place in the registry is gone", extra={"path": path})
                self._lost()
            else:
                self._version = found.version
                self._write_place()

        self._registry.read(path, done)

    def _note_peers(self, folder: Folder, *, is_since_registered: bool) -> None:
        """Who is there, and where. Of two places of one name the newer counts: the older is a ghost.

        A reading that was asked for before we registered may not have us, and says nothing about that.
        """
        places = sorted((sequence_of(name), entry) for name, entry in folder.items() if name.isdecimal())
        addresses = {str(e.data.get("name")): str(e.data.get("address")) for _, e in places}
        self._note_vanished(frozenset(self._addresses) - addresses.keys() - self._vanished.keys(), addresses.keys())
        self._addresses = {name: self._addresses[name] for name in self._vanished} | addresses
        self._live = frozenset(self._addresses)
        self._founders = frozenset(str(e.data.get("name")) for _, e in places if e.data.get("led"))
        newest = {str(e.data.get("name")): e for _, e in places}
        self._damaged = frozenset(name for name, e in newest.items() if e.data.get("damaged"))
        if not self._path:
            self._live -= {self._name}  # what is there under our name is of an earlier life
        if not is_since_registered:
            return
        own = sequence_of(self._path)
        if own not in {number for number, _ in places}:
            log.warning("our place in the registry is gone", extra={"path": self._path})
            self._lost()
            return
        for number, entry in places:
            if entry.data.get("name") == self._name and number < own:
                self._registry.remove(f"{self._folder}/{number:010d}", _nobody)

    def _note_vanished(self, vanished: frozenset[str], present: Collection[str]) -> None:
        """Start the grace period of these names, and end that of those that are back."""
        for name in present:
            self._vanished.pop(name, None)
        for name in vanished:
            token = self._vanished[name] = object()
            self._scheduler.after(GRACE_MS, partial(self._forget, name, token))

    def _forget(self, name: str, token: object) -> None:
        if self._vanished.get(name) is token:
            del self._vanished[name]
            self._addresses.pop(name, None)
            self._live -= {name}

    def _session_changed(self, state: SessionState) -> None:
        if self._is_stopped:
            return
        if state is SessionState.LOST:
            log.warning("registry session lost", extra={"replica": self._name})
            self._sessions_lost += 1
            self._lost()
        elif state is SessionState.CONNECTED:
            self._register()

    def _lost(self) -> None:
        """Whatever this node had there is gone: take a new place. It leads on, if its followers let it."""
        self._path = ""
        self._glances_left = 0
        self._live -= {self._name}
        self._tell(SessionLost())
        self._register()

    def stop(self) -> None:
        """Give the place up."""
        self._is_stopped = True
        self._tell = _nobody
        if self._path:
            self._registry.remove(self._path, _nobody)


def _control_in(folder: Folder) -> tuple[int, Control | None] | None:
    """The record's version and content; None for something that is no control record, which is left alone."""
    entry: Entry | None = folder.get(CONTROL)
    if entry is None:
        return 0, None
    epoch, leader, in_sync = (entry.data.get(key) for key in ("epoch", "leader", "in_sync"))
    if not isinstance(leader, str) or not isinstance(in_sync, list) or _whole(epoch) <= 0:
        log.error("the control record cannot be read", extra={"found": str(entry.data)[:200]})
        return None
    return entry.version + 1, Control(_whole(epoch), leader, frozenset(map(str, in_sync)))


def _is_same_reign(before: tuple[int, Control | None], now: tuple[int, Control | None]) -> bool:
    """Is it the record of the same leader in the same epoch, and none that is older?"""
    was, control = before[1], now[1]
    if was is None or control is None or not control.leader or now[0] < before[0]:
        return False
    return (was.epoch, was.leader) == (control.epoch, control.leader)


def _row(control: Control) -> dict[str, object]:
    row: dict[str, object] = {"epoch": control.epoch, "leader": control.leader, "in_sync": sorted(control.in_sync)}
    return row | {"unfenced": control.unfenced} if control.unfenced else row


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0


def _nobody(_: object) -> None:
    """Nobody waits for this."""
