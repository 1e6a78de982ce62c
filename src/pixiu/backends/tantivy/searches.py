"""``Searches`` on threads: the loop never waits for the index, and a few questions at a time are enough for a disk."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from pixiu.backends.tantivy.reader import IndexReader, NoIndex
from pixiu.model.errors import Overloaded, PixiuError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pixiu.config.search import SearchSettings
    from pixiu.ports.search import Asked, Found

__all__ = ["ThreadedSearches"]

log = logging.getLogger(__name__)

RETRY_MS = 200


class ThreadedSearches:
    """Questions to the index of a data directory."""

    def __init__(self, data: Path, on_loop: Callable[[Callable[[], object]], object], settings: SearchSettings) -> None:
        """``on_loop`` may be called from any thread."""
        self._on_loop = on_loop
        self._settings = settings
        self._readers = [IndexReader(data) for _ in range(settings.threads)]
        self._by_user: dict[int, int] = {}
        self._pool: ThreadPoolExecutor | None = None
        self._is_closed = False
        self._noted = ""
        self.under_way = 0

    def find(self, asked: Asked, done: Callable[[Found | PixiuError], object]) -> None:
        """Answer later, on the loop; at once where too many wait."""
        user, settings = asked.user, self._settings
        own = self._by_user.get(user, 0)
        if self._is_closed or self.under_way >= settings.threads + settings.waiting_max:
            done(Overloaded(f"{self.under_way} searches are under way; try again", retry_after_ms=RETRY_MS))
            return
        if own >= settings.per_user_max:
            done(Overloaded(f"{own} searches of yours are under way; wait for one", retry_after_ms=RETRY_MS))
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(settings.threads, thread_name_prefix="pixiu-search")
        self.under_way += 1
        self._by_user[user] = own + 1

        def answered(found: Found | PixiuError) -> None:
            self.under_way -= 1
            self._by_user[user] -= 1
            if not self._by_user[user]:
                del self._by_user[user]
            done(found)

        def work() -> None:
            found = self._ask(asked)
            try:
                self._on_loop(lambda: answered(found))
            except RuntimeError:
                log.debug("a search ended when the loop was gone")

        self._pool.submit(work)

    def _ask(self, asked: Asked) -> Found | PixiuError:
        # As many readers as threads: one is always free, and none is used by two.
        reader = self._readers.pop()
        try:
            found = reader.find(asked)
        except NoIndex as error:
            self._note(str(error))
            return Unavailable(error.told)
        except PixiuError as error:
            return error
        except Exception:  # whatever it is, the caller waits for an answer
            log.exception("a search failed")
            return PixiuError("the search failed; the server's log says why")
        else:
            self._noted = ""
            return found
        finally:
            self._readers.append(reader)

    def _note(self, problem: str) -> None:
        """Log what clients are not told, once for as long as it stays the same, however many ask."""
        if problem != self._noted:
            self._noted = problem
            log.warning("nothing can be searched", extra={"problem": problem})

    def close(self) -> None:
        """Ask no more; what is being asked now ends."""
        self._is_closed = True
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None
