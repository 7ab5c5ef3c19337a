"""The page in a real browser, with a real service."""

import csv
import json
import re
from itertools import pairwise

import numpy as np
import pytest

from tests.service.browser import RecordedPage
from tests.service.serving import Service
from tests.service.test_recovery import damage_database

pytestmark = pytest.mark.page

FEATURES = ["temperature", "pressure", "flow"]
PLANTED = {300: "pressure", 350: "temperature", 390: "flow"}
SMALL = {"n_trees": 20, "window": 256, "max_samples": 64}
TOKEN = "a token of the tests"  # noqa: S105
INJECTION = '<img src=x onerror="window.injected=1">'
MARKED = "document.getElementById('chart').data?.filter((trace) => trace.meta === 'anomalies').map((trace) => trace.x)"
WRONG = [
    ("", "The table is empty."),
    ("temperature,pressure,flow\n", "The table has a header, but no rows."),
    ("temperature,flow\n1,2\n", "The table has no column “pressure”. Its columns are: temperature, flow."),
    ("temperature,pressure,flow,flow\n1,2,3,4\n", "The table has two columns “flow”."),
    ("flow,pressure,temperature\n1,2,3\n1,warm,3\n", "Row 2, column “pressure”: “warm” is not a number."),
    ("flow;pressure;temperature\n1;;3\n", "Row 1, column “pressure”: the cell is empty."),
    (
        "flow,pressure,temperature\n1,2\n1,x,3\n",
        "Row 1, column “temperature”: the cell is empty. There is 1 more problem.",
    ),
    ("flow,pressure,temperature\n1,2,1e999\n", "Row 1, column “temperature”: “1e999” is not a number."),
    ("flow,pressure,temperature\n1,2,3,4\n", "Row 1 has 4 cells, but the header has 3."),
    ('flow,pressure,temperature\n1,2,3\n1,"2,3\n', "Row 2 has a quote that is not closed."),
]


@pytest.fixture(scope="module")
def service(browser, tmp_path_factory):
    with Service(tmp_path_factory.mktemp("service")) as started:
        yield started


@pytest.fixture
def own_service(browser, tmp_path):
    started = []

    def start(**settings):
        started.append(Service(tmp_path, **settings))
        return started[-1].start()

    yield start
    for each in started:
        each.stop()


@pytest.fixture
def tolerated():
    return []  # patterns of console errors that a test expects


@pytest.fixture(scope="module")
def shared(browser):
    recorded = RecordedPage(browser)
    yield recorded
    recorded.close()


@pytest.fixture
def page(shared, tolerated):
    yield shared.page
    shared.check(tolerated)


@pytest.fixture
def own_page(browser, tolerated):
    recorded = RecordedPage(browser)
    yield recorded.page
    recorded.check(tolerated)
    recorded.close()


def rows(n=400, n_features=3):
    values = np.random.default_rng(7).normal(20.0, 1.0, (n, n_features)).round(3)
    for place, name in PLANTED.items():
        values[place, FEATURES.index(name)] = 60.0
    return values


def create_with_points(service, name, features=FEATURES, points=None, **settings):
    client = service.client()
    client.create(name, features, **SMALL, **settings)
    results = client.process(name, rows() if points is None else points)
    client.close()
    return [result["index"] for result in results if result["is_anomaly"]]


def call_client(service, method, *arguments):
    client = service.client()
    try:
        return getattr(client, method)(*arguments)
    finally:
        client.close()


def open_detector(page, service, name):
    page.goto(f"{service.address}/#{name}")
    page.wait_for_selector(f"#name:text-is('{name}')")
    page.wait_for_selector("#chart .main-svg")


def open_settings(page):
    page.evaluate("document.getElementById('settings-details').open = true")


def wait_until(page, expression, arg=None):
    for _ in range(600):  # wait_for_function of playwright evaluates in the page, which its security policy forbids
        if page.evaluate(expression, arg):
            return
        page.wait_for_timeout(50)
    pytest.fail(f"It did not become true: {expression}")


def text_of(points, header=FEATURES, separator=","):
    lines = [separator.join(header), *(separator.join(map(str, point)) for point in points)]
    return "\n".join(lines) + "\n"


def score_text(page, text):
    page.fill("#csv", text)
    page.click("#score-button")


def scores_shown(page):
    traces = page.evaluate("document.getElementById('scored-chart').data.map(({x, y}) => [x, y])")
    pairs = sorted(pair for x, y in traces for pair in zip(x, y, strict=True))
    return [score for _, score in pairs]


def tab_to(page, selector):
    page.evaluate("document.activeElement.blur()")
    for _ in range(100):
        page.keyboard.press("Tab")
        if page.evaluate("(selector) => document.activeElement.matches(selector)", selector):
            return
    pytest.fail(f"Tab does not reach {selector}.")


def set_hidden(page, is_hidden):
    define = "(value) => Object.defineProperty(document, 'hidden', {value, configurable: true})"
    page.evaluate(define, is_hidden)
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


def point_at(page, mark):
    mark.scroll_into_view_if_needed()
    box = mark.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, steps=3)


def active(page):
    return page.evaluate("document.activeElement.id")


# -- detectors ------------------------------------------------------------------------------------------------------


def test_without_detectors_the_page_explains_how_to_create_one(own_service, own_page):
    own_page.goto(own_service().address)
    own_page.wait_for_selector("text=No detector yet")
    assert "curl -X PUT" in own_page.inner_text("#empty-example")


def test_the_page_of_routes_lists_every_route_and_links_to_the_description(own_service, own_page, tolerated):
    tolerated.append("401")
    service = own_service(token=TOKEN)
    own_page.goto(service.address + "/docs")
    own_page.wait_for_selector("#token-dialog[open]")
    own_page.fill("#token", TOKEN)
    own_page.click("#token-ok")
    own_page.wait_for_selector("#routes summary")
    api = json.loads(service.request("GET", "/openapi.json", headers={"Authorization": f"Bearer {TOKEN}"})[2])
    expected = [f"{method.upper()} {path}" for path, operations in api["paths"].items() for method in operations]
    assert own_page.locator("#routes summary").all_inner_texts() == expected
    assert own_page.get_attribute("#description", "href") == "openapi.json"
    own_page.click("#routes summary")
    assert "Names of the features" in own_page.inner_text("#routes details[open]")


