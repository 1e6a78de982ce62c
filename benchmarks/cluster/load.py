"""A publisher that is cheaper than what it measures: ``python -m benchmarks.cluster.load``.

It speaks the datagrams of links (``pixiu.machines.links``) to given proxies, as many messages in each as fit or as it
is told, and keeps a window of them on their way at each proxy: what a proxy has confirmed makes room for more. So
nobody is flooded. Answers are counted and not checked, which a real publisher would do.

It says a line of JSON when the counted time begins, and one when it is over.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import socket
import struct
import time
from itertools import count

from pixiu.machines.links.codec import TALK_HEAD
from pixiu.machines.links.packing import CONTENT_BYTES_MAX
from pixiu.machines.links.sealing import HEAD_BYTES, Sealer
from pixiu.machines.rooms import room_number
from pixiu.machines.scheduling import Priority
from pixiu.model.ids import NODE_BITS, SEQUENCE_BITS, SNOWFLAKE_EPOCH_MS
from pixiu.node.processes.cluster_end import secrets_of

__all__ = ["body_of", "room_names"]

TALK, TAKEN, DECLINED = 3, 4, 6
STALLED_MS = 500
"""After this without a word what is on its way is taken for lost: datagrams may be."""
BURST_MS = 20
_HEAD = struct.Struct(">BH")
_COUNT = struct.Struct(">I")
_ID_AT = 12  # in a talk: behind the count version and the room


def room_names(prefix: str, rooms: int) -> list[str]:
    """The rooms of a load."""
    return [f"{prefix}-{number}" for number in range(rooms)]


def body_of(room: str, size: int) -> bytes:
    """What is said, as sessions get it: a push of so many bytes."""
    head = f'{{"push":"say","room":"{room}","text":"'
    return f'{head}{"x" * max(size - len(head) - 2, 0)}"}}'.encode()


class _Proxy:
    def __init__(self, words: str, contents: list[bytearray]) -> None:
        address, _, boot = words.partition("/")
        host, _, port = address.rpartition(":")
        self.address = (host, int(port))
        self.boot = int(boot, 16)
        self.under_way = 0
        self.contents = contents
        self.next = 0


class Load:
    """The publisher."""

    def __init__(self, options: argparse.Namespace) -> None:
        boot = (time.time_ns() // 1_000_000 - SNOWFLAKE_EPOCH_MS) << (NODE_BITS + SEQUENCE_BITS) | os.getpid() % 4096
        self._ids = count(boot)
        self._sealer = Sealer(secrets_of("", "127.0.0.1"), boot)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * 2**20)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.setblocking(False)
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self.taken = self.declined = self.sent = self.lost = 0
        names = room_names(options.prefix, options.rooms)
        talks = [
            TALK_HEAD.pack(0, room_number(name), 0, boot, 0, Priority.CHAT, 0) + body_of(name, options.bytes)
            for name in names
        ]
        size = max(map(len, talks)) + _HEAD.size
        self._size = size
        if min(map(len, talks)) + _HEAD.size < size:
            raise SystemExit("the rooms' names make messages of different sizes")
        self._per_datagram = min(options.per_datagram or 10_000, CONTENT_BYTES_MAX // size)
        ways = len(options.proxies)  # a room keeps its proxy, or else what is said in it may be overtaken
        self._proxies = [
            _Proxy(words, _contents(talks[place::ways] or talks, self._per_datagram))
            for place, words in enumerate(options.proxies)
        ]
        self._by_boot = {proxy.boot: proxy for proxy in self._proxies}
        self._window = options.window

    def run(self, seconds: float, at_seconds: int, rate: float = 0.0) -> None:
        """Say things for so long: as much as is taken, or so many a second over all proxies."""
        if rate:
            self._run_paced(seconds, at_seconds, rate)
            return
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for proxy in self._proxies:
                while proxy.under_way < self._window:
                    self._send(proxy, at_seconds)
            self._hear()

    def _run_paced(self, seconds: float, at_seconds: int, rate: float) -> None:
        """In bursts, as a publisher sends that gathers what it has to say. What does not fit the window is left out."""
        began, sent = time.monotonic(), self.sent
        for burst in range(1, int(seconds * 1000 / BURST_MS) + 1):
            due = sent + rate * burst * BURST_MS / 1000
            while self.sent < due:
                before = self.sent
                for proxy in self._proxies:
                    if proxy.under_way < self._window:
                        self._send(proxy, at_seconds)
                if self.sent == before:
                    break
            while (left := began + burst * BURST_MS / 1000 - time.monotonic()) > 0:
                if self._poll.poll(left * 1000):
                    self._hear()

    def _send(self, proxy: _Proxy, at_seconds: int) -> None:
        content = proxy.contents[proxy.next]
        proxy.next = (proxy.next + 1) % len(proxy.contents)
        ids, size = self._ids, self._size
        for at in range(_HEAD.size + _ID_AT, len(content), size):
            content[at : at + 8] = next(ids).to_bytes(8, "big")
        self._socket.sendto(self._sealer.seal(proxy.boot, bytes(content), at_seconds), proxy.address)
        messages = len(content) // size
        proxy.under_way += messages
        self.sent += messages

    def _hear(self) -> None:
        """Wait for an answer, and take all that are there."""
        receive = self._socket.recv
        if not self._poll.poll(STALLED_MS):
            for proxy in self._proxies:
                self.lost += proxy.under_way
                proxy.under_way = 0
            return
        while True:
            try:
                data = receive(2048)
            except BlockingIOError:
                return
            self._count(data)

    def _count(self, data: bytes) -> None:
        proxy = self._by_boot.get(int.from_bytes(data[4:12], "big"))
        at = HEAD_BYTES
        while proxy is not None and at < len(data):
            kind, size = _HEAD.unpack_from(data, at)
            at += _HEAD.size
            if kind == TAKEN:
                ids = _COUNT.unpack_from(data, at)[0]
                self.taken += ids
                proxy.under_way = max(proxy.under_way - ids, 0)
            elif kind == DECLINED:
                self.declined += 1
                proxy.under_way = max(proxy.under_way - 1, 0)
            at += size


def _contents(talks: list[bytes], per_datagram: int) -> list[bytearray]:
    """Datagrams that together say something in every room equally often."""
    found = []
    for begin in range(0, len(talks) * per_datagram, per_datagram):
        chosen = [talks[(begin + number) % len(talks)] for number in range(per_datagram)]
        found.append(bytearray(b"".join(_HEAD.pack(TALK, len(talk)) + talk for talk in chosen)))
    return found


def main() -> None:
    """Run a load, say what came of it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster.load", description=__doc__)
    parser.add_argument("proxies", nargs="+", metavar="HOST:PORT/BOOT")
    parser.add_argument("--prefix", default="load")
    parser.add_argument("--rooms", type=int, default=64)
    parser.add_argument("--bytes", type=int, default=100)
    parser.add_argument("--per-datagram", type=int, default=0)
    parser.add_argument("--window", type=int, default=2048)
    parser.add_argument("--rate", type=float, default=0.0)
    parser.add_argument("--warmup", type=float, default=0.5)
    parser.add_argument("--seconds", type=float, default=2.0)
    options = parser.parse_args()
    load = Load(options)
    now = int(time.time())
    load.run(options.warmup, now, options.rate)
    print(json.dumps({"begins": True}), flush=True)
    taken, declined, lost, cpu, began = load.taken, load.declined, load.lost, time.process_time(), time.monotonic()
    load.run(options.seconds, now, options.rate)
    result = {
        "taken": load.taken - taken, "declined": load.declined - declined, "lost": load.lost - lost,
        "sent_all": load.sent,
        "seconds": time.monotonic() - began, "cpu_seconds": time.process_time() - cpu,
    }  # fmt: skip
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
