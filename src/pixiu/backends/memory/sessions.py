"""``Sessions`` on dicts."""

from pixiu.model.session import Session

__all__ = ["MemorySessions"]


class MemorySessions:
    """Sessions by epoch and user: when an epoch ends, its table is dropped whole.

    Numbers and epochs start above ``numbers_after``: whoever keeps that across restarts keeps them rising.
    """

    def __init__(self, *, numbers_after: int = 0) -> None:
        self._number = numbers_after
        self._epoch = numbers_after
        self._epochs: dict[str, int] = {}
        self._tables: dict[int, dict[int, dict[int, Session]]] = {}

    def next_number(self, user: int) -> int:
        """A number for a new login: larger than any that this or any other user had before."""
        self._number += 1
        return self._number

    def add(self, session: Session) -> None:
        """A login. The same ``session_id`` replaces itself; one of an epoch that is over counts for nothing."""
        self._take(session.user, session.session_id)
        if self._epochs.get(session.gateway) == session.epoch:
            self._tables[session.epoch].setdefault(session.user, {})[session.session_id] = session

    def remove(self, user: int, session_id: int) -> bool:
        """A logout of exactly this session. True if it was there."""
        return self._take(user, session_id)

    def of(self, user: int) -> list[Session]:
        """The live sessions of a user, newest first."""
        found = [session for table in self._tables.values() for session in table.get(user, {}).values()]
        found.sort(key=lambda session: -session.number)
        return found

    def begin_epoch(self, gateway: str) -> int:
        """A gateway starts, or returns: its older sessions are dead from now on. Returns its new epoch."""
        self._tables.pop(self._epochs.get(gateway, 0), None)
        self._epoch += 1
        self._epochs[gateway] = self._epoch
        self._tables[self._epoch] = {}
        return self._epoch

    def epoch_of(self, gateway: str) -> int:
        """A gateway's current epoch; 0 if it is unknown or has been declared dead."""
        return self._epochs.get(gateway, 0)

    def end_epoch(self, gateway: str) -> None:
        """A gateway is dead: so are its sessions."""
        self._tables.pop(self._epochs.pop(gateway, 0), None)

    def _take(self, user: int, session_id: int) -> bool:
        for table in self._tables.values():
            sessions = table.get(user)
            if sessions is not None and sessions.pop(session_id, None) is not None:
                if not sessions:
                    del table[user]
                return True
        return False
