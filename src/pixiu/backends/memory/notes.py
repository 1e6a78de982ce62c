"""``Notes`` on a dict."""

__all__ = ["MemoryNotes"]


class MemoryNotes:
    """The reference."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}

    def get(self, name: str) -> bytes | None:
        """What was noted under a name."""
        return self._values.get(name)

    def put(self, name: str, value: bytes) -> None:
        """Note it."""
        self._values[name] = value
