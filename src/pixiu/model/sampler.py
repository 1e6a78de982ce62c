"""Which of many like events to log, so that a busy queue does not drown in its own log."""

__all__ = ["Sampler"]


class Sampler:
    """Says which of many events to log: none (0), each (1), or the first of every ``every``."""

    __slots__ = ("_every", "_left")

    def __init__(self, every: int) -> None:
        assert every >= 0
        self._every = every
        self._left = 0

    def take(self) -> bool:
        """Whether to log this event."""
        if self._left:
            self._left -= 1
            return False
        self._left = self._every - 1 if self._every else 0
        return self._every > 0
