"""The relay: which sessions a user has, and the delivery of what waits for each of them."""

from pixiu.roles.relay.metrics import METRICS, RelayCounters
from pixiu.roles.relay.policy import read_numbers
from pixiu.roles.relay.relay import Away, Relay
from pixiu.roles.relay.sink import Sink

__all__ = ["METRICS", "Away", "Relay", "RelayCounters", "Sink", "read_numbers"]
