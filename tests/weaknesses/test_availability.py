"""QA: no client, setting or missing file stops the server."""

import resource
import shutil
import signal
import time
from pathlib import Path

import pytest

from tests.servers import QueueProcess, wait_for
from tests.wire.bytes_by_hand import ACK_GO_ON, alive, create, delay, message, now_ms, pub, sub
from tests.wire.fixtures import Connect, StartServer, environment
from tests.wire.raw import Closed, Raw


def cpu_seconds(queue: QueueProcess) -> float:
    """Processor time that the process has used."""
    fields = Path(f"/proc/{queue.pid}/stat").read_text().rsplit(")", 1)[1].split()
    ticks_per_second = 100
    return (int(fields[11]) + int(fields[12])) / ticks_per_second


@pytest.mark.feature("QA4")
def test_qa4_a_log_sample_of_zero_harms_nobody(start_server: StartServer, connect: Connect) -> None:
    queue = start_server("--flush", "none", log__sample=0)
    raw = connect(queue)
    raw.create(b"a")
    subscriber = connect(queue).send(sub(b"a"))
    raw.pub(b"a", b"one")
    assert subscriber.push()[0].body == b"one"
    subscriber.send(ACK_GO_ON)
    raw.delete(b"a")
    subscriber.sub_end()
    assert queue.is_running


@pytest.mark.feature("QA4")
def test_qa4_files_that_vanish_under_a_running_server_do_not_bring_it_down(
    start_server: StartServer, connect: Connect
) -> None:
    queue = start_server("--flush", "none", queue__open_topics_max=8)
    raw = connect(queue)
    for number in range(20):
        raw.create(b"t%d" % number)
        raw.pub(b"t%d" % number, b"one")
    shutil.rmtree(queue.data / "queue" / "topics")
    for number in range(20):
        for asked in (pub(b"t%d" % number, message(b"two")), sub(b"t%d" % number, 0, b"w")):
            one = connect(queue).send(asked)
            try:
                code, _ = one.answer(2.0)
                assert code in (200, 400)
            except (Closed, TimeoutError):  # A subscription may wait; what matters is the rest.
                assert asked[0] == 0
            one.close()
    raw.send(alive()).alive()
    raw.create(b"new")
    raw.pub(b"new", b"works")
    assert connect(queue).send(sub(b"new")).push()[0].body == b"works"
    assert queue.is_running


