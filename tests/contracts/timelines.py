"""What every ``Timelines`` must do."""

import random

import pytest

from pixiu.model.timeline import GroupRow, PrivateRow, State
from pixiu.ports.timelines import Timelines
from tests.contracts.stores import StoresCase

BIG = 2**61


def ids(rows: list[PrivateRow] | list[GroupRow]) -> list[int]:
    return [row.message_id for row in rows]


class TimelinesContract(StoresCase):
    """What was said, by user, by conversation and by group."""

    @property
    def timelines(self) -> Timelines:
        return self.stores().timelines

    def test_a_row_is_kept_as_it_is(self) -> None:
        incoming = PrivateRow(BIG, 5, is_incoming=True)
        outgoing = PrivateRow(BIG + 1, 0, is_incoming=False)
        said = GroupRow(BIG, 7, BIG - 1)
        self.timelines.put_private(1, incoming)
        self.timelines.put_private(1, outgoing)
        self.timelines.put_group(1, said)
        for _ in range(2):
            assert self.timelines.private_row(1, BIG) == incoming
            assert self.timelines.private_row(1, BIG + 1) == outgoing
            assert self.timelines.group_row(1, BIG) == said
            assert self.timelines.private_forward(1) == [incoming, outgoing]
            assert self.timelines.group_forward(1) == [said]
            self.settle()
        assert self.timelines.private_row(2, BIG) is None
        assert self.timelines.private_row(1, BIG + 2) is None
        assert self.timelines.group_row(2, BIG) is None
        assert self.timelines.group_row(1, 3) is None

    def test_writing_again_changes_nothing(self) -> None:
        self.timelines.put_private(1, PrivateRow(10, 5, is_incoming=False))
        self.timelines.mark(1, 10, read_at=99)
        self.timelines.put_private(1, PrivateRow(10, 6, is_incoming=True))
        self.timelines.put_group(1, GroupRow(10, 5, 9))
        self.settle()
        self.timelines.put_private(1, PrivateRow(10, 6, is_incoming=True))
        self.timelines.put_group(1, GroupRow(10, 6, 8))
        for _ in range(2):
            assert self.timelines.private_row(1, 10) == PrivateRow(10, 5, False, State.READ, 0, 99)
            assert self.timelines.private_forward(1, peer=6) == []
            assert self.timelines.group_forward(1) == [GroupRow(10, 5, 9)]
            self.settle()

    @pytest.mark.feature("B08")
    def test_the_six_private_queries_give_exactly_their_ids(self) -> None:
        rng = random.Random(8)
        peers = [0, 5, 6, 2**50]
        written: dict[int, int] = {}
        for round_number in range(6):
            for _ in range(rng.choice([0, 1, 40])):
                number = rng.randint(1, 2000)
                peer = rng.choice(peers)
                self.timelines.put_private(1, PrivateRow(number, peer, is_incoming=rng.random() < 0.5))
                written.setdefault(number, peer)
                self.timelines.put_private(2, PrivateRow(number, 1, is_incoming=True))
            for _ in range(60):
                self.check_private_queries(rng, written, peers)
            if round_number % 2:
                self.settle()

    def check_private_queries(self, rng: random.Random, written: dict[int, int], peers: list[int]) -> None:
        """Ends at, beside and away from what was written; ``after`` and ``before`` leave their own id out."""
        near = [
            0,
            2001,
            *(number + step for number in rng.sample(sorted(written), min(3, len(written))) for step in (-1, 0, 1)),
        ]
        low, high = sorted((rng.choice(near), rng.choice(near)))
        peer = rng.choice([None, *peers, 99])
        limit = rng.choice([1, 2, 10, 100, max(len(written), 1)])
        chosen = [number for number in sorted(written) if peer is None or written[number] == peer]
        found = self.timelines
        above = [number for number in chosen if number > low]
        assert ids(found.private_forward(1, after=low, limit=limit, peer=peer)) == above[:limit]
        until = [number for number in above if number <= high]
        assert ids(found.private_forward(1, after=low, through=high, limit=limit, peer=peer)) == until[:limit]
        assert ids(found.private_backward(1, limit=limit, peer=peer)) == chosen[::-1][:limit]
        below = [number for number in chosen if number < high][::-1]
        assert ids(found.private_backward(1, before=high, limit=limit, peer=peer)) == below[:limit]
        assert ids(found.private_backward(1, down_to=low, limit=limit, peer=peer)) == above[::-1][:limit]
        between = [number for number in below if number > low]
        page = found.private_backward(1, before=high, down_to=low, limit=limit, peer=peer)
        assert ids(page) == between[:limit]

    @pytest.mark.feature("B08")
    def test_private_pages_end_where_they_should(self) -> None:
        assert self.timelines.private_forward(1) == self.timelines.private_backward(1) == []
        for number in range(1, 201):
            self.timelines.put_private(1, PrivateRow(number, number % 2, is_incoming=True))
        self.settle()
        assert ids(self.timelines.private_forward(1)) == list(range(1, 101))
        assert ids(self.timelines.private_forward(1, after=100)) == list(range(101, 201))
        assert ids(self.timelines.private_forward(1, after=200)) == []
        assert ids(self.timelines.private_forward(1, after=2**63 - 1)) == []
        assert ids(self.timelines.private_forward(1, after=5, through=5)) == []
        assert ids(self.timelines.private_forward(1, after=9, through=3)) == []
        assert ids(self.timelines.private_backward(1)) == list(range(200, 100, -1))
        assert ids(self.timelines.private_backward(1, before=101)) == list(range(100, 0, -1))
        assert ids(self.timelines.private_backward(1, before=1)) == []
        assert ids(self.timelines.private_backward(1, before=0)) == []
        assert ids(self.timelines.private_backward(1, before=2**63 - 1, limit=1)) == [200]
        assert ids(self.timelines.private_backward(1, limit=0)) == []

    @pytest.mark.feature("R13")
    def test_a_conversation_is_paged_back_to_its_beginning(self) -> None:
        for number in range(1, 1001):
            self.timelines.put_private(1, PrivateRow(number, number % 10, is_incoming=True))
            if number % 400 == 0:
                self.settle()
        seen: list[int] = []
        while page := self.timelines.private_backward(1, before=seen[-1] if seen else None, peer=3, limit=30):
            seen += ids(page)
        assert seen == list(range(993, 0, -10))

    @pytest.mark.feature("B09", "R14")
    def test_group_queries_cover_any_range_without_holes(self) -> None:
        rng = random.Random(9)
        numbers = sorted(rng.sample(range(1, 5000), 300))
        for count, number in enumerate(numbers):
            self.timelines.put_group(1, GroupRow(number, 5, numbers[count - 1] if count else 0))
            self.timelines.put_group(2, GroupRow(number, 5, 0))
            if count == 170:
                self.settle()
        for _ in range(100):
            low, high = sorted(rng.choice(numbers) + rng.choice([-1, 0, 1]) for _ in range(2))
            limit = rng.choice([1, 7, 100, 300])
            above, below = [n for n in numbers if n > low], [n for n in numbers if n < high]
            assert ids(self.timelines.group_forward(1, after=low, limit=limit)) == above[:limit]
            assert ids(self.timelines.group_backward(1, limit=limit)) == numbers[::-1][:limit]
            assert ids(self.timelines.group_backward(1, down_to=low, limit=limit)) == above[::-1][:limit]
            assert ids(self.timelines.group_backward(1, before=high, limit=limit)) == below[::-1][:limit]
            between = [n for n in below if n > low][::-1]
            assert ids(self.timelines.group_backward(1, before=high, down_to=low, limit=limit)) == between[:limit]
        backward: list[int] = []
        while page := self.timelines.group_backward(1, before=backward[-1] if backward else None, limit=17):
            assert all(row.previous < row.message_id for row in page)
            backward += ids(page)
        forward: list[int] = []
        while page := self.timelines.group_forward(1, after=forward[-1] if forward else 0, limit=17):
            forward += ids(page)
        assert forward == backward[::-1] == numbers
        assert self.timelines.group_backward(3) == self.timelines.group_forward(3) == []

    def test_the_first_receipt_of_each_kind_holds(self) -> None:
        self.timelines.put_private(1, PrivateRow(10, 5, is_incoming=False))
        assert self.timelines.mark(1, 10, delivered_at=100)
        assert not self.timelines.mark(1, 10, delivered_at=200)
        assert not self.timelines.mark(1, 10)
        self.settle()
        assert not self.timelines.mark(1, 10, delivered_at=200)
        assert self.timelines.private_row(1, 10) == PrivateRow(10, 5, False, State.DELIVERED, 100, 0)
        assert self.timelines.mark(1, 10, delivered_at=300, read_at=300)
        self.settle()
        assert not self.timelines.mark(1, 10, read_at=400)
        assert not self.timelines.mark(1, 11, read_at=400)
        assert not self.timelines.mark(2, 10, read_at=400)
        expected = PrivateRow(10, 5, False, State.READ, 100, 300)
        assert self.timelines.private_forward(1) == self.timelines.private_backward(1, peer=5) == [expected]

    def test_a_long_page_has_what_became_of_every_row(self) -> None:
        rng = random.Random(9)
        wanted = {user: [PrivateRow(BIG + 3 * number, number % 2, True) for number in range(80)] for user in (1, 2)}
        for user, rows in wanted.items():
            for row in rows:
                self.timelines.put_private(user, row)
        for turn in range(3):
            for user, rows in wanted.items():
                for place in rng.sample(range(len(rows)), 20):
                    row = rows[place]
                    if turn == 1:
                        self.timelines.recall_private(user, row.message_id)
                        rows[place] = row._replace(state=State.RECALLED)
                    elif row.state == State.NORMAL:
                        self.timelines.mark(user, row.message_id, read_at=user + turn)
                        rows[place] = row._replace(state=State.READ, read_at=user + turn)
                for first, last in ((0, 80), (7, 60), (40, 45)):
                    assert (
                        self.timelines.private_forward(
                            user, after=BIG + 3 * first - 1, through=BIG + 3 * last - 1, limit=100
                        )
                        == rows[first:last]
                    )
                assert self.timelines.private_forward(user, peer=1, limit=100) == [row for row in rows if row.peer]
            self.settle()

    def test_a_recall_is_for_good(self) -> None:
        self.timelines.put_private(1, PrivateRow(10, 5, is_incoming=False))
        self.timelines.put_group(1, GroupRow(10, 5, 0))
        self.settle()
        for _ in range(2):
            assert self.timelines.recall_private(1, 10)
            assert self.timelines.recall_group(1, 10)
            self.timelines.mark(1, 10, read_at=100)
            self.settle()
        expected = PrivateRow(10, 5, False, State.RECALLED, 0, 100)
        assert self.timelines.private_row(1, 10) == expected
        assert self.timelines.private_forward(1, peer=5) == [expected]
        assert self.timelines.group_forward(1) == [GroupRow(10, 5, 0, State.RECALLED)]
        self.timelines.put_group(1, GroupRow(10, 5, 0))
        assert self.timelines.group_row(1, 10) == GroupRow(10, 5, 0, State.RECALLED)

    def test_there_is_nothing_to_recall_where_no_row_is(self) -> None:
        self.timelines.put_private(1, PrivateRow(10, 5, is_incoming=False))
        self.timelines.put_group(1, GroupRow(10, 5, 0))
        self.settle()
        assert not self.timelines.recall_private(1, 11)
        assert not self.timelines.recall_private(2, 10)
        assert not self.timelines.recall_group(1, 9)
        assert not self.timelines.recall_group(2, 10)

    def test_a_recall_before_the_commit(self) -> None:
        self.timelines.put_private(1, PrivateRow(10, 5, is_incoming=False))
        self.timelines.put_group(1, GroupRow(10, 5, 0))
        assert self.timelines.recall_private(1, 10)
        assert self.timelines.recall_group(1, 10)
        self.settle()
        assert [row.state for row in self.timelines.private_forward(1)] == [State.RECALLED]
        assert [row.state for row in self.timelines.group_forward(1)] == [State.RECALLED]

    def test_retention_removes_rows_through_an_id_and_names_them(self) -> None:
        for number in range(1, 11):
            self.timelines.put_private(1, PrivateRow(number, number % 3, is_incoming=True))
            self.timelines.put_private(2, PrivateRow(number, 1, is_incoming=True))
            self.timelines.put_group(1, GroupRow(number, 5, number - 1))
            if number == 5:
                self.settle()
        assert self.timelines.drop_private(1, through=6) == [1, 2, 3, 4, 5, 6]
        assert self.timelines.drop_private(1, through=6) == []
        assert self.timelines.drop_group(1, through=6) == [1, 2, 3, 4, 5, 6]
        for _ in range(2):
            assert ids(self.timelines.private_forward(1)) == [7, 8, 9, 10]
            assert ids(self.timelines.private_backward(1, peer=0)) == [9]
            assert ids(self.timelines.group_forward(1)) == [7, 8, 9, 10]
            assert self.timelines.private_row(1, 6) is None
            assert self.timelines.group_row(1, 6) is None
            assert len(self.timelines.private_forward(2)) == 10
            self.settle()
        assert self.timelines.drop_group(1, through=10**9) == [7, 8, 9, 10]
        assert self.timelines.drop_group(9, through=10**9) == self.timelines.drop_private(9, through=5) == []
