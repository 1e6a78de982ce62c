"""What the relay counts. Hot paths add to plain numbers; ``/metrics`` reads them."""

from pixiu.model.metric import HOP_SECONDS, Histogram, Metric, Value
from pixiu.model.session import LogoutCause

__all__ = ["METRICS", "RelayCounters"]

METRICS = (
    Metric("pixiu_relay_sessions", "gauge", "Sessions that are connected."),
    Metric("pixiu_relay_logins_total", "counter", "Sessions that were opened."),
    Metric("pixiu_relay_logouts_total", "counter", "Sessions that ended, by who or what ended them.", ("cause",)),
    Metric("pixiu_relay_pushes_total", "counter", "Messages handed to the newest session of a platform."),
    Metric("pixiu_relay_copies_total", "counter", "Messages handed to other sessions of a platform."),
    Metric("pixiu_relay_early_total", "counter", "Early copies of urgent messages that waited behind others."),
    Metric("pixiu_relay_resends_total", "counter", "Messages handed over again, since no ack came."),
    Metric("pixiu_relay_acks_total", "counter", "Acks that moved an inbox."),
    Metric("pixiu_relay_acked_total", "counter", "Entries that acks moved out of their inbox."),
    Metric("pixiu_relay_deliver_seconds", "histogram", "From an entry being applied to its push; some of each batch."),
    Metric("pixiu_relay_ack_seconds", "histogram", "From that push to its ack."),
    Metric("pixiu_relay_kicks_total", "counter", "Sessions that were closed by the server."),
    Metric("pixiu_relay_away_total", "counter", "Wakes of platforms without a session."),
    Metric("pixiu_relay_dead_total", "counter", "Entries that nobody was there for and that are not kept."),
    Metric("pixiu_relay_expired_total", "counter", "Entries that waited too long."),
    Metric("pixiu_relay_bodies_lost_total", "counter", "Entries without a body: someone must look."),
    Metric("pixiu_relay_reads_total", "counter", "Reads of inboxes."),
    Metric("pixiu_relay_resyncs_total", "counter", "Times this node found that it had been frozen."),
    Metric("pixiu_relay_epochs_total", "counter", "Times so many sessions ended at once that a new epoch began."),
)


class RelayCounters:
    """Plain numbers, added to where things happen."""

    def __init__(self) -> None:
        self.sessions = 0
        self.logins = 0
        self.logouts: dict[tuple[str, ...], int] = {}
        """By cause. Sessions of a gateway that died have none: nobody knows."""
        self.pushes = 0
        self.copies = 0
        self.early = 0
        self.resends = 0
        self.acks = 0
        self.acked = 0
        self.deliver_seconds = Histogram(HOP_SECONDS)
        self.ack_seconds = Histogram(HOP_SECONDS)
        self.kicks = 0
        self.away = 0
        self.dead = 0
        self.expired = 0
        self.bodies_lost = 0
        self.reads = 0
        self.resyncs = 0
        self.epochs = 0

    def ended(self, cause: LogoutCause) -> None:
        """A session is over."""
        self.logouts[(cause,)] = self.logouts.get((cause,), 0) + 1

    def snapshot(self) -> dict[str, Value]:
        """The present values, by metric name."""
        return {
            metric.name: getattr(self, metric.name.removeprefix("pixiu_relay_").removesuffix("_total"))
            for metric in METRICS
        }
