"""What the gateway counts. Hot paths add to plain numbers; ``/metrics`` reads them."""

from collections.abc import Mapping

from pixiu.model.metric import Metric, Value

__all__ = ["METRICS", "MOST", "GatewayCounters"]

MOST = "connections_max"
"""The one number that a gateway takes with it when it goes."""

METRICS = (
    Metric("pixiu_gateway_connections", "gauge", "Connections of clients."),
    Metric("pixiu_gateway_connections_max", "gauge", "Connections that this gateway takes at a time."),
    Metric("pixiu_gateway_accepted_total", "counter", "Connections whose token was good."),
    Metric("pixiu_gateway_refused_total", "counter", "Connections that were turned away.", ("code",)),
    Metric("pixiu_gateway_closed_total", "counter", "Connections that the server closed.", ("reason",)),
    Metric("pixiu_gateway_requests_total", "counter", "Requests that were performed."),
    Metric("pixiu_gateway_refused_requests_total", "counter", "Requests that were busy or too frequent.", ("code",)),
    Metric("pixiu_gateway_bad_frames_total", "counter", "Frames that made no sense."),
    Metric("pixiu_gateway_pushes_total", "counter", "Messages written to clients."),
    Metric("pixiu_gateway_repeats_total", "counter", "Messages from the relay that had been written to the client."),
    Metric("pixiu_gateway_resends_total", "counter", "Messages written to a client again because no ack came."),
    Metric("pixiu_gateway_early_total", "counter", "Early copies of urgent messages written to clients."),
    Metric("pixiu_gateway_encodings_total", "counter", "Messages that were encoded; one serves many clients."),
    Metric("pixiu_gateway_events_total", "counter", "Live events written to clients."),
    Metric("pixiu_gateway_dropped_events_total", "counter", "Live events dropped, since the client was slow."),
    Metric("pixiu_gateway_lags_total", "counter", "Times a client was too slow for its messages."),
    Metric("pixiu_gateway_writes_total", "counter", "Writes to sockets."),
    Metric("pixiu_gateway_written_bytes_total", "counter", "Bytes written to sockets."),
)


class GatewayCounters:
    """Plain numbers, added to where things happen."""

    def __init__(self, connections_max: int) -> None:
        self.connections = 0
        self.connections_max = connections_max
        self.accepted = 0
        self.refused: dict[tuple[str, ...], int] = {}
        self.closed: dict[tuple[str, ...], int] = {}
        self.requests = 0
        self.refused_requests: dict[tuple[str, ...], int] = {}
        self.bad_frames = 0
        self.pushes = 0
        self.repeats = 0
        self.resends = 0
        self.early = 0
        self.encodings = 0
        self.events = 0
        self.dropped_events = 0
        self.lags = 0
        self.writes = 0
        self.written_bytes = 0

    def numbers(self) -> dict[str, object]:
        """All but the connections that are there, for another process to ``add``."""
        return {
            name: {label: number for (label,), number in value.items()} if isinstance(value, dict) else value
            for name, value in vars(self).items()
            if name != "connections"
        }

    def add(self, before: Mapping[str, object], after: Mapping[str, object]) -> None:
        """Count what another process has counted between these two ``numbers``. What makes no sense is left out."""
        for name, value in after.items():
            mine, old = vars(self).get(name), before.get(name)
            if isinstance(mine, dict) and isinstance(value, dict):
                for label, number in value.items():
                    if isinstance(number, int):
                        mine[label,] = mine.get((label,), 0) + number - _whole(old, label)
            elif isinstance(mine, int) and isinstance(value, int):
                setattr(self, name, mine + value - (old if isinstance(old, int) else 0))

    def snapshot(self) -> dict[str, Value]:
        """The present values, by metric name."""
        return {
            metric.name: getattr(self, metric.name.removeprefix("pixiu_gateway_").removesuffix("_total"))
            for metric in METRICS
        }


def _whole(numbers: object, label: str) -> int:
    found = numbers.get(label) if isinstance(numbers, dict) else None
    return found if isinstance(found, int) else 0


def count(by: dict[tuple[str, ...], int], label: str) -> None:
    """Add one under a label. Labels are ours, so there are few."""
    by[label,] = by.get((label,), 0) + 1
