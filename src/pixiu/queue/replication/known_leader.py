"""What a replica under a registry keeps on its own disk: its last leader, and what a restart must not forget.

The registry may be away when the replica starts. It then follows the leader that it followed last, which may need its
grant to accept writes (``machines.replication.lease``). The file ``leader`` is written when one of these changes, which
is as rare as a change of leader::

    {"name": "q1", "address": "10.0.0.1:12301", "epoch": 7, "claimed": -1}

``epoch`` is the highest that the control record had; ``claimed`` is the version of the control record that an undecided
claim of this replica named, or -1.
"""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from pixiu.model.sealed_text import seal, unseal

if TYPE_CHECKING:
    from pixiu.machines.replication import ControlSeen
    from pixiu.ports.files import Files

__all__ = ["KNOWN_LEADER_PATH", "KnownLeader"]

log = logging.getLogger(__name__)

KNOWN_LEADER_PATH = "leader"


@dataclass(frozen=True, slots=True)
class _Known:
    name: str = ""
    address: str = ""
    epoch: int = 0
    claimed: int = -1


class KnownLeader:
    """The file ``leader`` of one data directory."""

    def __init__(self, files: Files) -> None:
        """Read the file. A missing or damaged file counts as empty: the registry is the authority."""
        self._files = files
        self._known = _read(files)

    @property
    def name(self) -> str:
        """The leader that was followed last, or the empty string."""
        return self._known.name

    @property
    def epoch(self) -> int:
        """The highest epoch that the control record had."""
        return self._known.epoch

    @property
    def claimed(self) -> int:
        """The version of the control record that an undecided claim named; -1: none."""
        return self._known.claimed

    def address_of(self, name: str) -> str | None:
        """Where this node listened last, as far as known."""
        return self._known.address or None if name and name == self._known.name else None

    def seen(self, event: ControlSeen, address: str | None) -> None:
        """Keep what the registry answered, before anything is done about it. Raises ``OSError``."""
        known, control = self._known, event.control
        if known.claimed >= 0 and event.version > known.claimed:
            known = replace(known, claimed=-1)
        if control is not None and control.epoch >= known.epoch:
            is_other = control.leader != known.name
            known = replace(
                known, name=control.leader, epoch=control.epoch, address=address or ("" if is_other else known.address)
            )
        self._keep(known)

    def claims(self, version: int) -> None:
        """This replica is about to claim the record of this version. Raises ``OSError``."""
        self._keep(replace(self._known, claimed=version))

    def _keep(self, known: _Known) -> None:
        if known != self._known:
            self._files.replace(KNOWN_LEADER_PATH, seal(json.dumps(asdict(known))))
            self._known = known


def _read(files: Files) -> _Known:
    try:
        file = files.open(KNOWN_LEADER_PATH)
    except FileNotFoundError:
        return _Known()
    try:
        text, is_sealed = unseal(file.read(0, file.size()))
        found = json.loads(text) if is_sealed else {}
        return _Known(str(found["name"]), str(found["address"]), int(found["epoch"]), int(found["claimed"]))
    except (ValueError, KeyError, TypeError) as error:
        log.warning("damaged_file_ignored", extra={"path": KNOWN_LEADER_PATH, "reason": str(error)})
        return _Known()
    finally:
        file.close()
