"""``Sessions`` of one node: in memory, with numbers and epochs that rise across restarts.

A session is a connection to this node, and ends with its process: there is nothing to keep. What must survive is that
a later login has a larger number. So each life of the node takes a number of its own from the store, once, when it
starts, and the upper half of every number and epoch is that life.
"""

from pixiu.backends.embedded.layout import META, number
from pixiu.backends.memory.sessions import MemorySessions
from pixiu.ports.keyvalue import KeyValue

__all__ = ["EmbeddedSessions", "next_life"]

LIFE = META + b"life"
_LIFE_SHIFT = 32


def next_life(store: KeyValue) -> int:
    """Begin another life of the node: above this number are its sessions and epochs, and none of a life before."""
    life = int.from_bytes(store.get(LIFE) or b"", "big") + 1
    store.write([(LIFE, number.pack(life))])
    store.flush()
    return life << _LIFE_SHIFT


class EmbeddedSessions(MemorySessions):
    """Sessions whose numbers start above those of every life before."""

    def __init__(self, store: KeyValue) -> None:
        super().__init__(numbers_after=next_life(store))
