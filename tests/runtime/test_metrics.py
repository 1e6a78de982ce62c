"""Metrics: plain numbers in, Prometheus' text out."""

from collections.abc import Callable

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pixiu import __version__
from pixiu.model.metric import HOP_SECONDS, Histogram, Metric, Snapshot, quantile
from pixiu.runtime.metrics import Metrics

RECORDS = Metric("pixiu_test_records_total", "counter", "Records.")
DEPTH = Metric("pixiu_test_depth", "gauge", "Depth by topic.", ("topic",))
FLUSH = Metric("pixiu_test_flush_seconds", "histogram", "Flushes.")


def samples(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """What a scraper would read."""
    body, content_type = metrics.render()
    assert content_type.startswith("text/plain; version=")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


def test_numbers_are_read_when_they_are_scraped() -> None:
    count = 3
    flush = Histogram([0.1, 1.0])
    metrics = Metrics()
    metrics.add(
        [RECORDS, DEPTH, FLUSH],
        lambda: {
            "pixiu_test_records_total": count,
            "pixiu_test_depth": {("a",): 1.5, ('b"\n',): 2},
            "pixiu_test_flush_seconds": flush,
        },
    )
    count = 7
    for value in (0.05, 0.1, 0.5, 30.0):
        flush.observe(value)
    found = samples(metrics)
    assert found["pixiu_test_records_total", ()] == 7
    assert found["pixiu_test_depth", (("topic", "a"),)] == 1.5
    assert found["pixiu_test_depth", (("topic", 'b"\n'),)] == 2
    assert found["pixiu_test_flush_seconds_bucket", (("le", "0.1"),)] == 2
    assert found["pixiu_test_flush_seconds_bucket", (("le", "1.0"),)] == 3
    assert found["pixiu_test_flush_seconds_bucket", (("le", "+Inf"),)] == 4
    assert found["pixiu_test_flush_seconds_count", ()] == 4
    assert found["pixiu_test_flush_seconds_sum", ()] == pytest.approx(30.65)
    assert found["pixiu_build_info", (("version", __version__),)] == 1
    assert found["process_resident_memory_bytes", ()] > 0


def test_a_histogram_counts_many_alike_at_once() -> None:
    one_by_one, at_once = Histogram(), Histogram()
    for _ in range(5):
        one_by_one.observe(0.003)
    at_once.observe(0.003, count=5)
    assert one_by_one.counts == at_once.counts
    assert one_by_one.total == pytest.approx(at_once.total)


@pytest.mark.parametrize("snapshot", [dict, lambda: {"pixiu_test_records_total": 1, "pixiu_test_other": 2}])
def test_a_snapshot_must_have_what_was_declared(snapshot: Callable[[], Snapshot]) -> None:
    metrics = Metrics()
    metrics.add([RECORDS], snapshot)
    with pytest.raises(LookupError, match="pixiu_test_"):
        metrics.render()


def test_a_name_is_exported_once() -> None:
    metrics = Metrics()
    metrics.add([RECORDS], lambda: {"pixiu_test_records_total": 1})
    with pytest.raises(ValueError, match="pixiu_test_records"):
        metrics.add([RECORDS], lambda: {"pixiu_test_records_total": 1})


def test_names_follow_the_convention() -> None:
    with pytest.raises(AssertionError):
        Metric("records_total", "counter", "No prefix.")
    with pytest.raises(AssertionError):
        Metric("pixiu_records", "counter", "A counter ends in _total.")


def test_openmetrics_for_whoever_asks() -> None:
    body, content_type = Metrics().render("application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")


def test_quantiles_lie_within_their_bucket() -> None:
    bounds = (1.0, 2.0, 4.0)
    assert quantile(bounds, [0, 0, 0, 0], 0.5) is None
    assert quantile(bounds, [10, 0, 0, 0], 0.5) == 0.5
    assert quantile(bounds, [10, 0, 10, 0], 0.75) == 3.0
    assert quantile(bounds, [10, 0, 10, 0], 1.0) == 4.0
    assert quantile(bounds, [0, 0, 0, 3], 0.99) == 4.0  # beyond the last bound: at least that
    assert list(HOP_SECONDS) == sorted(set(HOP_SECONDS))
