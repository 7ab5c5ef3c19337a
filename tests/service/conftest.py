"""Fixtures: a registry in this process, a service in another process, a stream of points, and a browser."""

import os

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="fastapi is not installed")

from imondrian.service.detectors.registry import Registry
from imondrian.service.http.asgi import create_app
from tests.service.browser import open_browser, why_missing
from tests.service.serving import Service, ThreadServer


@pytest.fixture
def registry(tmp_path):
    with_registry = Registry(tmp_path / "data")
    yield with_registry
    with_registry.close()


@pytest.fixture(scope="module")
def _shared(tmp_path_factory):
    with_registry = Registry(tmp_path_factory.mktemp("data"))
    with ThreadServer(create_app(with_registry)) as running:
        yield with_registry, running
    with_registry.close()


@pytest.fixture
def shared_registry(_shared):
    """Return a registry for all tests of a file, without detectors: starting a server takes longer than most tests."""
    yield _shared[0]
    for handle in _shared[0].all():
        _shared[0].remove(handle.record.name)


@pytest.fixture
def shared_server(shared_registry, _shared):
    """Return the server of `shared_registry`."""
    return _shared[1]


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with Service(tmp_path_factory.mktemp("data")) as running:
        yield running


@pytest.fixture
def stream():
    X = np.random.default_rng(0).normal(size=(600, 2))
    X[::50] *= 9.0
    return X


@pytest.fixture(scope="module")
def browser():
    reason = why_missing()
    if reason is not None:
        (pytest.fail if os.environ.get("IMONDRIAN_CHROMIUM") == "required" else pytest.skip)(reason)
    from playwright.sync_api import sync_playwright  # noqa: PLC0415

    with sync_playwright() as playwright:
        opened = open_browser(playwright)
        yield opened
        opened.close()
