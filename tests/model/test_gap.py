"""Gaps close page by page."""

from hypothesis import given
from hypothesis import strategies as st

from pixiu.model.gap import Gap


@given(after=st.integers(0, 50), size=st.integers(1, 50), page=st.integers(1, 10), step=st.integers(1, 5))
def test_paging_back_closes_a_gap(after: int, size: int, page: int, step: int) -> None:
    before = after + size
    missing = [each for each in range(after + 1, before) if each % step == 0]
    gap: Gap | None = Gap(after, before)
    found: list[int] = []
    for _ in range(60):
        if gap is None:
            break
        rows = [each for each in reversed(missing) if each < gap.before]
        found += rows[:page]
        gap = gap.close(rows[:page][-1] if rows else gap.before, reaches_end=len(rows) <= page)
    assert gap is None
    assert found == missing[::-1]


def test_a_page_that_crosses_the_gap_removes_it() -> None:
    assert Gap(10, 20).close(9, reaches_end=False) is None
    assert Gap(10, 20).close(10, reaches_end=False) is None
    assert Gap(10, 20).close(15, reaches_end=False) == Gap(10, 15)
    assert Gap(10, 20).close(15, reaches_end=True) is None


def test_a_gap_is_told_with_texts_and_says_when_it_is_for_good() -> None:
    assert Gap(1, 2**60).view("with", "bob") == {"with": "bob", "after": "1", "before": str(2**60)}
    assert Gap(1, 2, is_trimmed=True).view("group", "tea")["trimmed"] is True
