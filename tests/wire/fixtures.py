"""Servers and connections that the wire tests share.

Starting a process costs half a second, so tests share one server where they can. The shared server is quiet:
no test leaves a delayed message or a topic with a lifetime on it, so event ids move only when the test
that runs moves them. Tests that need their own settings, files or kills start their own with `start_server`.
"""

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.servers import QueueProcess, wait_for
from tests.wire.bytes_by_hand import create
from tests.wire.raw import Raw

Connect = Callable[..., Raw]
StartServer = Callable[..., QueueProcess]
Unique = Callable[[], bytes]

SMSS_FOLLOWERS = {"PIXIU_REPLICATION__SMSS_FOLLOWERS": "true"}
"""Replica without a key, as smss's own followers ask for it."""

_numbers = itertools.count(1)


def unique_name() -> bytes:
    """A topic name no other test of this run has."""
    return b"topic-%d" % next(_numbers)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueueProcess]:
    """The shared, quiet leader."""
    with QueueProcess(tmp_path_factory.mktemp("shared") / "data", env=SMSS_FOLLOWERS) as queue:
        yield queue


@pytest.fixture(scope="session")
def follower(server: QueueProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueueProcess]:
    """A follower of the shared leader."""
    data = tmp_path_factory.mktemp("follower") / "data"
    with QueueProcess(data, args=[*server.follow_args]) as queue:
        yield queue


@pytest.fixture
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """Open connections (to the shared server unless told otherwise) that end with the test."""
    with ExitStack() as stack:

        def open_one(queue: QueueProcess | None = None, *, timeout_s: float = 10.0) -> Raw:
            if queue is None:
                shared: QueueProcess = request.getfixturevalue("server")
                queue = shared
            return stack.enter_context(Raw(queue.host, queue.port, timeout_s))

        yield open_one


@pytest.fixture
def raw(server: QueueProcess, connect: Connect) -> Raw:
    """One connection to the shared server."""
    return connect(server)


@pytest.fixture
def topic(raw: Raw) -> bytes:
    """A new topic on the shared server."""
    return raw.create(unique_name())


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[StartServer]:
    """Start servers of the test's own; settings are environment variables without their PIXIU_ prefix."""
    with ExitStack() as stack:
        names = itertools.count()

        def start(*args: str, data: Path | None = None, **settings: object) -> QueueProcess:
            queue = QueueProcess(
                data or tmp_path / f"server-{next(names)}" / "data",
                args=args,
                env=SMSS_FOLLOWERS | environment(**settings),
            )
            return stack.enter_context(queue)

        yield start


def environment(**settings: object) -> dict[str, str]:
    """``queue__keep_alive_ms=300`` as the variables that the server reads."""
    return {f"PIXIU_{name.upper()}": str(value) for name, value in settings.items()}


def next_event_id(raw: Raw) -> int:
    """The next event id; to use it up is the only way to ask in the old protocol."""
    name = unique_name()
    raw.send(create(name)).ok()
    return int(raw.info(name)["createEventId"])


def wait_for_topic(raw: Raw, name: bytes) -> None:
    """Wait until a follower knows the topic."""
    wait_for(lambda: name.decode() in raw.topics(), what=f"topic {name!r} on the follower")


def segments(queue: QueueProcess, folder: str = "topics") -> list[Path]:
    """The log files below a folder of the queue, oldest first."""
    return sorted((queue.data / "queue" / folder).rglob("*.log"))


def open_sockets(queue: QueueProcess) -> int:
    """How many sockets the server process holds open."""
    return sum(_target(link).startswith("socket:") for link in Path(f"/proc/{queue.pid}/fd").iterdir())


def open_files(queue: QueueProcess) -> list[str]:
    """The regular files that the server process holds open."""
    targets = [_target(link) for link in Path(f"/proc/{queue.pid}/fd").iterdir()]
    return [target for target in targets if target.startswith("/") and not target.startswith("/dev/")]


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except FileNotFoundError:  # Closed between listing and reading.
        return ""


def memory_kib(queue: QueueProcess, field: str) -> int:
    """A field of /proc/PID/status, e.g. VmSize or VmRSS."""
    for line in Path(f"/proc/{queue.pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1])
    raise AssertionError(f"no {field}")


def bytes_read(queue: QueueProcess) -> int:
    """Bytes that the process has asked the system for, from files and sockets."""
    for line in Path(f"/proc/{queue.pid}/io").read_text().splitlines():
        if line.startswith("rchar:"):
            return int(line.split()[1])
    raise AssertionError("no rchar")
