"""Searches on threads: a bound on how many run and wait, and an answer for each, on the loop."""

import asyncio
import threading
from pathlib import Path

import pytest

from pixiu.backends.tantivy.schema import index_folder
from pixiu.backends.tantivy.searches import ThreadedSearches
from pixiu.config import SearchSettings
from pixiu.model.errors import Overloaded, PixiuError, Unavailable
from pixiu.ports.search import Asked, Found

pytestmark = pytest.mark.feature("B03")


async def test_so_many_run_so_many_wait_and_the_rest_is_refused(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    searches = ThreadedSearches(
        tmp_path, loop.call_soon_threadsafe, SearchSettings(threads=2, waiting_max=3, per_user_max=2)
    )
    gate = threading.Event()
    running = threading.Semaphore(0)

    class Slow:
        def find(self, asked: Asked) -> Found:
            running.release()
            gate.wait(10)
            if asked.user == 1:
                raise ZeroDivisionError
            return Found([])

    searches._readers = [Slow(), Slow()]  # type: ignore[list-item]
    answers: list[tuple[int, Found | PixiuError, int]] = []

    def ask(user: int) -> None:
        searches.find(
            Asked((), user, {}), lambda found: answers.append((user, found, threading.get_ident()))
        )  # fmt: skip

    for user in (1, 1, 1, 2, 3, 4, 5):
        ask(user)
    refused = [(user, str(found)) for user, found, _ in answers if isinstance(found, Overloaded)]
    assert refused == [
        (1, "2 searches of yours are under way; wait for one"),
        (5, "5 searches are under way; try again"),
    ]
    assert searches.under_way == 5
    gate.set()
    while len(answers) < 7:
        await asyncio.sleep(0.01)
    assert {ident for _, _, ident in answers} == {threading.get_ident()}
    failed = [found for user, found, _ in answers if user == 1 and not isinstance(found, Overloaded)]
    assert [type(each) for each in failed] == [PixiuError, PixiuError], "a failure is an answer too"
    assert sum(isinstance(found, Found) for _, found, _ in answers) == 3
    assert searches.under_way == 0
    ask(1)
    while len(answers) < 8:
        await asyncio.sleep(0.01)
    searches.close()
    ask(9)
    assert isinstance(answers[-1][1], Overloaded)


async def test_without_an_index_it_says_how_to_make_one_and_not_where(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("tantivy")
    loop = asyncio.get_running_loop()
    searches = ThreadedSearches(tmp_path, loop.call_soon_threadsafe, SearchSettings())

    async def ask() -> str:
        answer: asyncio.Future[Found | PixiuError] = loop.create_future()
        searches.find(Asked((((0, "x"),),), 1, {}), answer.set_result)
        found = await asyncio.wait_for(answer, 10)
        assert isinstance(found, Unavailable)
        return str(found)

    said = [await ask() for _ in range(3)]
    assert all("pixiu pipeline run archive search --once" in each for each in said)
    folder = index_folder(tmp_path)
    folder.mkdir(parents=True)
    (folder / "meta.json").write_text("garbage")
    said.append(await ask())
    assert "its log says why" in said[-1]
    assert not any(str(tmp_path) in each for each in said), "where a server has its data is not for its clients"
    problems = [record.__dict__["problem"] for record in caplog.records if record.message == "nothing can be searched"]
    assert len(problems) == 2 and all(str(tmp_path) in each for each in problems), "each is logged once, with its place"
    searches.close()
