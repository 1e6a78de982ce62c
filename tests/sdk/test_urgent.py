"""Early copies of urgent messages on the client: taken first, shown once, and never lost when the program ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pixiu.machines.client_session import Incoming
from pixiu.sdk.shelves import HURRIED_MAX, MemoryShelf, StoreShelf
from pixiu.sdk.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pixiu.sdk.shelves import Shelf


def message(number: int) -> dict[str, Any]:
    return {"message_id": str(number), "from": "ann", "to": "ben", "at": 1, "kind": "text", "text": f"text {number}"}


def arrive(shelf: Shelf, *numbers: int) -> None:
    """Messages whose cursors are their numbers."""
    shelf.put([Incoming(message(number), number, 0, is_shown=True) for number in numbers])


def take(shelf: Shelf) -> int:
    taken = shelf.take()
    if taken is None:
        return 0
    shelf.finish(taken.hand)
    return int(taken.message["message_id"])


@pytest.fixture(params=["memory", "store"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[list[int]], Shelf]:
    def make(acked: list[int]) -> Shelf:
        if request.param == "memory":
            return MemoryShelf(lambda cursor, _: acked.append(cursor), lambda _: None)
        store = Store(tmp_path / "store")
        return StoreShelf(store, lambda cursor, _: acked.append(cursor), lambda _: None)

    return make


def test_urgent_message_is_taken_first_and_passed_over_in_its_place(make: Callable[[list[int]], Shelf]) -> None:
    acked: list[int] = []
    shelf = make(acked)
    arrive(shelf, 1, 2, 3)
    shelf.hurry(message(5))
    shelf.hurry(message(5))
    assert [take(shelf), take(shelf)] == [5, 1]
    arrive(shelf, 4, 5, 6)
    assert [take(shelf) for _ in range(5)] == [2, 3, 4, 6, 0]
    assert acked[-1] == 6
    assert shelf.waiting == 0


def test_message_whose_early_copy_was_last_is_acked_by_itself(make: Callable[[list[int]], Shelf]) -> None:
    acked: list[int] = []
    shelf = make(acked)
    arrive(shelf, 1)
    shelf.hurry(message(2))
    assert [take(shelf), take(shelf)] == [2, 1]
    arrive(shelf, 2)
    assert take(shelf) == 0
    assert (acked[-1], shelf.waiting) == (2, 0)


def test_cursor_is_not_acked_in_memory_before_the_program_is_done_with_the_copy() -> None:
    acked: list[int] = []
    shelf = MemoryShelf(lambda cursor, _: acked.append(cursor), lambda _: None)
    shelf.hurry(message(1))
    arrive(shelf, 1)
    taken = shelf.take()
    assert taken is not None
    assert acked == []
    shelf.finish(taken.hand)
    assert acked == [1]


def test_program_that_ends_during_an_early_copy_gets_the_message_again(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    shelf = StoreShelf(store, lambda *_: None, lambda _: None)
    shelf.hurry(message(1))
    arrive(shelf, 1)
    assert shelf.take() is not None  # and the program is killed before it is done with it
    store.close()
    again = Store(tmp_path / "store")
    assert take(StoreShelf(again, lambda *_: None, lambda _: None)) == 1
    again.close()


def test_early_copies_on_the_client_are_bounded() -> None:
    shelf = MemoryShelf(lambda *_: None, lambda _: None)
    for number in range(1, HURRIED_MAX + 10):
        shelf.hurry(message(number))
    count = 0
    while take(shelf):
        count += 1
    assert count == HURRIED_MAX
