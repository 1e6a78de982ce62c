"""QE: a follower loses nothing, notices everything, and cannot tell another story than its leader."""

import select
import socket
import threading

import pytest

from tests.servers import QueueProcess, wait_for
from tests.wire.bytes_by_hand import HELLO, PROMOTE, delay, list_topics, message, sub, u8, valid_list
from tests.wire.fixtures import Connect, StartServer, segments, wait_for_topic
from tests.wire.raw import Closed, Raw

BODY = b"x" * 100


class Proxy:
    """Stands between a follower and its leader, and spoils what passes on demand."""

    def __init__(self, leader: QueueProcess) -> None:
        self.leader = leader
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.flip_next = threading.Event()
        """Turn one bit over in the next message body from the leader."""
        self.flipped = threading.Event()
        self.silent: set[int] = set()
        """Numbers of connections that take everything and pass on nothing."""
        self.connections = 0
        self._is_closed = False
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        """End it all."""
        self._is_closed = True
        with socket.socket() as wake:
            wake.connect(self.listener.getsockname())
        for thread in self._threads:
            thread.join(5.0)
        self.listener.close()

    def silence(self) -> None:
        """From now on the connections that are open are half-open: nothing passes, nothing ends."""
        self.silent = set(range(1, self.connections + 1))

    def _accept(self) -> None:
        while True:
            near, _ = self.listener.accept()
            if self._is_closed:
                near.close()
                return
            self.connections += 1
            thread = threading.Thread(target=self._serve, args=(near, self.connections), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, near: socket.socket, number: int) -> None:
        with near:
            try:
                far = socket.create_connection((self.leader.host, self.leader.port))
            except OSError:
                return
            with far:
                try:
                    self._pass_on(near, far, number)
                except OSError:
                    return

    def _pass_on(self, near: socket.socket, far: socket.socket, number: int) -> None:
        while not self._is_closed:
            readable, _, _ = select.select([near, far], [], [], 0.05)
            for one in readable:
                piece = one.recv(65536)
                if not piece and number not in self.silent:
                    return
                if number in self.silent:
                    if not piece:
                        return
                    continue
                if one is far and self.flip_next.is_set() and BODY in piece:
                    spoilt = bytearray(piece)
                    spoilt[piece.index(BODY)] ^= 0x10
                    piece = bytes(spoilt)
                    self.flip_next.clear()
                    self.flipped.set()
                (far if one is near else near).sendall(piece)


def bodies(queue: QueueProcess, name: bytes, count: int) -> list[bytes]:
    """The first messages of a topic."""
    with Raw(queue.host, queue.port) as raw:
        return [item.body for item in raw.send(sub(name, 0, b"check", batch=255)).consume(count)]


def last_event_id(queue: QueueProcess) -> int:
    """How far a server is; -1 while it does not answer."""
    try:
        with Raw(queue.host, queue.port) as raw:
            return int(raw.extension(HELLO).json()["last_event_id"])
    except (Closed, ConnectionError):
        return -1


def start_proxied(start_server: StartServer) -> tuple[QueueProcess, Proxy, QueueProcess]:
    """A leader, a proxy, and a follower of the leader through the proxy."""
    quick = {
        "replication__heartbeat_ms": 100,
        "replication__reconnect_ms": 100,
        "replication__in_sync_timeout_ms": 500,
    }
    leader = start_server(**quick)
    proxy = Proxy(leader)
    return (
        leader,
        proxy,
        start_server("--follow", proxy.address, "--secret-file", str(leader.data / "node.key"), **quick),
    )


@pytest.mark.feature("QE2")
def test_qe2_a_record_spoilt_on_the_way_is_neither_applied_nor_skipped(
    start_server: StartServer, connect: Connect
) -> None:
    leader, proxy, follower = start_proxied(start_server)
    try:
        raw = connect(leader)
        raw.create(b"a")
        wait_for_topic(connect(follower), b"a")
        expected = []
        for turn in range(3):
            proxy.flipped.clear()
            proxy.flip_next.set()
            for number in range(10):
                expected.append(b"%d-%02d" % (turn, number) + BODY * 3)
                raw.pub(b"a", expected[-1])
            assert proxy.flipped.wait(5.0)
            assert bodies(follower, b"a", len(expected)) == expected
        assert connect(follower).extension(HELLO).json()["last_event_id"] == 31
    finally:
        proxy.close()


@pytest.mark.feature("QE3")
def test_qe3_a_half_open_connection_is_noticed_and_replaced(start_server: StartServer, connect: Connect) -> None:
    leader, proxy, follower = start_proxied(start_server)
    try:
        raw = connect(leader)
        raw.create(b"a")
        wait_for_topic(connect(follower), b"a")
        before = proxy.connections
        proxy.silence()
        raw.pub(b"a", b"said into the void")
        wait_for(lambda: proxy.connections > before, timeout_s=20.0, what="the follower to connect again")
        assert bodies(follower, b"a", 1) == [b"said into the void"]
    finally:
        proxy.close()


