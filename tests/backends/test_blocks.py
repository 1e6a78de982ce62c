"""Blocks of entries against a plain dict: whatever is written, in whatever order, is found in every way of asking."""

import random
from struct import Struct

import pytest

from pixiu.backends.embedded.blocks import BLOCK_MAX, Blocks, put_all
from pixiu.backends.embedded.overlay import Overlay, Rows
from pixiu.backends.memory.keyvalue import MemoryKeyValue

ENTRY = Struct(">QI")
PREFIXES = (b"aa", b"ab", b"b\xff")


@pytest.mark.parametrize("seed", range(30))
def test_blocks_hold_what_a_dict_holds(seed: int) -> None:
    rng = random.Random(seed)
    store = MemoryKeyValue()
    overlay = Overlay(store)
    blocks = Blocks(overlay, ENTRY)
    model: dict[bytes, dict[int, int]] = {prefix: {} for prefix in PREFIXES}
    for _ in range(60):
        prefix = rng.choice(PREFIXES)
        held = model[prefix]
        match rng.choice(("encode", "encode", "insert", "drop", "commit", "look", "look")):
            case "encode":
                first = max(held, default=0) + rng.randint(1, 5)
                new = [(first + 2 * number, rng.randint(0, 99)) for number in range(rng.choice((1, 3, 150)))]
                rows: Rows = []
                blocks.encode(prefix, new, rows)
                assert len(rows) == -(-len(new) // BLOCK_MAX)
                put_all(overlay, rows)
                held.update(new)
            case "insert":
                number = rng.randint(0, max(held, default=0) + 3)
                if number not in held:
                    held[number] = rng.randint(0, 99)
                    blocks.insert(prefix, (number, held[number]))
            case "drop":
                first, through = sorted(rng.choices(range(max(held, default=0) + 3), k=2))
                gone = [(number, held.pop(number)) for number in sorted(held) if first <= number <= through]
                assert blocks.drop(prefix, first, through) == gone
            case "commit":
                overlay.commit([])
            case _:
                look(rng, blocks, prefix, held)
    for prefix, held in model.items():
        blocks.drop(prefix, 0, 2**64 - 1)
        assert blocks.find(prefix, next(iter(held), 1)) is None
    overlay.commit([])
    assert list(store.dump()) == []


def look(rng: random.Random, blocks: Blocks, prefix: bytes, held: dict[int, int]) -> None:
    highest = max(held, default=0)
    wanted = rng.randint(0, highest + 2)
    assert blocks.find(prefix, wanted) == ((wanted, held[wanted]) if wanted in held else None)
    after = rng.randint(-1, highest + 2)
    through = rng.choice((rng.randint(-1, highest + 2), 2**64 - 1))
    between = [(number, held[number]) for number in sorted(held) if after < number <= through]
    assert list(blocks.forward(prefix, after, through)) == between
    assert list(blocks.backward(prefix, after, through)) == between[::-1]


def test_a_sweep_takes_whole_blocks_only() -> None:
    store = MemoryKeyValue()
    overlay = Overlay(store)
    blocks = Blocks(overlay, ENTRY)
    for first in (1, 11, 21):
        rows: Rows = []
        blocks.encode(b"p", [(number, 0) for number in range(first, first + 10)], rows)
        put_all(overlay, rows)
    overlay.commit([])
    blocks.sweep(b"p", 0, 15)
    assert [entry[0] for entry in blocks.forward(b"p", 0, 99)] == list(range(11, 31))
    blocks.sweep(b"p", 12, 30)
    assert [entry[0] for entry in blocks.forward(b"p", 0, 99)] == list(range(11, 21)), "it began before 12"
