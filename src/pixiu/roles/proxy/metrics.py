"""What the proxy counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pixiu.model.metric import Metric, Snapshot

if TYPE_CHECKING:
    from pixiu.roles.proxy.service import Proxy

__all__ = ["METRICS", "snapshot"]

METRICS = (
    Metric("pixiu_proxy_actions_total", "counter", "Actions asked for, by name.", ("action",)),
    Metric("pixiu_proxy_refused_total", "counter", "Actions answered with an error, by its code.", ("code",)),
    Metric("pixiu_proxy_accepted_total", "counter", "Sends and other changes that are in the log."),
    Metric("pixiu_proxy_repeats_total", "counter", "Sends that were in the log already, and got the first answer."),
    Metric("pixiu_proxy_in_flight", "gauge", "Records on their way into the log."),
    Metric("pixiu_proxy_unapplied", "gauge", "Actions that are in the log, and wait to be applied."),
    Metric("pixiu_proxy_accept_seconds", "histogram", "From the request to the flushed record; a sample."),
    Metric("pixiu_proxy_group_reads_total", "counter", "Pages of groups that the recent cache did not have."),
)


def snapshot(proxy: Proxy) -> Snapshot:
    """The present values, by metric name."""
    return {
        "pixiu_proxy_actions_total": {(name,): count for name, count in proxy.actions.items()},
        "pixiu_proxy_refused_total": {(code,): count for code, count in proxy.refused.items()},
        "pixiu_proxy_accepted_total": proxy.appends.accepted,
        "pixiu_proxy_repeats_total": proxy.appends.repeats,
        "pixiu_proxy_in_flight": proxy.appends.in_flight,
        "pixiu_proxy_unapplied": proxy.unapplied,
        "pixiu_proxy_accept_seconds": proxy.appends.accept_seconds,
        "pixiu_proxy_group_reads_total": proxy.context.counts.group_reads,
    }
