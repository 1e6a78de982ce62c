"""What every ``Sessions`` must do."""

from abc import ABC, abstractmethod

from pixiu.model.session import Session
from pixiu.ports.sessions import Sessions


class SessionsContract(ABC):
    """Sessions by user, and the lives of gateways."""

    @abstractmethod
    def open_sessions(self) -> Sessions:
        """Those of one node. A second call is the node after a restart, if it has any memory of the first."""

    def login(self, sessions: Sessions, session_id: int, *, user: int = 1, gateway: str = "g1") -> Session:
        number, epoch = sessions.next_number(user), sessions.epoch_of(gateway)
        session = Session(session_id, user, "ios", "phone", number, gateway, epoch)
        sessions.add(session)
        return session

    def test_sessions_are_listed_newest_first(self) -> None:
        sessions = self.open_sessions()
        sessions.begin_epoch("g1")
        made = [self.login(sessions, session_id) for session_id in (50, 10, 30)]
        assert sessions.of(1) == made[::-1]
        assert sessions.of(2) == []

    def test_numbers_rise_with_each_login(self) -> None:
        sessions = self.open_sessions()
        numbers = [sessions.next_number(user) for user in (1, 1, 2, 1, 2)]
        assert numbers[0] < numbers[1] < numbers[3]
        assert 0 < numbers[2] < numbers[4]

    def test_numbers_and_epochs_rise_across_restarts(self) -> None:
        last_number = last_epoch = 0
        for _ in range(4):
            sessions = self.open_sessions()
            number, epoch = sessions.next_number(1), sessions.begin_epoch("g1")
            assert number > last_number
            assert epoch > last_epoch
            last_number, last_epoch = sessions.next_number(1), sessions.begin_epoch("g1")

    def test_no_session_outlives_a_restart(self) -> None:
        sessions = self.open_sessions()
        sessions.begin_epoch("g1")
        self.login(sessions, 10)
        again = self.open_sessions()
        again.begin_epoch("g1")
        assert again.of(1) == []

    def test_a_session_replaces_itself(self) -> None:
        sessions = self.open_sessions()
        sessions.begin_epoch("g1")
        self.login(sessions, 10)
        second = self.login(sessions, 10)
        assert sessions.of(1) == [second]

    def test_a_logout_is_of_exactly_one_session(self) -> None:
        sessions = self.open_sessions()
        sessions.begin_epoch("g1")
        first, second = self.login(sessions, 10), self.login(sessions, 11)
        assert not sessions.remove(2, 10)
        assert not sessions.remove(1, 12)
        assert sessions.remove(1, 11)
        assert not sessions.remove(1, 11)
        assert sessions.of(1) == [first]
        assert sessions.remove(1, first.session_id)
        assert sessions.of(1) == []
        assert second.number > first.number

    def test_a_new_epoch_ends_all_sessions_of_that_gateway_and_no_others(self) -> None:
        sessions = self.open_sessions()
        old = sessions.begin_epoch("g1")
        sessions.begin_epoch("g2")
        self.login(sessions, 10)
        stays = self.login(sessions, 11, gateway="g2")
        assert sessions.epoch_of("g1") == old
        new = sessions.begin_epoch("g1")
        assert new > old
        assert sessions.epoch_of("g1") == new
        assert sessions.of(1) == [stays]
        fresh = self.login(sessions, 12)
        assert sessions.of(1) == [fresh, stays]
        assert not sessions.remove(1, 10), "a dead session that was met is gone"

    def test_a_dead_gateway_has_no_epoch_and_no_sessions(self) -> None:
        sessions = self.open_sessions()
        assert sessions.epoch_of("g1") == 0
        old = sessions.begin_epoch("g1")
        self.login(sessions, 10)
        sessions.end_epoch("g1")
        sessions.end_epoch("unknown")
        assert sessions.epoch_of("g1") == 0
        assert sessions.of(1) == []
        assert sessions.begin_epoch("g1") > old
        assert sessions.of(1) == []

    def test_a_session_of_an_unknown_gateway_is_dead(self) -> None:
        sessions = self.open_sessions()
        sessions.add(Session(10, 1, "ios", "phone", 1, "nowhere", 0))
        sessions.add(Session(11, 1, "ios", "phone", 2, "nowhere", 7))
        assert sessions.of(1) == []
