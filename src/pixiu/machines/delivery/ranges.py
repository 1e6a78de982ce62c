"""Numbers of entries as rows have them."""

__all__ = ["ranges"]


def ranges(useqs: list[int]) -> list[tuple[int, int]]:
    """Rising numbers as ranges without holes; both ends belong to them."""
    found: list[tuple[int, int]] = []
    for useq in useqs:
        if found and found[-1][1] == useq - 1:
            found[-1] = (found[-1][0], useq)
        else:
            found.append((useq, useq))
    return found
