"""What every ``Users`` must do."""

from pixiu.model.user import Profile
from pixiu.ports.users import Users
from tests.contracts.stores import StoresCase


class UsersContract(StoresCase):
    """Profiles by number, numbers by public id."""

    @property
    def users(self) -> Users:
        return self.stores().users

    def test_nobody_is_there_at_first(self) -> None:
        assert self.users.get(1) is None
        assert self.users.number_of("1") is None
        assert self.users.all() == []

    def test_a_profile_is_kept_with_all_its_fields(self) -> None:
        profile = Profile(7, "amy", "Amy 貔貅", "http://a", {"城市": "上海", "": "empty key"}, 1_700_000_000_000)
        self.users.put(profile)
        assert self.users.get(7) == profile
        self.settle()
        assert self.users.get(7) == profile
        assert self.users.number_of("amy") == 7

    def test_a_ban_is_kept_and_lifted(self) -> None:
        for is_banned in (True, False):
            profile = Profile(7, "amy", "Amy", fields={"x": "y"}, is_banned=is_banned)
            self.users.put(profile)
            self.settle()
            assert self.users.get(7) == profile

    def test_a_change_replaces_everything_but_the_ids(self) -> None:
        self.users.put(Profile(7, "amy", "Amy", "a", {"x": "y"}, 5))
        self.settle()
        changed = Profile(7, "amy", "Amy B", "", {}, 5)
        self.users.put(changed)
        assert self.users.get(7) == changed
        self.settle()
        assert self.users.get(7) == changed
        assert self.users.all() == [7]

    def test_ids_are_compared_whole(self) -> None:
        for number, public_id in enumerate(["a", "aa", "A", "é", "e\u0301", "1", "01", " ", "x" * 64, "貔" * 21], 100):
            self.users.put(Profile(number, public_id, "n"))
        self.settle()
        assert [self.users.number_of(name) for name in ("a", "aa", "A", "é", "e\u0301", "1", "01", " ")] == [
            100, 101, 102, 103, 104, 105, 106, 107,
        ]  # fmt: skip
        assert self.users.number_of("x" * 64) == 108
        assert self.users.number_of("貔" * 21) == 109
        assert self.users.number_of("x" * 63) is None
        assert self.users.number_of("") is None

    def test_all_are_in_the_order_of_numbers(self) -> None:
        numbers = [2**62, 5, 2**48 + 1, 0, 70_000, 255, 256]
        for count, number in enumerate(numbers):
            self.users.put(Profile(number, f"u{number}", "n"))
            if count == 3:
                self.settle()
        assert self.users.all() == sorted(numbers)
        self.settle()
        assert self.users.all() == sorted(numbers)

    def test_an_erased_user_is_a_number_and_a_public_id(self) -> None:
        self.users.put(Profile(7, "amy", "Amy", "a", {"x": "y"}, 5))
        self.settle()
        erased = Profile(7, "amy", "", created_at=5, is_erased=True)
        self.users.put(erased)
        self.settle()
        assert self.users.get(7) == erased
        assert self.users.number_of("amy") == 7
