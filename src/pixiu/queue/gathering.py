"""When a leader with followers writes its next batch.

A batch costs every replica a flush, a few writes and wake-ups, whatever is in it (decision 0053). Whoever waits for an
answer sends the next request when it has come, so requests arrive in bursts behind the answers of a batch: a batch that
leaves with the first of a burst leaves the rest to another one.

So requests are gathered as long as each turn of the loop brings more of them, ``GATHER_TURNS_MAX`` turns at most. It is
no timer: a lone request waits for one turn in which nothing comes.
"""

GATHER_TURNS_MAX = 8
"""Turns of the loop. More were no cheaper."""

UNCOMMITTED_BATCHES_MAX = 2
"""Batches that are written here and not yet on every in-sync follower.

With one, followers that are far away or slow would idle while the leader writes. With more than two, requests leave in
small batches. Who comes meanwhile waits half a round trip to the slowest at most, or a whole one with fewer others than
the batch before has.
"""


class Gathering:
    """What waits, turn by turn, and how large the last batch was."""

    __slots__ = ("_last_bytes", "_seen_bytes", "_turns")

    def __init__(self) -> None:
        self._last_bytes = 0
        self._seen_bytes = 0
        self._turns = 0

    def grows(self, waiting_bytes: int) -> bool:
        """Has more come since the last turn? Then the next may bring more still."""
        if waiting_bytes > self._seen_bytes and self._turns < GATHER_TURNS_MAX:
            self._seen_bytes = waiting_bytes
            self._turns += 1
            return True
        self._seen_bytes = self._turns = 0
        return False

    def may_leave(self, waiting_bytes: int, under_way: int) -> bool:
        """May this become a batch, behind so many that followers do not have yet?

        A second one has to be as large as the first: what is smaller leaves with those that the first one's answers
        will bring.
        """
        return under_way == 0 or (under_way < UNCOMMITTED_BATCHES_MAX and waiting_bytes >= self._last_bytes)

    def left(self, waiting_bytes: int) -> None:
        """This has become a batch."""
        self._last_bytes = waiting_bytes
        self._seen_bytes = self._turns = 0
