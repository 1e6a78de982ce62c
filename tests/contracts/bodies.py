"""What every ``Bodies`` must do."""

import pytest

from pixiu.ports.bodies import Bodies
from tests.contracts.stores import StoresCase


class BodiesContract(StoresCase):
    """Content, for as long as something refers to it."""

    @property
    def bodies(self) -> Bodies:
        return self.stores().bodies

    def test_bodies_that_are_there_are_given(self) -> None:
        contents = {10: b"ten", 2**62: b"", 12: bytes(range(256)) * 256}
        for number, body in contents.items():
            assert self.bodies.put(number, body, 1)
        assert self.bodies.get([12, 10, 99, 2**62, 10]) == contents
        self.settle()
        assert self.bodies.get([12, 10, 99, 2**62, 10]) == contents
        assert self.bodies.get([]) == {}
        assert self.bodies.get(iter([99])) == {}

    @pytest.mark.feature("P18")
    def test_putting_twice_is_putting_once(self) -> None:
        assert self.bodies.put(10, b"first", 3)
        assert not self.bodies.put(10, b"second", 5)
        self.settle()
        assert not self.bodies.put(10, b"third", 7)
        assert self.bodies.references(10) == 3
        assert self.bodies.get([10]) == {10: b"first"}

    @pytest.mark.feature("P18")
    def test_a_body_goes_with_its_last_reference(self) -> None:
        self.bodies.put(10, b"x", 3)
        assert self.bodies.references(10) == 3
        assert self.bodies.release(10) == 2
        self.settle()
        assert self.bodies.references(10) == 2
        assert self.bodies.release(10) == 1
        assert self.bodies.get([10]) == {10: b"x"}
        self.settle()
        assert self.bodies.release(10) == 0
        assert self.bodies.get([10]) == {}
        assert self.bodies.references(10) == 0
        self.settle()
        assert self.bodies.get([10]) == {}
        assert self.bodies.release(10) == 0
        assert self.bodies.references(10) == 0

    def test_many_references_go_at_once_and_never_below_none(self) -> None:
        self.bodies.put(10, b"x", 5)
        assert self.bodies.release(10, 3) == 2
        self.settle()
        assert self.bodies.release(10, 7) == 0
        assert self.bodies.release(99, 2) == 0
        assert self.bodies.get([10]) == {}

    def test_one_that_came_and_went_between_two_commits(self) -> None:
        self.bodies.put(10, b"x", 2)
        assert self.bodies.release(10, 2) == 0
        assert self.bodies.get([10]) == {}
        self.settle()
        assert self.bodies.get([10]) == {}
        assert self.bodies.put(10, b"again", 1)
        self.settle()
        assert self.bodies.get([10]) == {10: b"again"}

    def test_one_without_references_is_not_kept(self) -> None:
        assert self.bodies.put(10, b"x", 0)
        assert self.bodies.get([10]) == {}
        self.settle()
        assert self.bodies.references(10) == 0

    def test_other_content_takes_the_place_and_keeps_the_references(self) -> None:
        self.bodies.put(10, b"said", 4)
        self.bodies.put(11, b"said", 4)
        self.bodies.release(11)
        assert self.bodies.replace(10, b"recalled at once")
        self.settle()
        self.bodies.release(11)
        assert self.bodies.replace(11, b"recalled later")
        assert self.bodies.get([10, 11]) == {10: b"recalled at once", 11: b"recalled later"}
        self.settle()
        assert self.bodies.get([10, 11]) == {10: b"recalled at once", 11: b"recalled later"}
        assert [self.bodies.references(number) for number in (10, 11)] == [4, 2]
        assert self.bodies.release(11, 2) == 0
        assert not self.bodies.replace(11, b"too late")
        self.settle()
        assert not self.bodies.replace(11, b"too late")
        assert self.bodies.get([10, 11]) == {10: b"recalled at once"}

    def test_one_that_is_gone_may_come_again(self) -> None:
        self.bodies.put(10, b"x", 2)
        self.settle()
        self.bodies.release(10)
        self.settle()
        self.bodies.release(10)
        assert self.bodies.put(10, b"again", 5)
        assert self.bodies.references(10) == 5
        self.settle()
        assert self.bodies.references(10) == 5
        assert self.bodies.get([10]) == {10: b"again"}

    def test_ids_need_not_rise(self) -> None:
        for number in (50, 10, 30):
            assert self.bodies.put(number, b"%d" % number, 1)
            self.settle()
        assert not self.bodies.put(10, b"other", 1)
        assert self.bodies.get([10, 30, 50]) == {10: b"10", 30: b"30", 50: b"50"}
