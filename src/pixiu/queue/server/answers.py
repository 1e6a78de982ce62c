"""The answers that the server gives all the time, made once."""

from struct import Struct

from pixiu.machines.queue_wire.commands import CODE_ALIVE, CODE_DONE
from pixiu.machines.queue_wire.responses import encode_done
from pixiu.machines.queue_wire.streams import encode_ended

OK = encode_done()
ALIVE = CODE_ALIVE.to_bytes(10, "little")
ENDED = encode_ended()

_BATCH = Struct("<HBxI2x")


def batch_frame(count: int, items: bytes) -> bytes:
    """A push to a subscriber, of items as they are on disk: header and body leave in one write."""
    return _BATCH.pack(CODE_DONE, count, len(items)) + items
