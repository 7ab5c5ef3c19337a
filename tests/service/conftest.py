"""Fixtures: a registry in this process, a service in another process, and a stream of points."""

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="fastapi is not installed")

from imondrian.service.detectors.registry import Registry
from tests.service.serving import Service


@pytest.fixture
def registry(tmp_path):
    with_registry = Registry(tmp_path / "data")
    yield with_registry
    with_registry.close()


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with Service(tmp_path_factory.mktemp("data")) as running:
        yield running


@pytest.fixture
def stream():
    X = np.random.default_rng(0).normal(size=(600, 2))
    X[::50] *= 9.0
    return X