@pytest.mark.feature("QA4", "QB3")
def test_qa4_a_missing_topic_folder_is_made_again_at_the_start(start_server: StartServer, connect: Connect) -> None:
    queue = start_server()
    raw = connect(queue)
    raw.create(b"empty")
    queue.kill()
    for path in sorted((queue.data / "queue" / "topics").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    queue.start()
    raw = connect(queue)
    raw.pub(b"empty", b"first")
    assert connect(queue).send(sub(b"empty")).push()[0].body == b"first"


@pytest.mark.feature("QA6")
def test_qa6_a_delay_that_cannot_fire_is_tried_again_calmly(start_server: StartServer, connect: Connect) -> None:
    queue = start_server()
    raw = connect(queue)
    raw.create(b"a")
    due = now_ms() + 1000
    raw.send(delay(b"a", 1000, message(b"late"))).ok()
    queue.stop()
    queue.env |= environment(journal__free_bytes_min=2**60)
    queue.start()
    wait_for(lambda: now_ms() > due, what="the message to fall due")
    before, logged = cpu_seconds(queue), len(queue.stderr)
    connect(queue).quiet(1.0)
    assert cpu_seconds(queue) - before < 0.3, "it spins"
    assert len(queue.stderr) - logged < 20_000, "it floods its log"
    queue.env.pop("PIXIU_JOURNAL__FREE_BYTES_MIN")
    queue.restart()
    assert connect(queue).send(sub(b"a")).push()[0].body == b"late"


@pytest.mark.feature("QA7")
def test_qa7_connections_above_the_limit_are_turned_away_and_the_others_go_on(
    start_server: StartServer, connect: Connect
) -> None:
    queue = start_server("--flush", "none", queue__connections_max=10)
    open_ones = [connect(queue) for _ in range(10)]
    for raw in open_ones:
        raw.send(alive()).alive()
    for _ in range(5):
        extra = connect(queue)
        try:
            code, rest = extra.answer(2.0)
            assert code == 400
            extra.read_exact(int.from_bytes(rest[:2], "little"))
            extra.closed()
        except Closed:
            pass
    open_ones[0].create(b"a")
    for raw in open_ones:
        raw.pub(b"a", b"still served")
    open_ones.pop().close()

    def is_served() -> bool:
        with Raw(queue.host, queue.port) as again:
            try:
                again.send(alive()).alive(1.0)
            except (Closed, ConnectionError, AssertionError):
                return False
            return True

    wait_for(is_served, what="the place to be free")


@pytest.mark.feature("QA7")
def test_qa7_at_the_limit_of_descriptors_it_keeps_serving(start_server: StartServer, connect: Connect) -> None:
    queue = start_server("--flush", "none")
    raw = connect(queue)
    raw.create(b"a")
    raw.pub(b"a", b"before")
    used = len(list(Path(f"/proc/{queue.pid}/fd").iterdir()))
    hard = resource.prlimit(queue.pid, resource.RLIMIT_NOFILE)[1]
    resource.prlimit(queue.pid, resource.RLIMIT_NOFILE, (used + 5, hard))
    crowd = [connect(queue) for _ in range(20)]
    before = cpu_seconds(queue)
    for _ in range(50):
        raw.pub(b"a", b"during")
    raw.quiet(0.5)
    assert cpu_seconds(queue) - before < 0.45, "it spins on accept"
    for one in crowd:
        one.close()
    resource.prlimit(queue.pid, resource.RLIMIT_NOFILE, (hard, hard))

    def is_served() -> bool:
        with Raw(queue.host, queue.port) as again:
            try:
                again.send(alive()).alive(1.0)
            except (Closed, TimeoutError, ConnectionError):
                return False
            return True

    wait_for(is_served, what="new connections to be served again")
    raw.pub(b"a", b"after")


@pytest.mark.feature("QA7")
def test_qa7_the_port_is_on_loopback_and_an_idle_connection_costs_no_log_lines(
    server: QueueProcess, connect: Connect
) -> None:
    listening = [line.split()[1] for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    assert f"0100007F:{server.port:04X}" in listening
    assert f"00000000:{server.port:04X}" not in listening
    idle = [connect(server) for _ in range(50)]
    logged = len(server.stderr)
    idle[0].quiet(0.5)
    assert len(server.stderr) - logged < 1000


@pytest.mark.feature("QA8")
def test_qa8_a_signal_ends_it_in_order(start_server: StartServer, connect: Connect) -> None:
    queue = start_server("--flush", "none")
    raw = connect(queue)
    raw.create(b"a")
    idle = connect(queue).send(sub(b"a", 0, b"idle"))
    withholding = connect(queue).send(sub(b"a", 0, b"withholding", ack_timeout_ns=10**15))
    raw.send(pub(b"a", message(b"m")) * 200)
    for _ in range(200):
        raw.ok()
    idle.push()
    withholding.push()
    started = time.monotonic()
    assert queue.stop() == 0
    assert time.monotonic() - started < 5.0
    for one in (idle, withholding, raw):
        one.closed()
    queue.start()
    assert len(connect(queue).send(sub(b"a", batch=255)).consume(200)) == 200


@pytest.mark.feature("QA8")
def test_qa8_a_second_signal_and_an_interrupt_end_it_as_well(start_server: StartServer, connect: Connect) -> None:
    queue = start_server()
    connect(queue).create(b"a")
    queue.signal(signal.SIGINT)
    assert queue.wait() == 0
    queue.start()
    assert connect(queue).topics() == ["a"]
    queue.signal(signal.SIGTERM)
    if queue.is_running:
        queue.signal(signal.SIGTERM)
    queue.wait()
    queue.start()
    assert connect(queue).topics() == ["a"]


@pytest.mark.feature("QA8")
def test_qa8_a_publish_under_way_when_the_signal_comes_is_answered_or_not_but_never_wrongly(
    start_server: StartServer, connect: Connect
) -> None:
    queue = start_server()
    raw = connect(queue)
    raw.create(b"a")
    raw.send(b"".join(pub(b"a", message(b"m%04d" % number)) for number in range(2000)))
    queue.signal(signal.SIGTERM)
    answered = 0
    try:
        while True:
            raw.ok(5.0)
            answered += 1
    except (Closed, TimeoutError):
        pass
    assert queue.wait() == 0
    queue.start()
    raw = connect(queue).send(create(b"marker") + pub(b"a", message(b"end")))
    raw.ok()
    raw.ok()
    bodies: list[bytes] = []
    subscriber = connect(queue).send(sub(b"a", batch=255))
    while bodies[-1:] != [b"end"]:
        bodies += [item.body for item in subscriber.push()]
        subscriber.send(ACK_GO_ON)
    assert bodies[:-1] == [b"m%04d" % number for number in range(len(bodies) - 1)]
    assert len(bodies) - 1 >= answered
