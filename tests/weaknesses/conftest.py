"""Tests that weaknesses of the original (QA1 … QG) are not here.

Each carries its id as a `feature` mark. Many are shown by tests of the protocol, with the mark on those:
QA1 to QA3, QA5, QB8, QB9, QC2 to QC4, QC6, QD1 to QD3, QE1 and QE4 in tests/wire. QG is about clients and is
shown by tests/queue/test_client*.py.
"""

from tests.wire.fixtures import connect, follower, raw, server, start_server, topic

__all__ = ["connect", "follower", "raw", "server", "start_server", "topic"]