def test_the_form_creates_a_detector(service, page):
    page.goto(service.address)
    page.wait_for_function("document.querySelector('#detectors a') || document.querySelector('#new').open")
    if not page.is_visible("#new-name"):  # the page opens the form itself if there is no detector
        page.click("#new > summary")
    page.fill("#new-name", "made")
    page.fill("#new-features", "temperature, pressure\nflow")
    page.click("text=More settings")
    assert not page.is_visible("#new-share")
    page.select_option("#new-threshold", "share")
    page.fill("#new-share", "2")
    page.fill("#new-trees", "20")
    page.click("#create button.primary")
    page.wait_for_selector("#detectors a[aria-current]:has-text('made')")
    page.wait_for_selector("#no-points:has-text('No points yet')")
    configuration = call_client(service, "describe", "made")["configuration"]
    assert (configuration["features"], configuration["threshold"], configuration["n_trees"]) == (
        FEATURES,
        "top 2%",
        20,
    )
    assert page.url.endswith("#made")
    assert '"pressure":' in page.inner_text("#no-points-example")


def test_the_form_shows_the_error_of_a_refused_request(service, page, tolerated):
    tolerated.append("409")
    create_with_points(service, "taken")
    page.goto(f"{service.address}/#taken")
    page.click("#new > summary")
    page.fill("#new-name", "taken")
    page.fill("#new-features", "x")
    page.click("#create button.primary")
    page.wait_for_selector("#create-error:has-text('taken')")


def test_removing_a_detector_must_be_confirmed(service, page):
    create_with_points(service, "unwanted")
    open_detector(page, service, "unwanted")
    page.click("#remove")
    page.click("#remove-dialog >> text=Cancel")
    assert "unwanted" in [each["name"] for each in call_client(service, "detectors")]
    page.click("#remove")
    page.click("#remove-ok")
    page.wait_for_selector("#detectors a:has-text('unwanted')", state="detached")
    assert "unwanted" not in [each["name"] for each in call_client(service, "detectors")]


def test_the_list_and_the_figures_are_updated_as_points_arrive(service, page):
    create_with_points(service, "growing")
    open_detector(page, service, "growing")
    page.wait_for_selector("#detectors a[aria-current]:has-text('400 points')")
    call_client(service, "process", "growing", rows()[:50])
    page.wait_for_selector("#detectors a[aria-current]:has-text('450 points')")
    wait_until(page, "document.getElementById('chart').data[0].x.length === 450")
    wait_until(page, "Array.from(document.querySelectorAll('#summary dd'), (cell) => cell.textContent)[0] === '450'")


def test_a_paused_page_sends_no_requests_until_it_is_resumed(service, page):
    create_with_points(service, "paused")
    open_detector(page, service, "paused")
    page.click("#pause")
    call_client(service, "process", "paused", rows()[:50])
    assert page.inner_text("#status") == "Paused"
    with page.expect_response("**/history*"):
        page.click("#pause")
    wait_until(page, "document.getElementById('chart').data[0].x.length === 450")


def test_a_hidden_page_sends_no_requests(service, own_page):
    create_with_points(service, "unseen")
    own_page.clock.install()
    open_detector(own_page, service, "unseen")
    requests = []
    own_page.on("request", lambda request: requests.append(request.url))
    with own_page.expect_response("**/detectors"):
        own_page.clock.run_for(1000)
    set_hidden(own_page, True)
    own_page.wait_for_load_state("networkidle")
    requests.clear()
    own_page.clock.run_for(60_000)
    assert requests == []
    with own_page.expect_response("**/detectors"):
        set_hidden(own_page, False)


def test_only_the_latest_2000_points_are_shown(service, page):
    create_with_points(service, "long")
    open_detector(page, service, "long")
    call_client(service, "process", "long", np.tile(rows(400), (5, 1)))
    wait_until(page, "document.getElementById('chart').data[0].x.at(-1) === 2399")
    assert page.evaluate("document.getElementById('chart').data[0].x[0]") == 400


def test_the_user_selects_which_of_many_features_are_shown(service, page):
    names = [f"sensor {i}" for i in range(20)]
    create_with_points(service, "wide", names, np.random.default_rng(1).normal(size=(150, 20)))
    open_detector(page, service, "wide")
    names_shown = (
        "document.getElementById('chart').data.filter((trace) => trace.mode === 'lines').map((trace) => trace.name)"
    )
    assert page.evaluate(names_shown) == [*names[:6], "score", "threshold"]
    page.click("#picker > summary")
    page.click("#picker-list >> text=sensor 17")
    page.click("#picker-list >> text=sensor 0")
    wait_until(page, f"{names_shown}.includes('sensor 17')")
    assert page.evaluate(names_shown) == [*names[1:6], "sensor 17", "score", "threshold"]


# -- anomalies ------------------------------------------------------------------------------------------------------


def test_exactly_the_anomalies_of_the_service_are_marked(service, page):
    anomalies = create_with_points(service, "marked")
    assert set(PLANTED) <= set(anomalies)
    open_detector(page, service, "marked")
    assert page.evaluate(MARKED) == [anomalies] * 4  # on three features and the score
    assert page.locator("#anomalies button").all_inner_texts() == [str(index) for index in reversed(anomalies)]
    assert (
        page.evaluate("document.getElementById('chart').data.at(-1).y.at(-1)")
        == json.loads(service.request("GET", "/detectors/marked/history")[2])["threshold"][-1]
    )


def test_a_click_on_an_anomaly_shows_its_explanation(service, page):
    anomalies = create_with_points(service, "clicked")
    open_detector(page, service, "clicked")
    marks = page.locator("#chart .scatterlayer path.point")
    assert marks.count() == 4 * len(anomalies)
    point_at(page, marks.nth(anomalies.index(350)))
    page.wait_for_selector("#chart .hovertext:has-text('point 350')")
    page.mouse.down()
    page.mouse.up()
    page.wait_for_selector("#explanation .reasons")
    assert page.inner_text("#explanation-title") == "Why point 350 is anomalous"
    first = page.locator("#explanation .reasons li").first.inner_text()
    assert re.match(r"temperature = 60 \(high; expected 1\d\.\d+ to 2\d\.\d+\)\s+\d+ %", first)
    assert page.locator("#explanation .reasons li").count() == 3


