"""Iterating over what a client is told, until its session is over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Self, TypeVar

from pixiu.model.errors import PixiuError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["Over", "Stream", "or_error"]


class Over(Exception):
    """The session is over, by an error or by the program's wish."""

    def __init__(self, error: PixiuError | None) -> None:
        super().__init__(str(error or "this session is over"))
        self.error = error


T = TypeVar("T")


async def or_error(following: Awaitable[T]) -> T:
    """Wait for it; the end of a session is an error here."""
    try:
        return await following
    except Over as over:
        raise over.error or Unavailable("this session is over") from None


class Stream(Generic[T]):
    """Iterates over messages or events until the session is over."""

    def __init__(self, following: Callable[[], Awaitable[T]]) -> None:
        self._next = following

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        try:
            return await self._next()
        except Over as over:
            if over.error is not None:
                raise over.error from None
            raise StopAsyncIteration from None
