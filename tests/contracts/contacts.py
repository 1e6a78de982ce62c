"""What every ``Contacts`` must do."""

from pixiu.ports.contacts import Contacts
from tests.contracts.stores import StoresCase


class ContactsContract(StoresCase):
    """Contacts and blocks of a user."""

    @property
    def contacts(self) -> Contacts:
        return self.stores().contacts

    def test_contacts_are_listed_with_the_time_of_adding_oldest_first(self) -> None:
        for peer, at in [(5, 300), (9, 100), (7, 200), (3, 200)]:
            assert self.contacts.link(1, peer, at)
        expected = [(9, 100), (3, 200), (7, 200), (5, 300)]
        assert self.contacts.of(1) == expected
        self.settle()
        assert self.contacts.of(1) == expected
        assert self.contacts.of(2) == []

    def test_linking_twice_keeps_the_first_time(self) -> None:
        assert self.contacts.link(1, 2, 100)
        self.settle()
        assert not self.contacts.link(1, 2, 200)
        assert self.contacts.of(1) == [(2, 100)]

    def test_a_list_is_its_owners_alone(self) -> None:
        self.contacts.link(1, 2, 100)
        self.contacts.link(2, 3, 100)
        self.settle()
        assert self.contacts.of(1) == [(2, 100)]
        assert self.contacts.of(2) == [(3, 100)]
        assert self.contacts.of(3) == []

    def test_unlink_takes_off_the_list_and_a_new_link_has_a_new_time(self) -> None:
        self.contacts.link(1, 2, 100)
        self.contacts.link(1, 3, 100)
        self.settle()
        assert self.contacts.unlink(1, 2)
        assert not self.contacts.unlink(1, 2)
        assert not self.contacts.unlink(1, 99)
        self.settle()
        assert self.contacts.of(1) == [(3, 100)]
        assert self.contacts.link(1, 2, 50)
        self.settle()
        assert self.contacts.of(1) == [(2, 50), (3, 100)]

    def test_a_block_is_one_way_and_can_be_taken_back(self) -> None:
        self.contacts.block(1, 2, is_blocked=True)
        self.contacts.block(1, 2, is_blocked=True)
        assert self.contacts.is_blocked(1, 2)
        self.settle()
        assert self.contacts.is_blocked(1, 2)
        assert not self.contacts.is_blocked(2, 1)
        assert not self.contacts.is_blocked(1, 3)
        self.contacts.block(1, 2, is_blocked=False)
        assert not self.contacts.is_blocked(1, 2)
        self.settle()
        assert not self.contacts.is_blocked(1, 2)

    def test_blocks_and_contacts_do_not_touch_each_other(self) -> None:
        self.contacts.block(1, 2, is_blocked=True)
        assert self.contacts.of(1) == []
        self.contacts.link(1, 2, 100)
        self.contacts.link(1, 3, 100)
        self.contacts.block(1, 3, is_blocked=True)
        self.settle()
        assert self.contacts.of(1) == [(2, 100), (3, 100)]
        self.contacts.unlink(1, 2)
        self.contacts.block(1, 3, is_blocked=False)
        self.settle()
        assert self.contacts.of(1) == [(3, 100)]
        assert self.contacts.is_blocked(1, 2)
        assert not self.contacts.is_blocked(1, 3)

    def test_whom_someone_blocks_is_listed(self) -> None:
        for peer in (9, 3):
            self.contacts.block(1, peer, is_blocked=True)
        self.contacts.link(1, 5, 100)
        self.contacts.block(2, 1, is_blocked=True)
        assert self.contacts.blocked_by(1) == [3, 9]
        self.settle()
        self.contacts.block(1, 3, is_blocked=False)
        assert self.contacts.blocked_by(1) == [9]

    def test_one_contact_is_found_and_counted_without_reading_the_list(self) -> None:
        contacts = self.contacts
        assert (contacts.linked_at(1, 2), contacts.count(1), contacts.blocked_count(1)) == (None, 0, 0)
        for peer in (2, 3, 4):
            contacts.link(1, peer, peer * 100)
        contacts.block(1, 3, is_blocked=True)
        contacts.block(1, 9, is_blocked=True)
        assert (contacts.linked_at(1, 3), contacts.count(1), contacts.blocked_count(1)) == (300, 3, 2)
        self.settle()
        contacts = self.contacts
        assert (contacts.linked_at(1, 3), contacts.count(1), contacts.blocked_count(1)) == (300, 3, 2)
        contacts.unlink(1, 3)
        contacts.block(1, 9, is_blocked=False)
        contacts.link(1, 2, 900)
        assert (contacts.linked_at(1, 3), contacts.count(1), contacts.blocked_count(1)) == (None, 2, 1)
        assert contacts.linked_at(1, 9) is None and contacts.count(2) == 0

    def test_a_page_of_contacts_begins_behind_a_time_and_a_peer(self) -> None:
        rows = [(9, 100), (3, 200), (7, 200), (5, 300)]
        for peer, at in sorted(rows):
            self.contacts.link(1, peer, at)
        for _ in range(2):
            contacts = self.contacts
            assert contacts.page(1, 2) == rows[:2]
            assert contacts.page(1, 9, after=(200, 3)) == rows[2:]
            assert contacts.page(1, 1, after=(200, 4)) == [(7, 200)]
            assert contacts.page(1, 9, after=(300, 5)) == contacts.page(2, 9) == []
            self.settle()
        assert self.contacts.page(1, 9) == rows
        self.contacts.unlink(1, 3)
        self.contacts.block(1, 7, is_blocked=True)
        self.contacts.block(1, 8, is_blocked=True)
        self.contacts.link(1, 4, 150)
        rows = [(9, 100), (4, 150), (7, 200), (5, 300)]
        assert self.contacts.page(1, 9) == self.contacts.of(1) == rows
        self.settle()
        assert self.contacts.page(1, 9) == rows
        assert [self.contacts.linked_at(1, peer) for peer in (3, 4, 8)] == [None, 150, None]
        self.contacts.unlink(1, 9)
        self.contacts.link(1, 9, 400)
        assert self.contacts.page(1, 2, after=(200, 7)) == [(5, 300), (9, 400)]