def test_an_explanation_is_opened_and_closed_with_the_keyboard(service, page):
    create_with_points(service, "typed")
    open_detector(page, service, "typed")
    page.wait_for_selector("text='390'")
    button = "[aria-label='Why point 390 is anomalous']"
    tab_to(page, button)
    page.keyboard.press("Enter")
    page.wait_for_selector("#explanation .reasons li:has-text('flow = 60 (high; expected')")
    assert active(page) == "explanation"
    page.keyboard.press("Escape")
    assert page.locator("#explanation .reasons").count() == 0
    assert page.evaluate("(selector) => document.activeElement.matches(selector)", button)


def test_an_open_explanation_stays_while_points_arrive(service, page):
    create_with_points(service, "steady")
    open_detector(page, service, "steady")
    page.click("[aria-label='Why point 300 is anomalous']")
    page.wait_for_selector("#explanation .reasons")
    call_client(service, "process", "steady", rows()[:50])
    wait_until(page, "document.getElementById('chart').data[0].x.length === 450")
    assert page.inner_text("#explanation-title") == "Why point 300 is anomalous"
    assert active(page) == "explanation"


def test_the_skip_link_jumps_past_the_list(service, own_page):
    create_with_points(service, "skipped")
    open_detector(own_page, service, "skipped")
    own_page.keyboard.press("Tab")
    assert active(own_page) == "skip"
    own_page.keyboard.press("Enter")
    assert active(own_page) == "main"
    assert own_page.url.endswith("#skipped")


# -- incidents and settings -----------------------------------------------------------------------------------------


BURSTS = {"threshold": 0.001, "gap": 20}
SHADES = (
    "document.getElementById('chart').layout.shapes.filter(({ type }) => type === 'rect').map(({ x0, x1 }) => [x0, x1])"
)


def bursts(n=400):
    values = rows(n)
    values[300:304, 1] = 400.0
    return values


def incident_rows(page):
    return [row.split("\t") for row in page.locator("#incident-rows tr").all_inner_texts()]


def test_incidents_of_all_detectors_are_listed_and_can_be_searched_and_sorted(own_service, own_page):
    service = own_service()
    create_with_points(service, "closed-one", points=bursts(), **BURSTS)
    create_with_points(service, "open-one", points=bursts()[:304], **BURSTS)
    create_with_points(service, "later", points=bursts(), **BURSTS)
    own_page.goto(f"{service.address}/#closed-one")
    own_page.wait_for_selector("#incident-rows tr")
    with service.client() as client:
        found = client.incidents()
    shown = incident_rows(own_page)
    assert [row[0] for row in shown] == [each["detector"] for each in found]
    assert shown[0][:2] == ["open-one", "open"]
    assert all("(high; expected" in row[-1] or "(low; expected" in row[-1] for row in shown)
    own_page.select_option("#incident-sort", "latest")
    wait_until(own_page, "document.querySelector('#incident-rows button').textContent === 'later'")
    own_page.fill("#incident-search", "OPEN pressure")
    wait_until(own_page, "document.querySelectorAll('#incident-rows tr').length === 1")
    assert incident_rows(own_page)[0][0] == "open-one"
    own_page.fill("#incident-search", "no such words")
    wait_until(own_page, "document.querySelectorAll('#incident-rows tr').length === 0")
    assert "0 found" in own_page.inner_text("#incidents-hint")
    call_client(service, "process", "open-one", rows()[:30])  # closes it
    own_page.fill("#incident-search", "open-one")
    own_page.wait_for_selector("#incident-rows tr:has-text('closed')")


def test_an_incident_is_opened_with_the_keyboard_and_explained(service, page):
    create_with_points(service, "explained", points=bursts(), **BURSTS)
    page.goto(service.address)
    page.wait_for_selector("#incident-rows tr:has-text('explained')")
    page.fill("#incident-search", "explained")
    wait_until(page, "document.querySelectorAll('#incident-rows tr').length === 1")
    tab_to(page, "#incident-rows button")
    page.keyboard.press("Enter")
    page.wait_for_selector("#explanation .reasons li:has-text('pressure = 400 (high; expected')")
    assert page.url.endswith("#explained")
    assert page.inner_text("#explanation-title") == "Incident 0 of explained"
    assert "at point 300" in page.inner_text("#explanation")
    assert active(page) == "explanation"
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.matches('#incident-rows button')")
    page.fill("#incident-search", "")


def test_own_times_are_shown_in_one_notation(service, page):
    page.goto(service.address)
    texts = [
        "2026-03-16T23:00",
        "2026-03-16 23:00:00",
        " 2026-03-16T23:00:00.000 ",
        "2026-03-16T23:00:05Z",
        "noon",
        "7.5",
    ]
    script = "(texts) => import('./static/format.js').then((format) => texts.map(format.ownTimeText))"
    same = ["2026-03-16 23:00"] * 3
    assert page.evaluate(script, texts) == [*same, "2026-03-16 23:00:05Z", "noon", "7.5"]


def test_the_chart_is_shaded_where_incidents_are(service, page):
    create_with_points(service, "shaded", points=bursts(), **BURSTS)
    open_detector(page, service, "shaded")
    history = json.loads(service.request("GET", "/detectors/shaded/history")[2])
    inside = [index for index, number in zip(history["index"], history["incident"], strict=True) if number == 0]
    assert page.evaluate(SHADES) == [[inside[0] - 0.5, inside[-1] + 0.5]]
    assert 300 in inside
    assert inside == list(range(inside[0], inside[-1] + 1))


def test_surprise_is_shown_with_the_score(service, page):
    create_with_points(service, "surprising", points=bursts(), **BURSTS)
    open_detector(page, service, "surprising")
    history = json.loads(service.request("GET", "/detectors/surprising/history")[2])
    surprise = f"{history['surprise'][300]:.1f} (1 in "
    row = page.locator("#anomalies tr", has=page.locator("[aria-label='Why point 300 is anomalous']"))
    assert surprise in row.inner_text()
    row.locator("button").click()
    page.wait_for_selector("#explanation .reasons")
    assert f"surprise {surprise}" in page.inner_text("#explanation")
    texts = "document.getElementById('chart').data.find(({ name }) => name === 'score').text[300]"
    assert page.evaluate(texts).startswith(f"<br>surprise {surprise}")


