"""What the horn counts."""

from pixiu.model.metric import Metric

__all__ = ["METRICS", "HornCounters"]

METRICS = (
    Metric("pixiu_horn_sent_total", "counter", "Notifications that a provider took."),
    Metric("pixiu_horn_collapsed_total", "counter", "Notifications that a newer one of their conversation replaced."),
    Metric("pixiu_horn_failed_total", "counter", "Notifications that a provider did not take; they are tried again."),
    Metric("pixiu_horn_unreachable_total", "counter", "Notifications for platforms without a push token."),
    Metric("pixiu_horn_retired_total", "counter", "Push tokens that a provider knows no more."),
)


class HornCounters:
    """Plain numbers, added to where things happen."""

    def __init__(self) -> None:
        self.sent = 0
        self.collapsed = 0
        self.failed = 0
        self.unreachable = 0
        self.retired = 0

    def snapshot(self) -> dict[str, int]:
        """The present values, by metric name."""
        return {
            metric.name: getattr(self, metric.name.removeprefix("pixiu_horn_").removesuffix("_total"))
            for metric in METRICS
        }
