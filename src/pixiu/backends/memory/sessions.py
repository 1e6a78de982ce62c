"""``Sessions`` on dicts."""

from pixiu.model.session import Session

__all__ = ["MemorySessions"]


class MemorySessions:
    """Sessions by user, and the current epoch of each gateway.

    Numbers and epochs start above ``numbers_after``: whoever keeps that across restarts keeps them rising.
    """

    def __init__(self, *, numbers_after: int = 0) -> None:
        self._number = numbers_after
        self._epoch = numbers_after
        self._epochs: dict[str, int] = {}
        self._sessions: dict[int, dict[int, Session]] = {}

    def next_number(self, user: int) -> int:
        """A number for a new login: larger than any that this or any other user had before."""
        self._number += 1
        return self._number

    def add(self, session: Session) -> None:
        """A login. The same ``session_id`` replaces itself."""
        self._sessions.setdefault(session.user, {})[session.session_id] = session

    def remove(self, user: int, session_id: int) -> bool:
        """A logout of exactly this session. True if it was there."""
        sessions = self._sessions.get(user)
        if sessions is None or sessions.pop(session_id, None) is None:
            return False
        if not sessions:
            del self._sessions[user]
        return True

    def of(self, user: int) -> list[Session]:
        """The live sessions of a user, newest first. Dead ones met on the way are removed."""
        sessions = self._sessions.get(user)
        if sessions is None:
            return []
        for session in list(sessions.values()):
            if session.epoch != self._epochs.get(session.gateway):
                self.remove(user, session.session_id)
        return sorted(sessions.values(), key=lambda session: -session.number)

    def begin_epoch(self, gateway: str) -> int:
        """A gateway starts, or returns: its older sessions are dead from now on. Returns its new epoch."""
        self._epoch += 1
        self._epochs[gateway] = self._epoch
        return self._epoch

    def epoch_of(self, gateway: str) -> int:
        """A gateway's current epoch; 0 if it is unknown or has been declared dead."""
        return self._epochs.get(gateway, 0)

    def end_epoch(self, gateway: str) -> None:
        """A gateway is dead: so are its sessions. None of them stays until somebody happens to ask for its user."""
        self._epochs.pop(gateway, None)
        for user, sessions in list(self._sessions.items()):
            for session in list(sessions.values()):
                if session.gateway == gateway:
                    self.remove(user, session.session_id)