def test_the_threshold_and_the_rules_are_changed_on_the_page(service, page, tolerated):
    tolerated.append("422")
    create_with_points(service, "changed", **BURSTS)
    open_detector(page, service, "changed")
    assert "1 in 1,000 ordinary points" in page.inner_text("#settings")
    open_settings(page)
    assert page.input_value("#change-gap") == "20"
    page.select_option("#change-threshold", label="the top 5 % of the points")
    page.fill("#change-gap", "33")
    page.fill("#change-silence", "10m")
    page.click("#change button.primary")
    page.wait_for_selector("#change-done:has-text('Saved')")
    page.wait_for_selector("#settings:has-text('the top 5 % of the points')")
    configuration = call_client(service, "describe", "changed")["configuration"]
    assert (configuration["threshold"], configuration["gap"], configuration["silence"]) == ("top 5%", 33, 600.0)
    page.select_option("#change-threshold", "other")
    page.fill("#change-other", "0.7")
    page.click("#change button.primary")
    page.wait_for_selector("#change-error:has-text('0.7')")
    page.fill("#change-other", "0.002")
    page.fill("#change-silence", "")
    page.click("#change button.primary")
    page.wait_for_selector("#settings:has-text('1 in 500 ordinary points')")
    configuration = call_client(service, "describe", "changed")["configuration"]
    assert (configuration["threshold"], configuration["silence"]) == (0.002, None)
    assert call_client(service, "describe", "changed")["n_seen"] == 400


def test_rules_for_single_features_and_the_cooldown_are_changed_on_the_page(service, page, tolerated):
    tolerated.append("422")
    names = ["constructor", "__proto__", INJECTION, "country"]
    given = {"side": {"constructor": "low"}, "ignore_within": {"constructor": "10%"}, "cooldown": 7}
    with service.client() as client:
        client.create("ruled", names, **SMALL, categorical=["country"], **given)
        client.process("ruled", [[*row, "FR"] for row in rows()])
    open_detector(page, service, "ruled")
    open_settings(page)
    fields = page.locator("#change-rules tr")
    sides, distances = fields.locator("select"), fields.locator("input")
    assert [fields.nth(i).locator("th").inner_text() for i in range(fields.count())] == names[:3]  # no categories
    assert page.input_value("#change-cooldown") == "7"
    assert [sides.nth(i).input_value() for i in range(3)] == ["low", "both", "both"]
    assert [distances.nth(i).input_value() for i in range(3)] == ["10%", "", ""]

    sides.nth(0).select_option("both")
    sides.nth(1).select_option("high")
    distances.nth(0).fill("")
    distances.nth(1).fill(" 5 % ")
    distances.nth(2).fill("2.50")
    page.fill("#change-cooldown", "12")
    page.click("#change button.primary")
    page.wait_for_selector("#change-done:has-text('Saved')")
    configuration = call_client(service, "describe", "ruled")["configuration"]
    assert configuration["cooldown"] == 12
    assert configuration["side"] == {"__proto__": "high"}
    assert configuration["ignore_within"] == {"__proto__": "5 %", INJECTION: 2.5}

    for wrong in ("0x10", "1_0", "near"):
        distances.nth(2).fill(wrong)
        page.click("#change button.primary")
        page.wait_for_selector(f"#change-error:has-text('{wrong}')")
        assert distances.nth(2).input_value() == wrong  # what the user wrote stays
    assert call_client(service, "describe", "ruled")["configuration"] == configuration


def test_rules_can_be_changed_of_very_many_features(service, own_page):
    names = [f"feature-with-a-long-name-{i}" for i in range(60)]
    create_with_points(service, "many-rules", names, rows(400, 60)[:40])
    open_detector(own_page, service, "many-rules")
    open_settings(own_page)
    own_page.locator("#change-rules select").last.select_option("high")
    own_page.click("#change button.primary")
    own_page.wait_for_selector("#change-done:has-text('Saved')")
    assert call_client(service, "describe", "many-rules")["configuration"]["side"] == {names[-1]: "high"}
    for width in (1400, 768, 390):
        own_page.set_viewport_size({"width": width, "height": 900})
        wait_until(own_page, FITS)
        assert own_page.evaluate("document.documentElement.scrollWidth") == width


def test_a_silence_is_listed_and_ends_with_the_next_point(own_service, own_page):
    service = own_service()
    create_with_points(service, "quiet", points=rows()[:290], silence=1)
    own_page.goto(f"{service.address}/#quiet")
    own_page.wait_for_selector("#incident-rows tr:has-text('no data since')")
    own_page.wait_for_selector("#detectors:has-text('1 open incident')")
    own_page.click("[aria-label='Silence 0 of quiet']")
    own_page.wait_for_selector("#explanation:has-text('No data since')")
    call_client(service, "process", "quiet", rows()[:1])
    own_page.wait_for_selector("#incident-rows tr:has-text('closed')")


def test_hostile_names_and_values_are_only_text_among_the_incidents(own_service, own_page):
    service, country = own_service(), INJECTION + "\u202e"
    points = [{INJECTION: float(i % 7), "country": "FR"} for i in range(300)]
    for point in points[-3:]:
        point |= {INJECTION: 900.0, "country": country}
    with service.client() as client:
        client.create("hostile", [INJECTION, "country"], categorical=["country"], **SMALL)
        client.process("hostile", points)
    own_page.goto(service.address)
    own_page.wait_for_selector("#incident-rows tr")
    assert INJECTION in own_page.inner_text("#incident-rows")
    own_page.click("#incident-rows button")
    own_page.wait_for_selector("#explanation .reasons")
    text = own_page.inner_text("#explanation") + own_page.inner_text("#incident-rows")
    assert "\u202e" not in text
    assert own_page.locator("img").count() == 0


SIDEWAYS = "(selector) => ((box) => box.scrollWidth > box.clientWidth)(document.querySelector(selector))"
OVERLAPPING = """(() => {
    const boxes = [...document.querySelectorAll('#chart .annotation')].map((each) => each.getBoundingClientRect());
    const meet = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
    return boxes.filter((a, i) => boxes.slice(i + 1).some((b) => meet(a, b))).length;
})()"""


def test_the_incidents_fit_any_width(service, own_page):
    names = ["temperature", "pressure", "vibration of the second bearing (mm/s)"]
    create_with_points(service, "incident-widths", names, bursts(), **BURSTS)
    open_detector(own_page, service, "incident-widths")
    open_settings(own_page)
    own_page.wait_for_selector("#incident-rows tr")
    for width in (1400, 768, 390):
        own_page.set_viewport_size({"width": width, "height": 900})
        wait_until(own_page, FITS)
        assert own_page.evaluate("document.documentElement.scrollWidth") == width
        assert own_page.evaluate(OVERLAPPING) == 0
        assert not own_page.evaluate(SIDEWAYS, "#change-features .scrolled")
        assert width == 1400 or not own_page.evaluate(SIDEWAYS, "#incidents-box")  # what it is about is visible


