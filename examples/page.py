"""Screenshots of the web page of the service: pump readings with a daily cycle and seven faults, orders, and a metric.

Needs playwright and Chromium. Writes service.png, versions in dark mode and on a phone, service-categories.png and
service-series.png.

python examples/page.py docs/images
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

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
COUNTRIES = {"FR": 0.4, "DE": 0.25, "IT": 0.15, "ES": 0.08, "NL": 0.05, "BE": 0.04, "AT": 0.03}
CHANNELS = {"web": 0.6, "shop": 0.3, "phone": 0.1}


class View(NamedTuple):
    """A screenshot of a detector with the explanation of one of its points."""

    options: dict[str, Any]  # of the browser page: size of the window, colour scheme, touch screen
    detector: str = "pumps"
    point: str = "733"


WIDE = {"viewport": {"width": 1400, "height": 1240}}
VIEWS = {
    "service": View(WIDE),
    "service-dark": View({**WIDE, "color_scheme": "dark"}),
    "service-phone": View({"viewport": {"width": 390, "height": 844}, "has_touch": True}),
    "service-categories": View(WIDE, "orders", "1,203"),
    "service-series": View(WIDE, "requests", "4,770"),
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
    """Run a service until the context ends."""
    command = [sys.executable, "-m", "imondrian", "serve", "--data", data, "--port", str(PORT)]
    process = subprocess.Popen(command)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def create_detectors() -> None:
    """Create four detectors, and let three of them learn readings, orders and requests."""
    with Client(ADDRESS, timeout=120.0) as client:
        client.create("pumps", FEATURES)
        client.create("web-latency", ["p50", "p99", "errors"], n_trees=30)
        client.create("orders", ["amount", "items", "country", "channel"], categorical=["country", "channel"])
        client.process("pumps", readings())
        client.process("orders", orders())
        client.create("requests", ["requests"], preset="series")
        client.process("requests", requests())


def readings() -> Any:
    """Return the readings of the pumps."""
    rng, steps = np.random.default_rng(3), np.arange(1500)
    day = np.sin(2 * np.pi * steps / 288)
    level, swing, noise = np.array([22, 4.2, 0.12, 31]), np.array([2, 0.2, 0.0, 3]), np.array([0.3, 0.05, 0.03, 0.5])
    values = np.abs(level + day[:, None] * swing + rng.normal(size=(steps.size, 4)) * noise)
    for row, feature, change in FAULTS:
        values[row, feature] += change
    return values.round(3)


def orders() -> list[dict[str, Any]]:
    """Return orders with gaps; one comes from a country never seen before, another is very large."""
    rng, start = np.random.default_rng(3), np.datetime64("2026-03-01T08:00:00")
    rows: list[dict[str, Any]] = [
        {
            "time": str(start + np.timedelta64(5 * i, "m")),
            "amount": None if rng.random() < 0.05 else round(rng.lognormal(3.5, 0.5), 2),
            "items": int(rng.integers(1, 7)),
            "country": str(rng.choice(list(COUNTRIES), p=list(COUNTRIES.values()))),
            "channel": None if rng.random() < 0.02 else str(rng.choice(list(CHANNELS), p=list(CHANNELS.values()))),
        }
        for i in range(1500)
    ]
    rows[1203]["country"] = "KP"
    rows[1350]["amount"] = 999.0
    return rows


def requests() -> list[dict[str, Any]]:
    """Return the requests to a web site every ten minutes, with peaks by day; one night is as busy as a day."""
    rng, steps, start = np.random.default_rng(5), np.arange(5_000), np.datetime64("2026-03-01T00:00:00")
    hours = steps / 6 % 24
    values = 300 + 700 * np.exp(-(((hours - 19) / 4) ** 2)) + 300 * np.exp(-(((hours - 11) / 3) ** 2))
    values = values * rng.lognormal(0.0, 0.06, steps.size)
    values[4_770:4_800] += 600  # from three to eight in the morning
    return [
        {"time": str(start + np.timedelta64(10 * i, "m")), "requests": round(float(value), 1)}
        for i, value in enumerate(values)
    ]


def take_screenshot(browser: Browser, view: View, path: Path) -> None:
    """Open the page, show the explanation of a point, and save a screenshot."""
    page = browser.new_page(**view.options)
    page.goto(f"{ADDRESS}/#{view.detector}")
    page.get_by_role("button", name=f"Why point {view.point} is anomalous").click()
    page.wait_for_selector("#explanation .reasons")
    page.evaluate("scrollTo(0, 0)")
    page.screenshot(path=path)
    page.close()


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/images"))
