"""Whole clusters of rooms under everything at once, seed after seed; see ``pixiu.testing.cluster_weather``."""

import pytest

from pixiu.testing.cluster_runs import explain, run_seeds

pytestmark = pytest.mark.sim


@pytest.mark.feature("X13", "X15", "X28", "X34", "X40", "X74")
def test_one_seed() -> None:
    summary = run_seeds(range(3, 4))
    assert summary.failed is None, explain(summary.failed.seed)
    assert summary.accepted > 10


@pytest.mark.long
@pytest.mark.feature("X13", "X15", "X28", "X34", "X40", "X71", "X73", "X74")
@pytest.mark.timeout(14_400)
def test_many_seeds() -> None:
    summary = run_seeds(range(1_000), jobs=2)
    assert summary.failed is None, explain(summary.failed.seed)