# -- tables ---------------------------------------------------------------------------------------------------------


def test_a_dropped_file_gets_the_scores_of_the_service(service, page):
    create_with_points(service, "dropped")
    open_detector(page, service, "dropped")
    points = rows()[280:320]
    table = [[f"P{i}; quoted", *point[::-1]] for i, point in enumerate(points)]
    text = text_of([[f'"{row[0]}"', *row[1:]] for row in table], ["pump", *FEATURES[::-1]], ";")
    make = (
        "(text) => { const data = new DataTransfer(); data.items.add(new File([text], 'dropped.csv')); return data; }"
    )
    page.dispatch_event("#drop", "drop", {"dataTransfer": page.evaluate_handle(make, text)})
    page.wait_for_selector("#source:has-text('dropped.csv')")
    page.click("#score-button")
    page.wait_for_selector("#scored-chart .main-svg")
    assert scores_shown(page) == call_client(service, "score", "dropped", points)
    assert page.locator("#top-rows tr").first.locator("td").nth(4).inner_text() == "P20; quoted"


def test_a_chosen_file_gets_the_scores_of_the_service(service, page, tmp_path):
    create_with_points(service, "chosen")
    open_detector(page, service, "chosen")
    points = rows()[250:400]
    (tmp_path / "table.tsv").write_text(text_of(points, separator="\t"))
    page.set_input_files("#file", tmp_path / "table.tsv")
    page.click("#score-button")
    page.wait_for_selector("#scored-chart .main-svg")
    scores, threshold = (
        call_client(service, "score", "chosen", points),
        call_client(service, "describe", "chosen")["threshold"],
    )
    assert scores_shown(page) == scores
    n_anomalies = sum(score > threshold for score in scores)
    assert re.match(rf"{n_anomalies} of 150 rows (is|are) above the threshold", page.inner_text("#scored-summary"))
    assert page.locator("#top-rows tr").count() == 50
    assert page.locator("#top-rows tr.anomaly").count() == n_anomalies
    assert page.locator("#top-rows button").first.inner_text() == str(int(np.argmax(scores)) + 1)


def test_a_row_of_a_table_is_explained_with_the_keyboard(service, page):
    create_with_points(service, "asked")
    open_detector(page, service, "asked")
    score_text(page, text_of([[20.0, 20.0, 20.0], [20.0, 20.0, 90.0]]))
    page.wait_for_selector("#top-rows button")
    tab_to(page, "[aria-label='Why row 2 has its score']")
    page.keyboard.press("Enter")
    page.wait_for_selector("#scored-explanation .reasons li:has-text('flow = 90 (high; expected')")
    assert active(page) == "scored-explanation"


def test_the_download_has_the_scores(service, page):
    create_with_points(service, "taken-away")
    open_detector(page, service, "taken-away")
    points = rows()[290:310]
    score_text(page, text_of([[f'"say ""{i}"""', *point] for i, point in enumerate(points)], ["note", *FEATURES]))
    page.wait_for_selector("#download")
    with page.expect_download() as waiting:
        page.click("#download")
    assert waiting.value.suggested_filename == "taken-away-scores.csv"
    records = list(csv.DictReader(waiting.value.path().read_text().splitlines()))
    scores, threshold = (
        call_client(service, "score", "taken-away", points),
        call_client(service, "describe", "taken-away")["threshold"],
    )
    assert [float(record["anomaly_score"]) for record in records] == scores
    assert [record["is_anomaly"] for record in records] == [str(score > threshold).lower() for score in scores]
    assert records[3]["note"] == 'say "3"'


def test_problems_with_a_table_are_shown(service, page):
    with service.client() as client:
        client.create("strict", FEATURES, missing="raise")
    page.goto(f"{service.address}/#strict")
    page.wait_for_selector("#name:text-is('strict')")
    for text, message in WRONG:
        score_text(page, text)
        page.wait_for_selector("#score-error:not(:empty)")
        assert page.inner_text("#score-error") == message
        assert not page.is_visible("#scored")


def test_a_long_table_is_sent_in_blocks(service, page):
    create_with_points(service, "blocks")
    open_detector(page, service, "blocks")
    sizes = []
    page.on("request", lambda request: sizes.append(request) if request.url.endswith("/scores") else None)
    text = text_of(np.tile(rows(), (13, 1))[:5001])
    page.set_input_files("#file", {"name": "long.csv", "mimeType": "text/csv", "buffer": text.encode()})
    page.click("#score-button")
    page.wait_for_selector("#scored-summary:has-text('of 5,001 rows')")
    assert [len(json.loads(request.post_data)["points"]) for request in sizes] == [5000, 1]


def test_rows_are_learned_only_on_request(service, own_page):
    create_with_points(service, "taught")
    open_detector(own_page, service, "taught")
    score_text(own_page, text_of(rows()[:10]))
    own_page.wait_for_selector("#scored-summary:has-text('of 10 rows')")
    assert call_client(service, "describe", "taught")["n_seen"] == 400
    own_page.check("#learn")
    own_page.click("text=Score and learn")
    own_page.wait_for_selector("#scored-hint:has-text('then learned')")
    assert call_client(service, "describe", "taught")["n_seen"] == 410
    own_page.locator("#top-rows button").first.click()
    own_page.wait_for_selector("#scored-explanation .reasons")


def test_hostile_names_are_only_text_in_the_charts(service, own_page):
    names = [INJECTION, "%{y}</text><b>&lt;", '<a href="/injected">go</a>']
    create_with_points(service, "hostile", names)
    open_detector(own_page, service, "hostile")
    headings = own_page.evaluate("document.querySelector('#chart .infolayer').textContent")
    assert all(name in headings for name in names)
    point_at(own_page, own_page.locator("#chart .scatterlayer path.point").first)
    own_page.wait_for_selector("#chart .hovertext:has-text('point')")
    own_page.click("[aria-label='Why point 350 is anomalous']")
    own_page.wait_for_selector("#explanation .reasons")
    assert INJECTION in own_page.inner_text("#explanation .reasons")
    assert own_page.locator("img, #chart a").count() == 0


