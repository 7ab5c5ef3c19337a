"""The benchmark of expected values, on a small table: hidden values are predicted better than by the median."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
from numba import config

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
pytestmark = [
    pytest.mark.compiled,
    pytest.mark.skipif(bool(config.DISABLE_JIT), reason="forests of a hundred trees need compiled kernels"),
]


@pytest.fixture(scope="module")
def benchmark():
    sys.path.insert(0, str(BENCHMARKS))
    try:
        spec = importlib.util.spec_from_file_location("expected_values_benchmark", BENCHMARKS / "expected_values.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        yield module
    finally:
        sys.path.remove(str(BENCHMARKS))


@pytest.fixture(scope="module")
def hidden(benchmark):
    rng = np.random.default_rng(0)
    points = rng.normal(size=(1_000, 2)) @ rng.normal(size=(2, 6)) + 0.1 * rng.normal(size=(1_000, 6))
    points /= points.std(axis=0)
    return benchmark.HiddenValues("correlated", points[200:], points[:200], [0, 3])


def test_hidden_values_are_predicted_from_the_other_features(benchmark, hidden):
    """The errors of 400 values have standard errors below 0.02; the bounds are more than five of these away."""
    ours, covered, width = benchmark.errors(benchmark.ours, hidden)
    nearest, _, _ = benchmark.errors(benchmark.nearest_rows, hidden)
    median, _, _ = benchmark.errors(benchmark.median, hidden)
    assert nearest < ours < 0.5 * median
    assert ours < 2.0 * nearest
    assert 0.8 < covered <= 1.0
    assert width < 3.0


def test_every_method_hides_the_feature_that_it_predicts(benchmark, hidden):
    others = hidden._replace(rows=hidden.rows.copy())
    others.rows[:, 0] = 99.0
    for method in (benchmark.ours, benchmark.nearest_rows, benchmark.median):
        np.testing.assert_array_equal(method(hidden, 0).values, method(others, 0).values)


def test_krcf_predicts_the_hidden_feature(benchmark, hidden):
    pytest.importorskip("krcf")
    few = hidden._replace(rows=hidden.rows[:20])
    error, _, _ = benchmark.errors(benchmark.krcf, few)
    median, _, _ = benchmark.errors(benchmark.median, few)
    assert error < median
