"""What one group commit changes in the derived state.

The writer applies a change to memory when it numbers it, so that the next request of the same commit sees it; the
store and everyone else see it when the journal is flushed; and if the write fails, memory is put back.
"""

from collections.abc import Callable


class Changes:
    """Puts and deletes for one batch of the store, with what to run when it commits or is undone."""

    __slots__ = ("_batch", "_commits", "_undos")

    def __init__(self) -> None:
        self._batch: dict[bytes, bytes | None] = {}
        self._commits: list[Callable[[], object]] = []
        self._undos: list[Callable[[], object]] = []

    def put(self, key: bytes, value: bytes) -> None:
        """Store ``value``; the last word on a key within a batch holds."""
        self._batch[key] = value

    def delete(self, key: bytes) -> None:
        """Remove ``key``."""
        self._batch[key] = None

    def on_commit(self, call: Callable[[], object]) -> None:
        """Run ``call`` once the batch is in the store."""
        self._commits.append(call)

    def on_undo(self, call: Callable[[], object]) -> None:
        """Run ``call`` if the batch was never written."""
        self._undos.append(call)

    @property
    def puts(self) -> list[tuple[bytes, bytes]]:
        """Pairs to store."""
        return [(key, value) for key, value in self._batch.items() if value is not None]

    @property
    def deletes(self) -> list[bytes]:
        """Keys to remove."""
        return [key for key, value in self._batch.items() if value is None]

    @property
    def is_empty(self) -> bool:
        """Nothing for the store?"""
        return not self._batch

    def committed(self) -> None:
        """Tell everyone who asked."""
        for call in self._commits:
            call()

    def undone(self) -> None:
        """Put memory back, newest change first."""
        for call in reversed(self._undos):
            call()
