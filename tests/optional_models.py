"""Models that need an optional package; a test that uses one is skipped where the package is not installed."""

import pytest


def river_class():
    return pytest.importorskip("imondrian.river").IsolationMondrianForest


def new_river_forest(**parameters):
    return river_class()(**parameters)
