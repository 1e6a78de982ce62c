"""A bounded cache of decoded rows.

Two generations: what is used is young; when the young have become half of the bound, they become the old ones, and the
old ones that nobody used since are forgotten. That is nearly LRU, at the price of one dict lookup per hit, and the hot
path may look into ``young`` by itself.

It holds nothing that would be missed: what has changed and is not yet in the overlay is kept by its table.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["Cache"]

K = TypeVar("K")
V = TypeVar("V")


class Cache(Generic[K, V]):
    """Holds values of about ``bound`` in weight; a value weighs 1, or what ``weight_of`` says."""

    __slots__ = ("_half", "_old", "_weight", "_weight_of", "young")

    def __init__(self, bound: int, weight_of: Callable[[V], int] | None = None) -> None:
        assert bound >= 2
        self._half = bound // 2
        self._weight_of = weight_of
        self._weight = 0
        self._old: dict[K, V] = {}
        self.young: dict[K, V] = {}

    def find(self, key: K) -> V | None:
        """The value, if it is held. One of the old generation becomes young."""
        value = self.young.get(key)
        if value is None:
            value = self._old.pop(key, None)
            if value is not None:
                self.keep(key, value)
        return value

    def keep(self, key: K, value: V) -> None:
        """Hold a value."""
        self.young[key] = value
        self.weigh(1 if self._weight_of is None else self._weight_of(value))

    def keep_all(self, values: dict[K, V], weight: int) -> None:
        """Hold many, of this weight together."""
        self.young.update(values)
        self.weigh(weight)

    def weigh(self, weight: int) -> None:
        """Something that is held has grown by so much."""
        self._weight += weight
        if self._weight > self._half:
            self._old = self.young
            self.young = {}
            self._weight = 0

    def drop(self, key: K) -> None:
        """Forget one."""
        self.young.pop(key, None)
        self._old.pop(key, None)

    def clear(self) -> None:
        """Forget all."""
        self._old = {}
        self.young = {}
        self._weight = 0

    def __len__(self) -> int:
        return len(self.young) + len(self._old)
