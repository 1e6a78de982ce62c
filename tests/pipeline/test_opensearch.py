"""The second sink: by the bulk API, against a server on loopback that answers as that API is documented."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from pixiu.model.errors import ConfigError, NotAllowed, PixiuError, TooLarge, Unauthenticated, Unavailable
from pixiu.pipeline.search.opensearch import TRIES_MAX, OpenSearchIndex
from pixiu.pipeline.search.steps import Erased, Said, State, Step, Taken
from tests.pipeline.bulk_server import BulkServer

pytestmark = pytest.mark.feature("B03")


@pytest.fixture
def server() -> Iterator[BulkServer]:
    with BulkServer() as made:
        yield made


def said(number: int, text: str = "明天 lunch", *, sender: int = 7, group: int = 0) -> Said:
    return Said(number << 22, number, sender, 0 if group else 8, group, text)


def opened(server: BulkServer, **options: Any) -> OpenSearchIndex:
    return OpenSearchIndex(server.url, pause=lambda seconds: None, **options)


def step(*messages: Said, taken: tuple[Taken, ...] = (), erased: tuple[Erased, ...] = (), through: int = 0) -> Step:
    reached = through or max([each.event_id for each in messages], default=0)
    return Step(iter(messages), taken, erased, State(reached, 0, 0))


def ids(server: BulkServer) -> list[int]:
    return sorted(int(key) >> 22 for key in server.documents if key != "pixiu-state")


def test_messages_go_there_once_and_recalls_take_them_away(server: BulkServer) -> None:
    index = opened(server)
    assert index.state() == State()
    assert index.apply(step(*(said(number) for number in range(1, 2501)))) == 2500
    assert ids(server) == list(range(1, 2501))
    assert len([each for each in server.requests if each[1].endswith("/_bulk")]) == 4, "in batches"
    document = server.documents[str(5 << 22)]
    assert document == {
        "message_id": 5 << 22, "event_id": 5, "at": 1_577_836_800_005, "sender": 7, "recipient": 8, "group": 0,
        "text": "明天 lunch", "terms": "明 明天 天 lunch",
    }  # fmt: skip
    recall = Taken(5 << 22, 2501, 7, 8, 0)
    index.apply(step(said(2502, group=3), taken=(recall,)))
    assert 5 not in ids(server) and 2502 in ids(server)
    index.close()

    again = opened(server)
    assert again.state() == State(2502, 0, 0), "it knows how far it is"
    assert server.mappings is not None and server.mappings["properties"]["terms"]["analyzer"] == "whitespace"
    before = dict(server.documents)
    again.apply(step(*(said(number) for number in range(1, 50)), taken=(recall,), through=2502))
    assert server.documents == before, "what comes again changes nothing, and a recalled one does not come back"
    again.close()


def test_what_is_erased_or_aged_goes(server: BulkServer) -> None:
    index = opened(server)
    index.apply(step(said(1), said(2), said(3, sender=9), said(4)))
    index.apply(step(erased=(Erased(7, 2),), through=5))
    assert ids(server) == [3, 4]
    index.apply(Step((), (), (), State(5, 0, 4 << 22)))
    assert ids(server) == [4]
    assert "pixiu-state" in server.documents
    index.close()


def test_a_server_that_is_busy_is_asked_again_but_not_for_ever(server: BulkServer) -> None:
    index = opened(server)
    server.refusals = [503, 429, 200]
    server.busy_items = 2
    index.apply(step(said(1), said(2), said(3)))
    assert ids(server) == [1, 2, 3]
    server.busy_items = 10_000
    with pytest.raises(Unavailable, match=f"refused 2 documents {TRIES_MAX} times"):
        index.apply(step(said(4), said(5)))
    server.busy_items = 0
    server.refusals = [503] * TRIES_MAX
    with pytest.raises(Unavailable, match="status 503"):
        index.apply(step(said(4), said(5)))
    with closing(opened(server)) as other:
        assert other.state().through == 3, "how far it is, is said last"
    index.apply(step(said(4), said(5)))
    assert ids(server) == [1, 2, 3, 4, 5]
    index.close()


def test_a_batch_that_is_too_large_is_halved_and_one_document_is_named(server: BulkServer) -> None:
    index = opened(server)
    server.bytes_max = 4000
    index.apply(step(*(said(number) for number in range(1, 41))))
    assert ids(server) == list(range(1, 41))
    with pytest.raises(TooLarge, match=str(50 << 22)):
        index.apply(step(said(50, "long " * 1000)))
    index.close()


def test_what_goes_wrong_is_said_in_one_line(server: BulkServer) -> None:
    for url in ("ftp://host", "nonsense", "http://"):
        with pytest.raises(ConfigError, match="--url must begin"):
            OpenSearchIndex(url)
    secret = server.url.replace("http://", "http://ann:s3cret%21@")
    for status, kind in ((401, Unauthenticated), (403, NotAllowed), (500, PixiuError)):
        server.refusals = [status]
        with pytest.raises(kind) as refused:
            OpenSearchIndex(secret, pause=lambda seconds: None)
        assert "s3cret" not in str(refused.value)
    assert server.requests[-1][2] == "Basic YW5uOnMzY3JldCE="
    index = opened(server)
    with pytest.raises(PixiuError, match="mapper_parsing_exception: will not have it"):
        index.apply(step(said(1), said(2, "poison")))
    server.documents["pixiu-state"] = {"someone": "else"}
    with pytest.raises(PixiuError, match="another name"):
        opened(server)
    index.close()


def test_nobody_there(server: BulkServer) -> None:
    pauses: list[float] = []
    with pytest.raises(Unavailable, match="did not answer 6 times"):
        OpenSearchIndex("http://127.0.0.1:9", pause=pauses.append)
    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0]
