"""Unexpected exceptions that production code survives: it logs them and goes on. A simulated world fails with them."""

from __future__ import annotations

import logging
import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pixiu.model.errors import PixiuError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["collected_bugs"]


class _Collector(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.bugs: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep what was logged with an exception that is no ``PixiuError``."""
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, PixiuError):
            where = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{where.filename.rpartition('/src/')[2]}:{where.lineno}"
            self.bugs.append(f"{record.getMessage()}: {type(error).__name__}: {error} at {place}")


@contextmanager
def collected_bugs() -> Iterator[list[str]]:
    """Collect them within the block. Nothing else of Pixiu's log is written meanwhile."""
    logger, handler = logging.getLogger("pixiu"), _Collector()
    before = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.WARNING)
    logger.propagate = False
    try:
        yield handler.bugs
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before[0])
        logger.propagate = before[1]