@pytest.mark.feature("QE5")
def test_qe5_an_old_leader_that_went_its_own_way_comes_back_to_the_new_story(
    start_server: StartServer, connect: Connect
) -> None:
    leader = start_server()
    follower = start_server(*leader.follow_args)
    raw = connect(leader)
    raw.create(b"a")
    raw.pub(b"a", b"shared")
    wait_for_topic(connect(follower), b"a")
    assert bodies(follower, b"a", 1) == [b"shared"]
    follower.kill()
    for number in range(5):
        raw.pub(b"a", b"only here %d" % number)
    raw.create(b"only-here")
    leader.kill()
    follower.start()
    other = connect(follower)
    other.show_key(follower).extension(PROMOTE, part=u8(1)).ok_with_id()
    other.pub(b"a", b"the new story", b"goes on")
    leader.args = [*follower.follow_args]
    leader.start()

    def has_caught_up() -> bool:
        """The old leader takes a snapshot and starts anew from it: for a moment nobody listens."""
        try:
            last = connect(leader).extension(HELLO).json()["last_event_id"]
        except (ConnectionError, Closed):
            return False
        return bool(last == other.extension(HELLO).json()["last_event_id"])

    wait_for(has_caught_up, what="the old leader to catch up")
    expected = [b"shared", b"the new story", b"goes on"]
    assert bodies(leader, b"a", 3) == bodies(follower, b"a", 3) == expected
    assert connect(leader).topics() == ["a"]
    other.pub(b"a", b"together")
    assert bodies(leader, b"a", 4) == [*expected, b"together"]


@pytest.mark.feature("QE5", "W20")
def test_qe5_a_delay_that_reached_a_follower_survives_its_kill_and_fires_once_after_promotion(
    start_server: StartServer, connect: Connect
) -> None:
    leader = start_server()
    follower = start_server(*leader.follow_args)
    raw = connect(leader)
    raw.create(b"a")
    last = raw.send(delay(b"a", 1500, message(b"late"), wants_id=True)).ok_with_id()
    other = connect(follower)

    def has_shown_it() -> bool:
        return bool(other.extension(HELLO).json()["commit_event_id"] == last)

    wait_for(has_shown_it, what="the follower to show what it has")
    follower.kill()
    leader.kill()
    follower.start()
    other = connect(follower)
    connect(follower).send(sub(b"a", 0, b"waiting")).quiet(0.05)
    other.show_key(follower).extension(PROMOTE, part=u8(1)).ok_with_id()
    subscriber = connect(follower).send(sub(b"a"))
    assert subscriber.push()[0].body == b"late"
    subscriber.send(b"\x00\x00").quiet(0.3)


@pytest.mark.feature("QE6")
def test_qe6_a_fresh_follower_started_at_an_event_has_everything_older_too(
    start_server: StartServer, connect: Connect
) -> None:
    leader = start_server()
    raw = connect(leader)
    for name in (b"old", b"older"):
        raw.create(name)
        raw.pub(name, b"one", b"two")
    raw.pub(b"old", b"three")
    follower = start_server(*leader.follow_args, "--event", "6")
    other = connect(follower)
    wait_for_topic(other, b"older")
    assert bodies(follower, b"old", 3) == [b"one", b"two", b"three"]
    assert bodies(follower, b"older", 2) == [b"one", b"two"]
    for asked in (list_topics(), valid_list()):
        theirs = other.send(asked).json()
        assert [entry["name"] for entry in theirs] == ["old", "older"]


@pytest.mark.feature("QE6", "X-Snapshot", "X53")
@pytest.mark.parametrize("fresh", [True, False])
def test_qe6_a_follower_too_far_behind_gets_everything_by_snapshot(
    start_server: StartServer, connect: Connect, fresh: bool
) -> None:
    leader = start_server(
        "--flush", "none",
        journal__segment_bytes=4096, journal__retention_bytes=8192, journal__checkpoint_bytes=4096,
        journal__checkpoint_interval_ms=50, topics__retention_interval_ms=50,
    )  # fmt: skip
    raw = connect(leader)
    raw.create(b"a")
    expected = [b"%03d" % number + BODY * 3 for number in range(60)]
    raw.pub(b"a", expected[0])
    follower = None
    if not fresh:
        follower = start_server(*leader.follow_args)
        wait_for_topic(connect(follower), b"a")
        assert bodies(follower, b"a", 1) == expected[:1]
        follower.stop()
    for body in expected[1:]:
        raw.pub(b"a", body)

    def has_shrunk() -> bool:
        expected.append(b"tick")
        raw.pub(b"a", b"tick")
        return int(segments(leader, "journal")[0].stem) > 20

    wait_for(has_shrunk, timeout_s=40.0, what="the oldest journal segments to go, once the follower is out of sync")
    if follower is None:
        follower = start_server(*leader.follow_args)
    else:
        follower.start()
    wait_for(
        lambda: last_event_id(follower) == len(expected) + 1,
        timeout_s=20.0,
        what="the follower to catch up",
    )
    assert bodies(follower, b"a", len(expected)) == expected
