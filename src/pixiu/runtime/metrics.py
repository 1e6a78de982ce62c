"""Prometheus metrics that cost the hot path one integer addition.

The parts of Pixiu count in plain ints and floats and hand out a snapshot when asked. Only a scrape turns the
snapshot into Prometheus' form::

    metrics = Metrics()
    metrics.add(
        [Metric("pixiu_queue_records_total", "counter", "Records appended to the journal.")],
        lambda: {"pixiu_queue_records_total": journal.record_count},
    )
    body, content_type = metrics.render()

A snapshot has a value for each metric declared with it: a number, a mapping of label values to numbers, or a
``Histogram``. One that names anything else, or leaves one out, is a bug and fails the scrape.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from pixiu.model.metric import Histogram, Metric, Snapshot, Value
from pixiu.model.version import __version__

__all__ = ["Metrics"]


@dataclass(frozen=True, slots=True)
class _Source(Collector):
    """Some declared metrics and where their values come from."""

    declared: tuple[Metric, ...]
    snapshot: Callable[[], Snapshot]

    def collect(self) -> Iterable[Family]:
        values = self.snapshot()
        names = {metric.name for metric in self.declared}
        if values.keys() != names:
            raise LookupError(f"declared and collected metrics differ: {sorted(values.keys() ^ names)}")
        return [_family(metric, values[metric.name]) for metric in self.declared]

    def describe(self) -> Iterable[Family]:
        """The names alone, so that adding a source takes no snapshot."""
        return [_family(metric, {}) for metric in self.declared]


class Metrics:
    """Everything that one process exports, rendered when Prometheus asks."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._declared: list[Metric] = []
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        build = Metric("pixiu_build_info", "gauge", "Always 1; the label says which version runs.", ("version",))
        self.add([build], lambda: {"pixiu_build_info": {(__version__,): 1}})

    @property
    def declared(self) -> Sequence[Metric]:
        """Every metric of Pixiu's own, in the order they were added."""
        return tuple(self._declared)

    def add(self, declared: Iterable[Metric], snapshot: Callable[[], Snapshot]) -> None:
        """Export some metrics, whose values ``snapshot`` gives at each scrape."""
        source = _Source(tuple(declared), snapshot)
        self._registry.register(source)
        self._declared.extend(source.declared)

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """The exposition and its content type, in the format that the ``Accept`` header asks for."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type


def _family(metric: Metric, value: Value) -> Family:
    """A metric with its present value, in Prometheus' form."""
    family: CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily
    match metric.kind:
        case "counter":
            family = CounterMetricFamily(metric.name, metric.help, labels=metric.labels)
        case "gauge":
            family = GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
        case "histogram":
            family = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
    samples = value.items() if isinstance(value, Mapping) else [((), value)]
    for labels, sample in samples:
        assert len(labels) == len(metric.labels), (metric.name, labels)
        if isinstance(family, HistogramMetricFamily):
            assert isinstance(sample, Histogram), metric.name
            family.add_metric(list(labels), buckets=sample.cumulative(), sum_value=sample.total)
        else:
            assert not isinstance(sample, Histogram), metric.name
            family.add_metric(list(labels), sample)
    return family
