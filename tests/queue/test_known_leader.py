"""The file in which a replica keeps its last leader, and what a restart must not forget."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.machines.replication import Control, ControlSeen
from pixiu.queue.replication.known_leader import KNOWN_LEADER_PATH, KnownLeader
from pixiu.runtime.files import SystemFiles

if TYPE_CHECKING:
    from pathlib import Path

BOTH = frozenset("ab")


def test_last_leader_its_address_and_the_highest_epoch_survive_a_restart(tmp_path: Path) -> None:
    known = KnownLeader(SystemFiles(tmp_path))
    assert (known.name, known.epoch, known.claimed) == ("", 0, -1)
    known.seen(ControlSeen(3, Control(2, "a", BOTH)), "a:1")
    again = KnownLeader(SystemFiles(tmp_path))
    assert (again.name, again.epoch, again.address_of("a"), again.address_of("b")) == ("a", 2, "a:1", None)
    again.seen(ControlSeen(2, Control(1, "b", BOTH)), "b:1")
    assert (again.name, again.epoch) == ("a", 2), "an older record changes nothing"
    again.seen(ControlSeen(4, Control(2, "a", BOTH)), None)
    assert again.address_of("a") == "a:1", "its place in the registry is missing for a moment"


def test_undecided_claim_survives_a_restart_until_a_later_version_is_seen(tmp_path: Path) -> None:
    known = KnownLeader(SystemFiles(tmp_path))
    known.seen(ControlSeen(3, Control(2, "a", BOTH)), "a:1")
    known.claims(3)
    again = KnownLeader(SystemFiles(tmp_path))
    assert again.claimed == 3
    again.seen(ControlSeen(3, Control(2, "a", BOTH)), "a:1")
    assert again.claimed == 3
    again.seen(ControlSeen(4, Control(2, "a", BOTH)), "a:1")
    assert KnownLeader(SystemFiles(tmp_path)).claimed == -1


def test_damaged_file_counts_as_empty(tmp_path: Path) -> None:
    KnownLeader(SystemFiles(tmp_path)).claims(3)
    path = tmp_path / KNOWN_LEADER_PATH
    for junk in (path.read_bytes().replace(b"3", b"4", 1), b"", b"\xff", b'{"name": 1}'):
        path.write_bytes(junk)
        assert KnownLeader(SystemFiles(tmp_path)).claimed == -1