def test_hostile_headers_and_cells_are_only_text(service, own_page):
    call_client(service, "create", "hostile-table", ["x", INJECTION])
    own_page.goto(f"{service.address}/#hostile-table")
    own_page.wait_for_selector("#name:text-is('hostile-table')")
    cell, quoted = "<svg onload=window.injected=1>", INJECTION.replace('"', '""')
    score_text(own_page, text_of([[20, 20, cell], [20, 20, "<b>"]], ["x", f'"{quoted}"', f'"{quoted}2"']))
    own_page.wait_for_selector("#top-rows button")
    assert cell in own_page.inner_text("#top-rows")
    assert INJECTION + "2" in own_page.inner_text("#top-rows-head")
    score_text(own_page, text_of([[1]], [f'"{quoted}2"']))
    own_page.wait_for_selector("#score-error:has-text('<img')")
    assert own_page.locator("img, td *:not(button, select, option, input)").count() == 0


# -- categories -----------------------------------------------------------------------------------------------------


ORDERS = ["amount", "country", "is_new"]
FITS = "(({ layout, clientWidth }) => layout.width === clientWidth)(document.getElementById('chart'))"
LANES = """(() => {
    const { layout } = document.getElementById('chart');
    const counts = layout.annotations.filter(({ yref }) => yref === 'y2').map(({ text }) => text);
    return layout.yaxis2.ticktext.map((label, lane) => [label, counts[lane]]);
})()"""


def orders(n=400):
    rng = np.random.default_rng(7)
    countries = rng.choice(["FR", "DE", "IT", "ES", "NL", "BE", "AT"], n, p=[0.4, 0.25, 0.15, 0.1, 0.05, 0.03, 0.02])
    amounts = rng.normal(20.0, 1.0, n).round(3)
    rows = [
        {
            "amount": amounts[i],
            "country": str(countries[i]),
            "is_new": bool(i % 3 == 0),
            "time": f"2026-01-31T{i // 60:02}:{i % 60:02}:00",
        }
        for i in range(n)
    ]
    rows[120]["amount"] = rows[121]["country"] = None
    rows[350]["country"] = INJECTION + "\u202e"
    return rows


def create_orders(service, name):
    with service.client() as client:
        client.create(name, ORDERS, categorical=ORDERS[1:], threshold=0.05, **SMALL)
        results = client.process(name, orders())
    return [result["index"] for result in results if result["is_anomaly"]]


def test_categories_are_shown_on_lanes_with_their_counts(service, page):
    anomalies = create_orders(service, "lanes")
    assert 350 in anomalies
    open_detector(page, service, "lanes")
    countries = [row["country"] for row in orders()]
    own = sorted(["FR", "DE", "IT", "ES", "NL"])
    expected = [[name, str(countries.count(name))] for name in own]
    assert page.evaluate(LANES) == [*expected, ["other", str(400 - sum(int(count) for _, count in expected))]]
    lanes = "document.getElementById('chart').data.filter((trace) => trace.yaxis === 'y2')[1].y"
    positions = [own.index(country) if country in own else 5 for country in (countries[index] for index in anomalies)]
    assert page.evaluate(lanes) == positions
    assert page.evaluate(MARKED) == [anomalies] * 4  # on three features and the score
    assert page.evaluate("document.getElementById('chart').data[0].y[120]") is None  # a gap


def test_a_category_is_explained_in_words_and_shown_as_text(service, page):
    create_orders(service, "worded")
    open_detector(page, service, "worded")
    row = page.locator("#anomalies tr", has=page.locator("[aria-label='Why point 350 is anomalous']"))
    assert "2026-01-31 05:50" in row.inner_text()
    assert "<img" in row.inner_text()
    row.locator("button").click()
    page.wait_for_selector("#explanation .reasons")
    first = page.locator("#explanation .reasons li").first.inner_text()
    assert re.fullmatch(re.escape(f"country = {INJECTION}\ufffd (never seen)") + r"\s+\d+ %", first)
    assert "2026-01-31 05:50" in page.inner_text("#explanation")
    assert page.locator("img").count() == 0


def test_a_table_with_categories_gaps_and_times_is_learned(service, page):
    create_orders(service, "learned")
    open_detector(page, service, "learned")
    page.check("#learn")
    text = "id,time,is_new,country,amount\nA,2026-02-01T00:00,true,FR,20\nB,,,,21\nC,2026-02-01T00:02,false,KP,\n"
    score_text(page, text)
    page.wait_for_selector("#scored-summary:has-text('of 3 rows')")
    _, _, content = service.request("GET", "/detectors/learned/history?after=399")
    history = json.loads(content)
    assert history["values"] == [[20.0, "FR", "true"], [21.0, None, None], [None, "KP", "false"]]
    assert history["own_time"] == ["2026-02-01T00:00", None, "2026-02-01T00:02"]
    page.click("[aria-label='Why row 3 has its score']")
    page.wait_for_selector("#scored-explanation .reasons li:has-text('country = KP (never seen)')")


def test_the_form_takes_features_and_categories_from_a_table(service, page):
    page.goto(service.address)
    if not page.is_visible("#new-name"):
        page.click("#new > summary")
    lines = [f"ORD-{i},{i},2026-01-{i + 1:02},{i % 7}.5,{'FR' if i % 2 else ''},true" for i in range(25)]
    text = "\n".join(["order,row,day,amount,country,is_new", *lines])
    make = "(text) => { const data = new DataTransfer(); data.items.add(new File([text], 'orders.csv')); return data; }"
    page.dispatch_event("#new", "drop", {"dataTransfer": page.evaluate_handle(make, text)})
    page.wait_for_selector("#new-table-hint:has-text('orders.csv')")
    note = page.inner_text("#new-table-hint")
    for reason in ("order (nearly all its values differ)", "row (it counts the rows)", "day (it has times)"):
        assert reason in note
    page.fill("#new-name", "from-table")
    page.click("#create button.primary")
    page.wait_for_selector("#detectors a[aria-current]:has-text('from-table')")
    configuration = call_client(service, "describe", "from-table")["configuration"]
    assert (configuration["features"], configuration["categorical"]) == (
        ["amount", "country", "is_new"],
        ["country", "is_new"],
    )
    page.wait_for_selector('#no-points-example:has-text(\'"country":"A"\')')


