"""The page of a detector with a key, in a real browser."""

import numpy as np
import pytest

from tests.service.browser import RecordedPage
from tests.service.serving import wait_until

pytestmark = pytest.mark.page

NAMES = [f"web-{i:02}" for i in range(30)]
HOSTILE = ["", '<img src=x onerror="window.injected=1">', "日本 é/?&#%"]
SHOWN = "document.getElementById('chart').data?.find((trace) => trace.name === 'load')?.y.at(-1)"


@pytest.fixture
def page(browser, service):
    """Open the page of a detector whose key web-07 has an incident, with a last load of its own for every key."""
    rng = np.random.default_rng(0)
    names = [*NAMES, *HOSTILE]
    with service.client() as client:
        for detector in client.detectors():
            client.remove(detector["name"])
        client.create("hosts", ["load", "memory"], key="host", window=64, n_trees=10, threshold=0.001)
        for _ in range(70):
            client.process("hosts", [[name, *rng.normal(size=2)] for name in names])
        client.process("hosts", [["web-07", 1e3, 0.0], ["web-07", 2e3, 0.0]])
    recorded = RecordedPage(browser)
    recorded.page.goto(f"{service.address}/#hosts")
    recorded.page.wait_for_selector("#key-rows tr")
    yield recorded.page
    recorded.check([])
    recorded.close()


def wait_for(page, expression):
    """Wait until an expression is true; the page allows no script that `wait_for_function` could evaluate."""
    wait_until(lambda: page.evaluate(expression) or page.wait_for_timeout(50))


def names_of(page):
    return page.locator("#key-rows tr button").all_inner_texts()


def test_the_keys_are_listed_by_surprise_and_found_by_search(page):
    assert len(names_of(page)) == len(NAMES) + len(HOSTILE)
    assert page.locator("#keys-hint").inner_text() == "33 keys"
    page.select_option("#key-order", "name")
    wait_for(page, "document.querySelector('#key-rows tr button').textContent === '(empty)'")
    page.fill("#key-search", "WEB-1")
    wait_for(page, "document.querySelectorAll('#key-rows tr').length === 10")
    assert names_of(page) == [f"web-{i}" for i in range(10, 20)]
    assert page.locator("#keys-hint").inner_text() == "33 keys, 10 found"


def test_a_chosen_key_shows_its_points_and_their_explanation(page, service):
    with service.client() as client:
        for key in ["web-07", "web-12", *HOSTILE]:
            last = client.history("hosts", key)["values"][-1][0]
            row = page.locator(f"xpath=//tbody[@id='key-rows']/tr[@data-key='{key}']")
            row.locator("button").click()
            wait_for(page, f"{SHOWN} === {last!r}")
            assert row.locator("button").get_attribute("aria-current") == "true"
    page.locator("#key-rows tr[data-key='web-07'] button").click()
    wait_for(page, f"{SHOWN} === 2000")
    page.locator("#anomalies tr button").first.click()
    wait_for(page, "document.getElementById('explanation').textContent.includes('load')")


def test_incidents_name_their_key_and_open_it(page):
    page.locator("#incident-rows tr button", has_text="hosts: web-07").first.click()
    wait_for(page, "document.getElementById('explanation').textContent.includes('of hosts: web-07')")
    assert page.locator("#live-title").inner_text() == "web-07"
    wait_for(page, f"{SHOWN} === 2000")


@pytest.mark.parametrize("width", [390, 1400])
def test_nothing_is_wider_than_the_page(page, width):
    page.set_viewport_size({"width": width, "height": 900})
    wait_for(page, f"{SHOWN} !== undefined")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("#table-section").is_hidden()
