"""Work in slices of the loop's turns."""

import asyncio
import gc

from pixiu.runtime.pace import COLLECT_AFTER, Pace


class Watch:
    """A clock that only work moves."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


async def test_what_does_not_fit_into_a_turn_waits_for_the_next_in_order() -> None:
    watch, done = Watch(), list[str]()
    pace = Pace(asyncio.get_running_loop(), seconds=0.003, now=watch)

    def work(name: str) -> None:
        done.append(name)
        watch.seconds += 0.002

    for name in "abcdef":
        pace.run(lambda name=name: work(name))  # type: ignore[misc]
    assert done == ["a", "b"], "the slice is used up by the second"
    assert len(pace) == 4
    await asyncio.sleep(0)
    assert done == ["a", "b", "c", "d"], "others had their turn in between"
    pace.run(lambda: work("late"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert done == ["a", "b", "c", "d", "e", "f", "late"]
    assert len(pace) == 0


async def test_a_piece_that_fails_does_not_stop_the_others() -> None:
    watch, done = Watch(), list[str]()
    pace = Pace(asyncio.get_running_loop(), seconds=0.003, now=watch)

    def fail() -> None:
        watch.seconds += 1
        raise ValueError("no")

    pace.run(fail)
    pace.run(lambda: done.append("after"))
    assert done == [], "it has used up the slice all the same"
    await asyncio.sleep(0)
    assert done == ["after"]


async def test_the_collector_looks_at_what_a_crowd_that_leaves_has_made() -> None:
    """By itself it would not: as long as more is freed than made it counts nothing as new."""
    pace, kept = Pace(asyncio.get_running_loop()), list[list[object]]()
    old = [[object()] for _ in range(40 * COLLECT_AFTER)]
    gc.collect()

    def leave() -> None:
        old.pop()
        old.pop()
        kept.append([object()])

    looks: list[int] = []
    gc.callbacks.append(lambda phase, info: looks.append(info["generation"]) if phase == "start" else None)
    try:
        for _ in range(4 * COLLECT_AFTER):
            pace.later(leave)
        while len(pace):
            await asyncio.sleep(0)
        await asyncio.sleep(0)
    finally:
        gc.callbacks.pop()
    assert 1 in looks
    assert len(kept) == 4 * COLLECT_AFTER