def test_lanes_fit_any_width(service, own_page):
    create_orders(service, "widths")
    open_detector(own_page, service, "widths")
    own_page.click("[aria-label='Why point 350 is anomalous']")
    own_page.wait_for_selector("#explanation .reasons")
    boxes = """Array.from(document.querySelectorAll('#chart .ytick text, #chart .annotation-text'))
        .map((text) => text.getBoundingClientRect()).map(({ left, right }) => [left, right])"""
    for width in (1400, 768, 390):
        own_page.set_viewport_size({"width": width, "height": 900})
        wait_until(
            own_page, "(({ layout, clientWidth }) => layout.width === clientWidth)(document.getElementById('chart'))"
        )
        assert own_page.evaluate("document.documentElement.scrollWidth") == width
        assert all(0 <= left <= right <= width for left, right in own_page.evaluate(boxes))


# -- time series ----------------------------------------------------------------------------------------------------

PLANTED_LOADS = range(700, 706)
CHART = "document.getElementById('chart')"


def loads(n=800):
    """Return points of a metric with a daily rhythm, every half hour; some of the last ones are wrong."""
    noise = np.random.default_rng(3).normal(scale=2.0, size=n)
    values = [round(50.0 + 30.0 * np.sin(i / 48.0 * 2.0 * np.pi) + noise[i], 2) for i in range(n)]
    start = np.datetime64("2026-01-01T00:00:00")
    points = [{"load": value, "ts": str(start + np.timedelta64(30 * i, "m"))} for i, value in enumerate(values)]
    for i in set(PLANTED_LOADS) & set(range(n)):
        points[i]["load"] = 150.0 + i
    return points


def create_series(service, name, points, **settings):
    client = service.client()
    client.create(name, ["load"], preset="series", time="ts", **{"warm_up": 256, **settings})
    client.process(name, points)
    client.close()


def test_a_series_is_shown_over_time_with_its_expected_range(service, page):
    points = loads()
    create_series(service, "series", points)
    open_detector(page, service, "series")
    page.wait_for_selector("#chart .shapelayer path")
    found = page.evaluate(f"""{CHART}.data.map(({{meta, name, x, y, fill}}) => ({{meta, name, x, y, fill}}))""")
    assert page.evaluate(f"{CHART}.layout.xaxis.type") == "date"
    times = [np.datetime64(point["ts"], "ms").astype(int).item() for point in points]
    value, surprise = (each for each in found if each.get("meta") is None)
    assert (value["name"], value["x"], value["y"]) == ("load", times, [point["load"] for point in points])
    assert (surprise["name"], surprise["x"]) == ("surprise", times)
    low, high = (each for each in found if each.get("meta") == "expected")
    assert high["fill"] == "tonexty"
    assert low["x"] == high["x"] == times[128:]  # not known before
    inside = [a <= point["load"] <= b for a, b, point in zip(low["y"], high["y"], points[128:], strict=True)]
    assert not any(inside[i - 128] for i in PLANTED_LOADS)
    assert sum(inside) > 0.7 * len(inside)
    threshold = next(each for each in found if each.get("meta") == "threshold")
    assert threshold["y"] == [3] * len(points)
    bottom, top = page.evaluate(f"{CHART}.layout.yaxis2.range")
    alarms = [value for i, value in enumerate(surprise["y"]) if i in PLANTED_LOADS]
    assert bottom < 0 < max(6, *alarms) < top
    shades = page.evaluate(f"{CHART}.layout.shapes.map(({{x0, x1}}) => [x0, x1])")
    assert any(first < times[PLANTED_LOADS[1]] < last for first, last in shades)
    assert page.inner_text("#summary").count("Usual step") == 1
    assert "30 min" in page.inner_text("#summary")
    page.click(f"[aria-label='Why point {PLANTED_LOADS[0]} is anomalous']")
    page.wait_for_selector("#explanation .reasons li:has-text('high; expected')")


def test_rows_without_times_in_order_are_shown_by_number(service, page):
    points = loads(300)
    points[200]["ts"] = points[100]["ts"]
    create_series(service, "unordered", points)
    open_detector(page, service, "unordered")
    assert page.evaluate(f"{CHART}.layout.xaxis.type") == "linear"
    assert page.evaluate(f"{CHART}.data.at(-1).x") == list(range(300))
    page.wait_for_selector("#summary div:has-text('Late points') >> text=1")


def test_the_form_creates_a_series_from_a_table_whose_rows_are_learned_with_their_times(service, page):
    page.goto(service.address)
    if not page.is_visible("#new-name"):
        page.click("#new > summary")
    points = loads(40)
    lines = ["host,timestamp,load", *(f"a{i % 2},{point['ts']},{point['load']}" for i, point in enumerate(points))]
    make = "(text) => { const data = new DataTransfer(); data.items.add(new File([text], 'load.csv')); return data; }"
    page.dispatch_event("#new", "drop", {"dataTransfer": page.evaluate_handle(make, "\n".join(lines))})
    page.wait_for_selector("#new-table-hint:has-text('load.csv')")
    assert page.input_value("#new-features").split() == ["host", "load"]
    page.select_option("#new-preset", "series")
    assert page.input_value("#new-features").split() == ["load"]
    assert "host (it is not a number)" in page.inner_text("#new-table-hint")
    assert page.input_value("#new-time") == "timestamp"
    assert not page.is_visible("#new-categorical")
    assert page.get_attribute("#new-window", "placeholder") == "8192"
    page.fill("#new-name", "made-series")
    page.click("#create button.primary")
    page.wait_for_selector("#detectors a[aria-current]:has-text('made-series')")
    configuration = call_client(service, "describe", "made-series")["configuration"]
    assert [configuration[name] for name in ("preset", "time", "window", "max_samples", "n_trees", "shingle")] == [
        "series", "timestamp", 8192, None, 20, 1,
    ]  # fmt: skip
    assert '"timestamp":' in page.inner_text("#no-points-example")
    page.check("#learn")
    score_text(page, "\n".join(lines))
    page.wait_for_selector("#scored-summary:has-text('of 40 rows')")
    history = json.loads(service.request("GET", "/detectors/made-series/history")[2])
    assert history["own_time"] == [point["ts"] for point in points]
    score_text(page, "timestamp,load\n1767300000,5\n,6\n")
    page.wait_for_selector("#scored-summary:has-text('of 2 rows')")
    history = json.loads(service.request("GET", "/detectors/made-series/history?after=39")[2])
    assert history["own_time"] == ["2026-01-01 20:40:00", None]
    page.click("[aria-label='Why row 1 has its score']")
    page.wait_for_selector("#scored-explanation .reasons li:has-text('load = 5')")


