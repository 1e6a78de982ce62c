"""What every ``Groups`` must do."""

from dataclasses import replace

from pixiu.model.group import Group, Member, Role
from pixiu.ports.groups import Groups
from tests.contracts.stores import StoresCase


def member(user: int, joined: int, left: int = 0, role: Role = Role.MEMBER) -> Member:
    return Member(user, role, joined, joined * 1000, left)


class GroupsContract(StoresCase):
    """Groups, members of now and of then, requests."""

    @property
    def groups(self) -> Groups:
        return self.stores().groups

    def users_at(self, event_id: int | None, group: int = 1) -> list[int]:
        return [found.user for found in self.groups.members(group, at=event_id)]

    def test_a_group_is_kept_with_all_its_fields(self) -> None:
        group = Group(
            5, "chess", "Chess 棋", "http://a", 7, needs_approval=True, is_large=True, is_since_join=True,
            fields={"键": "值"}, created_at=1_700_000_000_000, message_count=3, last_message_id=2**61,
        )  # fmt: skip
        self.groups.put(group)
        assert self.groups.get(5) == group
        self.settle()
        assert self.groups.get(5) == group
        assert self.groups.number_of("chess") == 5
        assert self.groups.get(6) is None
        assert self.groups.number_of("Chess") is None

    def test_a_change_replaces_the_group_and_leaves_its_members(self) -> None:
        group = Group(5, "chess", "Chess", "", 7)
        self.groups.put(group)
        self.groups.put_member(5, member(7, 1, role=Role.OWNER))
        for count in range(1, 5):
            group = replace(group, message_count=count, last_message_id=count * 10)
            self.groups.put(group)
            assert self.groups.get(5) == group
            self.settle()
        assert self.groups.get(5) == group
        assert self.groups.members(5) == [member(7, 1, role=Role.OWNER)]

    def test_groups_and_users_have_spaces_of_their_own(self) -> None:
        self.groups.put(Group(5, "amy", "a group", "", 1))
        self.settle()
        assert self.stores().users.number_of("amy") is None
        assert self.stores().users.get(5) is None

    def test_members_are_counted_and_shown_in_pages(self) -> None:
        assert self.groups.count(1) == 0 and self.groups.page(1, 0, 5) == []
        for user in range(1, 8):
            self.groups.put_member(1, member(user, user))
        self.groups.put_member(2, member(1, 8))
        assert self.groups.count(1) == 7
        self.groups.put_member(1, member(3, 3, left=9))
        self.groups.put_member(1, member(3, 3, left=9))
        assert self.groups.count(1) == 6
        self.settle()
        assert self.groups.count(1) == 6
        self.groups.put_member(1, member(3, 10))
        self.groups.put_member(1, member(4, 4, role=Role.ADMIN))
        assert self.groups.count(1) == 7 and self.groups.count(2) == 1
        self.groups.put_member(1, member(7, 7, left=11))
        self.groups.forget_left(20)
        assert self.groups.count(1) == 6
        assert [each.user for each in self.groups.page(1, 0, 4)] == [1, 2, 3, 4]
        assert self.groups.page(1, 4, 4) == self.groups.members(1)[4:]
        assert self.groups.page(1, 6, 4) == []
        self.settle()
        assert self.groups.count(1) == 6

    def test_members_are_listed_by_number_and_are_gone_when_they_left(self) -> None:
        for user in (300, 2, 2**60, 70):
            self.groups.put_member(1, member(user, 10))
        self.groups.put_member(2, member(9, 10))
        assert self.users_at(None) == [2, 70, 300, 2**60]
        self.settle()
        assert self.users_at(None) == [2, 70, 300, 2**60]
        assert self.groups.member(1, 70) == member(70, 10)
        self.groups.put_member(1, member(70, 10, left=20))
        assert self.groups.member(1, 70) is None
        self.settle()
        assert self.groups.member(1, 70) is None
        assert self.users_at(None) == [2, 300, 2**60]
        assert self.groups.member(1, 9) is None
        assert self.groups.member(3, 9) is None

    def test_a_member_changes_in_place(self) -> None:
        self.groups.put_member(1, member(5, 10))
        self.settle()
        changed = Member(5, Role.ADMIN, 10, 10_000, 0, is_muted=True, count_at_read=77, joined_message=2**60)
        self.groups.put_member(1, changed)
        assert self.groups.members(1) == [changed]
        self.settle()
        assert self.groups.member(1, 5) == changed
        assert self.groups.members(1, at=10) == [changed]

    def test_the_past_can_be_asked_about(self) -> None:
        self.groups.put_member(1, member(5, 10))
        self.groups.put_member(1, member(6, 20))
        self.settle()
        self.groups.put_member(1, member(5, 10, left=30))
        for _ in range(2):
            assert self.users_at(9) == []
            assert self.users_at(10) == self.users_at(19) == [5]
            assert self.users_at(20) == self.users_at(29) == [5, 6]
            assert self.users_at(30) == self.users_at(1000) == [6]
            self.settle()

    def test_who_comes_back_was_away_in_between(self) -> None:
        self.groups.put_member(1, member(5, 10))
        self.groups.put_member(1, member(5, 10, left=20))
        self.settle()
        self.groups.put_member(1, member(5, 30))
        for _ in range(2):
            assert self.users_at(15) == [5]
            assert self.users_at(25) == []
            assert self.users_at(35) == self.users_at(None) == [5]
            assert self.groups.member(1, 5) == member(5, 30)
            assert self.groups.groups_of(5) == [1]
            self.settle()
        self.groups.put_member(1, member(5, 30, left=40))
        self.settle()
        assert [event_id for event_id in range(50) if self.users_at(event_id)] == [*range(10, 20), *range(30, 40)]
        assert self.groups.groups_of(5) == []

    def test_nobody_is_a_member_twice(self) -> None:
        self.groups.put_member(1, member(5, 10))
        self.groups.put_member(1, member(5, 30))
        self.settle()
        assert self.users_at(None) == [5]
        assert [len(self.users_at(event_id)) for event_id in (9, 10, 29, 30, 31)] == [0, 1, 1, 1, 1]

    def test_applying_a_change_twice_changes_nothing(self) -> None:
        for stay in (member(5, 10), member(5, 10, left=20), member(5, 30)):
            for _ in range(2):
                self.groups.put_member(1, stay)
                self.settle()
        assert [self.users_at(event_id) for event_id in (15, 25, 35)] == [[5], [], [5]]

    def test_what_is_forgotten_is_only_what_ended_by_then(self) -> None:
        self.groups.put_member(1, member(5, 10, left=20))
        self.groups.put_member(1, member(5, 30, left=40))
        self.groups.put_member(1, member(6, 10, left=21))
        self.groups.put_member(2, member(6, 10, left=20))
        self.groups.put_member(1, member(7, 10))
        self.settle()
        self.groups.forget_left(20)
        for _ in range(2):
            assert self.users_at(20) == [6, 7]
            assert self.users_at(35) == [5, 7]
            assert self.users_at(None) == [7]
            self.settle()
        self.groups.forget_left(10**9)
        self.settle()
        assert self.users_at(15) == self.users_at(None) == [7]
        self.groups.put_member(1, member(5, 50))
        self.settle()
        assert self.users_at(None) == [5, 7]

    def test_who_left_muted_is_remembered_for_as_long_as_it_takes(self) -> None:
        muted = replace(member(5, 10, left=20), is_muted=True)
        self.groups.put_member(1, muted)
        self.groups.put_member(1, member(6, 10, left=20))
        self.settle()
        for through in (20, 10**9):
            self.groups.forget_left(through)
            assert self.groups.last_stay(1, 5) == muted
            self.settle()
            assert self.groups.last_stay(1, 5) == muted
            assert self.groups.last_stay(1, 6) is None
            assert self.users_at(None) == []
        self.groups.put_member(1, member(5, 30))
        self.settle()
        self.groups.forget_left(10**9)
        for _ in range(2):
            assert self.groups.last_stay(1, 5) == member(5, 30)
            assert self.users_at(15) == [], "what is not muted any more is forgotten like others"
            self.settle()

    def test_a_user_s_groups_are_those_of_now(self) -> None:
        for group in (300, 2, 2**50):
            self.groups.put_member(group, member(5, 10))
        self.groups.put_member(9, member(6, 10))
        self.groups.put_member(2, member(5, 10, left=20))
        assert self.groups.groups_of(5) == [300, 2**50]
        self.settle()
        assert self.groups.groups_of(5) == [300, 2**50]
        assert self.groups.groups_of(7) == []

    def test_requests_wait_until_they_are_dropped(self) -> None:
        self.groups.request(1, 9, 200)
        self.groups.request(1, 5, 300)
        self.groups.request(2, 6, 100)
        self.settle()
        assert self.groups.requests(1) == [(5, 300), (9, 200)]
        self.groups.request(1, 9, 400)
        self.groups.request(1, 5, 0)
        self.groups.request(1, 77, 0)
        self.settle()
        assert self.groups.requests(1) == [(9, 400)]
        assert self.groups.requests(2) == [(6, 100)]
        assert self.groups.requests(3) == []

    def test_a_list_of_members_is_the_caller_s_own(self) -> None:
        self.groups.put_member(1, member(5, 10))
        self.groups.members(1).clear()
        self.groups.members(1, at=20).clear()
        assert self.users_at(None) == self.users_at(20) == [5]

    def test_a_group_of_many(self) -> None:
        for user in range(1, 1201):
            self.groups.put_member(1, member(user, user))
        self.settle()
        assert self.users_at(None) == list(range(1, 1201))
        assert self.users_at(600) == list(range(1, 601))

    def test_groups_that_were_left_are_known_also_when_the_stay_is_forgotten(self) -> None:
        self.groups.put(Group(1, "a", "", "", 7))
        self.groups.put_member(1, member(7, 10))
        self.groups.put_member(2, member(7, 11))
        assert self.groups.past_groups_of(7) == []
        self.groups.put_member(2, member(7, 11, left=20))
        self.groups.put_member(2, member(7, 30))
        assert self.groups.past_groups_of(7) == [2]
        self.settle()
        self.groups.forget_left(100)
        self.settle()
        assert (self.groups.past_groups_of(7), self.groups.groups_of(7)) == ([2], [1, 2])
        assert self.groups.past_groups_of(8) == []

    def test_admins_are_found_without_reading_the_members(self) -> None:
        assert self.groups.admins(1) == []
        for user in range(1, 8):
            self.groups.put_member(1, member(user, user, role=Role.OWNER if user == 5 else Role.MEMBER))
        self.groups.put_member(1, member(3, 3, role=Role.ADMIN))
        self.groups.put_member(1, member(7, 7, role=Role.ADMIN))
        assert self.groups.admins(1) == [3, 5, 7]
        self.settle()
        assert self.groups.admins(1) == [3, 5, 7]
        self.groups.put_member(1, member(7, 7))
        self.groups.put_member(1, member(3, 3, left=9, role=Role.ADMIN))
        assert self.groups.admins(1) == [5]
        self.settle()
        assert self.groups.admins(1) == [5]

    def test_a_page_of_members_begins_after_a_number(self) -> None:
        for user in (2, 4, 6, 8):
            self.groups.put_member(1, member(user, user))
        self.groups.put_member(1, member(6, 6, left=9))
        for _ in range(2):
            assert [each.user for each in self.groups.page(1, 0, 10, after=2)] == [4, 8]
            assert [each.user for each in self.groups.page(1, 1, 10, after=3)] == [8]
            assert self.groups.page(1, 0, 10, after=8) == []
            self.settle()

    def test_groups_of_a_user_are_counted(self) -> None:
        assert self.groups.count_of(1) == 0
        for group in (1, 2, 3):
            self.groups.put_member(group, member(1, group))
        self.groups.put_member(2, member(1, 2, left=9))
        assert (self.groups.count_of(1), self.groups.count_of(2)) == (2, 0)
        self.settle()
        assert self.groups.count_of(1) == 2
        self.groups.put_member(2, member(1, 10))
        self.groups.put_member(2, member(1, 10))
        assert self.groups.count_of(1) == 3

    def test_one_request_is_found_and_a_page_of_them_is_bounded(self) -> None:
        for user in (4, 2, 9):
            self.groups.request(1, user, user * 100)
        for _ in range(2):
            assert (self.groups.request_of(1, 4), self.groups.request_of(1, 5)) == (400, 0)
            assert self.groups.requests(1, limit=2) == [(2, 200), (4, 400)]
            assert self.groups.requests(1, after=2) == [(4, 400), (9, 900)]
            assert self.groups.requests(1, after=3, limit=1) == [(4, 400)]
            assert self.groups.requests(1, after=9) == []
            self.settle()
        self.groups.request(1, 4, 0)
        assert self.groups.request_of(1, 4) == 0

    def test_members_stay_in_order_through_many_joins_and_quits(self) -> None:
        self.groups.put_member(1, member(50, 1))
        assert self.users_at(None) == [50]
        event, there = 1, {50}
        for user in (70, 10, 60, 50, 10, 20, 60, 55, 70, 10):
            event += 1
            if user in there:
                joined = next(each.joined for each in self.groups.members(1) if each.user == user)
                self.groups.put_member(1, member(user, joined, left=event))
                there.remove(user)
            else:
                self.groups.put_member(1, member(user, event))
                there.add(user)
            assert self.users_at(None) == self.users_at(event) == sorted(there)
            assert self.groups.count(1) == len(there)
        assert self.users_at(3) == [10, 50, 70]

    def test_invitations_are_listed_by_user(self) -> None:
        for group in (3, 1, 2):
            self.groups.invite(group, 7, group * 100)
        self.groups.invite(1, 8, 500)
        for _ in range(2):
            assert self.groups.invitations(7) == [(1, 100), (2, 200), (3, 300)]
            assert self.groups.invitations(7, limit=1) == [(1, 100)]
            assert (self.groups.invited_at(3, 7), self.groups.invited_at(3, 8)) == (300, 0)
            self.settle()
        self.groups.invite(2, 7, 0)
        self.groups.invite(9, 7, 0)
        self.settle()
        assert self.groups.invitations(7) == [(1, 100), (3, 300)]

    def test_groups_of_a_user_are_read_in_pages_by_the_time_of_joining(self) -> None:
        for group, joined in ((4, 3), (2, 5), (9, 1), (7, 3)):
            self.groups.put_member(group, member(1, joined))
            self.groups.put_member(group, member(2, joined))
        rows = [(9, 1_000), (4, 3_000), (7, 3_000), (2, 5_000)]
        for _ in range(2):
            assert self.groups.joined_page(1, 3) == rows[:3]
            assert self.groups.joined_page(1, 9, after=(3_000, 4)) == rows[2:]
            assert self.groups.joined_page(1, 9, after=(5_000, 2)) == self.groups.joined_page(3, 9) == []
            self.settle()
        assert self.groups.joined_page(1, 9) == rows
        self.groups.put_member(4, member(1, 3, left=6))
        self.groups.put_member(9, member(1, 1, left=7))
        self.groups.put_member(9, member(1, 8))
        self.groups.put_member(2, member(1, 5, role=Role.ADMIN))
        self.groups.put_member(7, member(1, 9))  # joins again: the stay before was never ended
        rows = [(2, 5_000), (9, 8_000), (7, 9_000)]
        for _ in range(2):
            assert self.groups.joined_page(1, 9) == rows
            assert self.groups.groups_of(1) == [2, 7, 9] and self.groups.count_of(1) == 3
            self.settle()
