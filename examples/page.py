"""Screenshots of the web page of the service, with pump readings that have a daily cycle and seven faults.

Needs playwright and Chromium. Writes service.png, and versions in dark mode and on a phone.

python examples/page.py docs/images
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from playwright.sync_api import Browser, sync_playwright

from imondrian.service.client import Client

PORT = 8770
ADDRESS = f"http://127.0.0.1:{PORT}"
FEATURES = ["temperature", "pressure", "vibration", "flow"]
FAULTS = [  # row, feature, change
    (420, 0, 14.0),
    (733, 2, 0.9),
    (1010, 1, -1.6),
    (1199, 3, -14.0),
    (1200, 3, -15.0),
    (1384, 0, -9.0),
    (1466, 2, 1.3),
]
VIEWS = {
    "service": {"viewport": {"width": 1400, "height": 1240}},
    "service-dark": {"viewport": {"width": 1400, "height": 1240}, "color_scheme": "dark"},
    "service-phone": {"viewport": {"width": 390, "height": 844}, "has_touch": True},
}


def main(folder: Path) -> None:
    """Start a service, create the detectors, and take the screenshots."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as data, running_service(data), sync_playwright() as playwright:
        create_detectors()
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, view in VIEWS.items():
            take_screenshot(browser, view, folder / f"{name}.png")
        browser.close()


@contextmanager
def running_service(data: str) -> Iterator[None]:
    """Return a context manager that runs a service."""
    command = [sys.executable, "-m", "imondrian", "serve", "--data", data, "--port", str(PORT)]
    process = subprocess.Popen(command)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def create_detectors() -> None:
    """Create two detectors, and let one learn the readings."""
    rng, steps = np.random.default_rng(3), np.arange(1500)
    day = np.sin(2 * np.pi * steps / 288)
    level, swing, noise = np.array([22, 4.2, 0.12, 31]), np.array([2, 0.2, 0.0, 3]), np.array([0.3, 0.05, 0.03, 0.5])
    readings = np.abs(level + day[:, None] * swing + rng.normal(size=(steps.size, 4)) * noise)
    for row, feature, change in FAULTS:
        readings[row, feature] += change
    with Client(ADDRESS, timeout=120.0) as client:
        client.create("pumps", FEATURES, threshold=0.005)
        client.create("web-latency", ["p50", "p99", "errors"], n_trees=30)
        client.process("pumps", readings.round(3))


def take_screenshot(browser: Browser, view: dict[str, object], path: Path) -> None:
    """Open the page, show the explanation of a point, and save a screenshot."""
    page = browser.new_page(**view)
    page.goto(f"{ADDRESS}/#pumps")
    page.get_by_role("button", name="Why point 733 is anomalous").click()
    page.wait_for_selector("#explanation .reasons")
    page.evaluate("scrollTo(0, 0)")
    page.screenshot(path=path)
    page.close()


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/images"))