def test_a_time_that_cannot_be_read_is_reported(service, page, tolerated):
    tolerated.append("422")
    create_series(service, "bad-times", loads(10))
    open_detector(page, service, "bad-times")
    page.uncheck("#learn")
    score_text(page, "ts,load\n2026-01-01,5\nsoon,6\n")
    page.wait_for_selector("#score-error:has-text(\"'ts' of point 1 must be a time in ISO 8601\")")


def test_a_series_fits_any_width(service, own_page):
    names = ["load of the machine with a long name", "load of the engine", "load"]
    client = service.client()
    client.create("narrow", names, preset="series", time="ts")
    client.process("narrow", [{"ts": point["ts"], **dict.fromkeys(names, point["load"])} for point in loads()])
    client.close()
    open_detector(own_page, service, "narrow")
    boxes = """Array.from(document.querySelectorAll('#chart .annotation-text'))
        .map((text) => text.getBoundingClientRect()).map(({ left, right, top }) => [top, left, right])"""
    for width in (1400, 768, 390):
        own_page.set_viewport_size({"width": width, "height": 900})
        wait_until(own_page, f"(({{ layout, clientWidth }}) => layout.width === clientWidth)({CHART})")
        assert own_page.evaluate("document.documentElement.scrollWidth") == width
        texts = sorted(own_page.evaluate(boxes))
        assert all(0 <= left <= right <= width for _, left, right in texts)
        same_line = [(a, b) for a, b in pairwise(texts) if abs(a[0] - b[0]) < 5.0]
        assert len(same_line) == 4  # three features and the surprise
        assert all(a[2] < b[1] or b[2] < a[1] for a, b in same_line)  # headings and latest values do not overlap


# -- the service ----------------------------------------------------------------------------------------------------


def test_the_token_dialog_is_shown_until_the_token_is_accepted(own_service, own_page, tolerated):
    tolerated.append("401")
    service = own_service(token=TOKEN)
    create_with_points(service, "locked")
    own_page.goto(f"{service.address}/#locked")
    own_page.wait_for_selector("#token-dialog[open]")
    own_page.keyboard.press("Escape")
    own_page.wait_for_selector("#status:has-text('A token is required')")
    own_page.click("#unlock")
    own_page.fill("#token", "not the token of it")
    own_page.keyboard.press("Enter")
    own_page.wait_for_selector("#token-error:has-text('does not accept')")
    own_page.fill("#token", TOKEN)
    own_page.keyboard.press("Enter")
    own_page.wait_for_selector("#chart .main-svg")
    assert own_page.evaluate("[localStorage.length, sessionStorage.length, document.cookie]") == [0, 1, ""]
    own_page.reload()
    own_page.wait_for_selector("#chart .main-svg")
    assert not own_page.is_visible("#token-dialog")


def test_the_page_continues_after_a_restart_of_the_service(own_service, own_page, tolerated):
    tolerated.append("ERR_CONNECTION|ERR_EMPTY_RESPONSE|ERR_SOCKET|503")  # 503: the service is starting
    service = own_service()
    create_with_points(service, "back")
    open_detector(own_page, service, "back")
    service.stop()
    own_page.wait_for_selector("#status[data-state=gone]:has-text('cannot be reached')")
    service.start()
    own_page.wait_for_selector("#status[data-state=live]")
    call_client(service, "process", "back", rows()[:50])
    wait_until(own_page, "document.getElementById('chart').data[0].x.length === 450")


def test_problems_of_the_service_are_shown(service, own_page, tolerated):
    tolerated.append("503")
    response = json.dumps({"status": "failing", "problems": ["The disk <b>is full."]})
    own_page.route("**/health", lambda route: route.fulfill(status=503, body=response, content_type="application/json"))
    own_page.goto(service.address)
    own_page.wait_for_selector("#problems:has-text('The disk <b>is full.')")


def test_notifications_that_were_given_up_are_shown(service, own_page):
    text = "2 notifications were given up: https://example.org did not accept them in time."
    response = json.dumps({"status": "ok", "problems": [text]})
    own_page.route("**/health", lambda route: route.fulfill(status=200, body=response, content_type="application/json"))
    own_page.goto(service.address)
    own_page.wait_for_selector(f"#problems:has-text('{text}')")


def test_the_page_shows_why_a_detector_is_set_aside(own_service, own_page, tolerated, tmp_path):
    tolerated.append("503")
    service = own_service()
    create_with_points(service, "good")
    create_with_points(service, "bad")
    service.stop()
    damage_database(tmp_path, "UPDATE detectors SET configuration = '{' WHERE name = 'bad'")
    service.start()
    own_page.goto(service.address)
    own_page.wait_for_selector("#problems:has-text('The configuration of \\'bad\\' is damaged')")
    own_page.wait_for_selector("#detectors:has-text('good')")


# -- layout ---------------------------------------------------------------------------------------------------------


def test_light_and_dark_differ_on_the_page_and_in_the_charts(service, own_page):
    create_with_points(service, "seen")
    own_page.emulate_media(color_scheme="light")
    open_detector(own_page, service, "seen")
    paper = "document.getElementById('chart').layout.paper_bgcolor"
    body = "getComputedStyle(document.body).backgroundColor"
    light = own_page.evaluate(f"[{paper}, {body}]")
    own_page.emulate_media(color_scheme="dark")
    wait_until(own_page, f"(light) => {paper} !== light", arg=light[0])
    dark = own_page.evaluate(f"[{paper}, {body}]")
    assert light[1] != dark[1]


def test_the_page_fits_the_width_of_a_phone(service, own_page):
    create_with_points(
        service, "phone", [*FEATURES[:2], "a-name-that-is-very-long-and-has-no-place-to-break-at-all" * 2]
    )
    own_page.set_viewport_size({"width": 390, "height": 844})
    open_detector(own_page, service, "phone")
    own_page.click("[aria-label='Why point 300 is anomalous']")
    own_page.wait_for_selector("#explanation .reasons")
    names = call_client(service, "describe", "phone")["configuration"]["features"]
    score_text(own_page, text_of(rows()[:60], names))
    own_page.wait_for_selector("#scored-chart .main-svg")
    own_page.locator("#top-rows button").first.click()
    own_page.wait_for_selector("#scored-explanation .reasons")
    assert own_page.evaluate("document.documentElement.scrollWidth") == 390
