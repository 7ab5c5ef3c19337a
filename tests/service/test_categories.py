"""Categories, missing numbers and times of points over HTTP, after restarts, in model files and in large numbers."""

import json
import shutil
import tracemalloc

import numpy as np
import pytest

from imondrian import StreamDetector
from imondrian.base.categories import category_code
from imondrian.base.errors import InvalidInputError
from imondrian.model_files import from_bytes, to_bytes
from imondrian.service.changes.configuration import checked_configuration
from imondrian.service.changes.journal import Entry, ScoredRow, entry_of_points
from imondrian.service.changes.posted_rows import RowFormat
from imondrian.service.detectors.registry import Registry
from imondrian.service.http.asgi import create_app
from imondrian.service.http.bodies import rows_of
from imondrian.service.limits import Limits, Retention
from imondrian.service.storage.history import History
from tests.service.serving import SMALL, ThreadServer
from tests.service.test_uploads import put
from tests.service.test_worker import expected, n_rows

FEATURES = ["amount", "country", "is_new"]
ORDERS = {"features": FEATURES, "categorical": ["country", "is_new"], **SMALL}
OFTEN = Retention(points_between_snapshots=100)
MIB = 2**20


def orders(n=300, seed=0):
    """Return orders by feature name, with gaps, as a client would post them."""
    rng = np.random.default_rng(seed)
    return [
        {
            "amount": None if rng.random() < 0.2 else round(float(rng.normal(100.0, 20.0)), 2),
            "country": [None, "FR", "DE", "IT", "Österreich"][rng.choice(5, p=[0.05, 0.4, 0.3, 0.2, 0.05])],
            "is_new": bool(rng.random() < 0.3),
        }
        for _ in range(n)
    ]


ROWS = orders()
LISTS = [list(row.values()) for row in ROWS]
KP = {"amount": 99_999, "country": "KP", "is_new": False}


@pytest.fixture
def send(shared_server):
    """Create the detector `orders`; return a function that sends a request about it and returns status and content."""
    send_request = sender(shared_server)
    assert send_request("PUT", "", ORDERS)[0] == 201
    return send_request


def sender(server, name="orders"):
    def send_request(method, path, body=None, headers=None):
        status, _, content = server.request(method, f"/detectors/{name}{path}", body, headers or {})
        return status, json.loads(content) if content.startswith((b"{", b"[")) else content

    return send_request


def plain_detector(**settings):
    return StreamDetector(3, categorical=[1, 2], **(SMALL | settings))


def test_text_booleans_and_gaps_give_the_results_of_a_plain_detector(send):
    reference, named = plain_detector(), plain_detector()
    assert send("POST", "/points", {"points": LISTS[:100]}) == (200, {"results": expected(reference, LISTS[:100])})
    absent = [{name: value for name, value in row.items() if value is not None} for row in ROWS[100:200]]
    assert send("POST", "/points", {"points": absent}) == (200, {"results": expected(reference, LISTS[100:200])})
    lines = "\n".join(map(json.dumps, LISTS[200:])).encode()
    status, response = send("POST", "/points", lines, {"Content-Type": "application/x-ndjson"})
    assert (status, response["results"]) == (200, expected(reference, LISTS[200:]))
    assert send("POST", "/scores", {"points": LISTS})[1]["anomaly_score"] == reference.score(LISTS).tolist()
    named.process_many(ROWS)
    assert send("POST", "/scores", {"points": ROWS})[1]["anomaly_score"] == named.score(LISTS).tolist()
    assert send("GET", "")[1]["n_missing"] == reference.n_missing > 0


def test_a_new_category_is_explained_in_words(send):
    send("POST", "/points", {"points": [*LISTS, list(KP.values())]})
    for method, path, body in [("GET", "/history/300", None), ("POST", "/explanations", {"points": [KP]})]:
        status, found = send(method, path, body)
        reasons = {r["feature"]: r for r in (found if method == "GET" else found["explanations"][0])["explanation"]}
        amount, country = reasons["amount"], reasons["country"]
        assert status == 200
        assert (amount["value"], amount["side"], amount["frequency"]) == (99_999, "high", None)
        assert amount["text"].startswith("amount = 99,999 (high; expected ")
        assert (country["value"], country["side"], country["expected"]) == ("KP", None, None)
        assert reasons["is_new"]["value"] is False
        assert "false (" in reasons["is_new"]["text"]
        if method == "GET":  # without the point itself
            assert country["frequency"] == {"count": 0, "n_points": 127}
            assert country["text"].startswith("country = KP (never seen), ")
        else:
            assert country["frequency"] == {"count": 1, "n_points": 128}
    only_country = [[100.0, "KP", False]] * 2
    send("POST", "/points", {"points": LISTS})
    reason = send("POST", "/explanations", {"points": only_country})[1]["explanations"][1]["explanation"][0]
    assert (reason["feature"], reason["frequency"]["count"]) == ("country", 0)


def test_points_are_explained_before_the_first_one_is_learned(send):
    explanation = send("POST", "/explanations", {"points": [[5, None, True]]})[1]["explanations"][0]["explanation"]
    assert [reason["text"] for reason in explanation] == [
        "amount = 5 (high), 33%",
        "country = missing, 33%",
        "is_new = true, 33%",
    ]
    assert [reason["expected"] or reason["frequency"] for reason in explanation] == [None] * 3


@pytest.mark.parametrize("settings", [{"missing": "indicator"}, {"missing": "previous"}, {"shingle": 2}])
def test_rows_with_gaps_are_explained(shared_server, settings):
    send = sender(shared_server)
    send("PUT", "", ORDERS | settings)
    assert send("POST", "/points", {"points": LISTS})[0] == 200
    gap = max(i for i, row in enumerate(ROWS) if row["amount"] is None)
    old = min(i for i, row in enumerate(ROWS) if row["amount"] is None and i > 0)
    for index in (gap, old):  # in the window, and no longer in it
        status, row = send("GET", f"/history/{index}")
        last = [each for each in row["explanation"] if each["rows_ago"][0] == 0]
        reason = next(each for each in last if each["feature"] == "amount")
        assert (status, row["values"]) == (200, LISTS[index])
        assert (reason["value"], reason["side"]) == (None, None)
        assert reason["text"].startswith("amount = missing (expected ")
    assert sum(each["share"] for each in row["explanation"]) == pytest.approx(1.0)


def test_a_row_with_gaps_is_explained_as_if_it_had_not_been_learned(send):
    send("POST", "/points", {"points": [*LISTS, [None, "KP", True]]})
    country = send("GET", "/history/300")[1]["explanation"][0]
    assert (country["feature"], country["frequency"]) == ("country", {"count": 0, "n_points": 127})


def test_points_are_forgotten(send):
    reference = plain_detector()
    send("POST", "/points", {"points": LISTS})
    reference.process_many(LISTS)
    complete = [i for i, row in enumerate(LISTS) if row[0] is not None][-5:]
    rows = [LISTS[i] for i in complete]
    status, response = send("DELETE", "/points", {"points": [*rows, [1.0, "KP", True]]})
    assert (status, response["detail"]) == (
        422,
        "Point 5 is not in the window, or the request contains it more often than the window.",
    )
    assert send("DELETE", "/points", {"points": [ROWS[i] for i in complete]}) == (200, {"n_points": 5})
    reference.forget(rows)
    assert send("POST", "/scores", {"points": LISTS})[1]["anomaly_score"] == reference.score(LISTS).tolist()


@pytest.mark.parametrize(
    ("point", "message"),
    [
        (["x", "FR", True], "'amount' of point 1 must be a number, but is \"x\"."),
        ([True, "FR", True], "'amount' of point 1 must be a number, but is true."),
        ({"amount": 1.0, "country": ["FR"]}, "'country' of point 1 must be text, a number or a boolean"),
        ({"amount": 1.0, "country": {"a": 1}}, "must be a JSON list or object"),
        ([1.0, "\ud800", True], "'country' of point 1 must be valid Unicode, but is \"\\ud800\"."),
        ([1.0, "x" * 257, True], "'country' of point 1 must be a category of at most 256 characters"),
        ([1.0, 10**300, True], "'country' of point 1 must be a category of at most 256 characters"),
        ([None, None, None], "Point 1 has no value: everything is missing."),
        ({"amount": 1.0, "contry": "FR"}, "Point 1 has an unknown feature 'contry'."),
        ([1.0, "FR"], "Point 1 must be a list of 3 values"),
    ],
)
def test_errors_name_the_point_the_feature_and_the_value(send, point, message):
    first = KP if isinstance(point, dict) else list(KP.values())
    for path in ("/points", "/scores", "/explanations"):
        status, response = send("POST", path, {"points": [first, point]})
        assert status == 422
        assert message in response["detail"]
        assert len(response["detail"]) < 500
    assert send("GET", "")[1]["n_seen"] == 0


def test_infinite_categories_are_refused(send):
    status, response = send("POST", "/points", b'{"points": [[1, 1e999, true]]}')
    assert (status, response["detail"]) == (422, "'country' of point 0 must be a finite number, but is Infinity.")


def test_missing_numbers_are_refused_on_request(shared_server):
    send = sender(shared_server)
    send("PUT", "", ORDERS | {"missing": "raise"})
    for point, message in [
        ([None, "FR", True], "'amount' of point 0 must be a number, but is null."),
        ({"country": "FR", "is_new": True}, "Point 0 lacks the feature 'amount'."),
    ]:
        assert send("POST", "/points", {"points": [point]}) == (422, {"detail": message})
    assert send("POST", "/points", {"points": [[1.0, None, True]]})[0] == 200  # a category of its own


def test_hostile_texts_are_stored_and_returned_unchanged(send):
    texts = [
        "",
        " ",
        "a\x00b\n\r\t\x1b[31m",
        "\u202egnp",
        ']},{["\\',
        "<img src=x>",
        "\U0001d7db" * 256,
        "missing",
        "null",
    ]
    send("POST", "/points", {"points": [[1.0, text, True] for text in texts]})
    status, rows = send("GET", "/history")
    assert (status, [row[1] for row in rows["values"]]) == (200, texts)
    assert send("GET", f"/history/{len(texts) - 1}")[1]["values"][1] == "null"


def test_equal_numbers_texts_and_booleans_are_one_category(send):
    send("POST", "/points", {"points": [[1.0, value, True] for value in (3, 3.0, "3")]})
    send("POST", "/points", {"points": [[1.0, 3, "true"]]})
    assert [row[1:] for row in send("GET", "/history?after=2")[1]["values"]] == [[3, "true"]]
    reasons = send("POST", "/explanations", {"points": [[1.0, "3", True]]})[1]["explanations"][0]["explanation"]
    assert [each["frequency"] for each in reasons if each["frequency"]] == [{"count": 4, "n_points": 4}] * 2


# -- times ----------------------------------------------------------------------------------------------------------


def test_points_carry_their_own_times(shared_server):
    send = sender(shared_server, "pumps")
    send("PUT", "", {"features": ["x"], **SMALL})
    times = ["2026-01-31T12:30:00Z", None, "2026-01-31", "2026-01-31 12:30:00.123456+01:00"]
    points = [{"x": float(i), "time": time} for i, time in enumerate(times)]
    assert send("POST", "/points", {"points": [*points, {"x": 9.0}]})[0] == 200
    assert send("POST", "/points", {"points": [[5.0]]})[0] == 200
    rows = send("GET", "/history")[1]
    assert rows["own_time"] == [*times, None, None]
    assert rows["values"] == [[0.0], [1.0], [2.0], [3.0], [9.0], [5.0]]
    assert send("GET", "/history/0")[1]["own_time"] == times[0]
    assert send("POST", "/scores", {"points": points})[0] == 200
    assert send("DELETE", "/points", {"points": points[:1]}) == (200, {"n_points": 1})


def test_the_time_is_part_of_a_repeated_request(shared_server):
    send, headers = sender(shared_server, "pumps"), {"Idempotency-Key": "one"}
    send("PUT", "", {"features": ["x"], **SMALL})
    first = send("POST", "/points", {"points": [{"x": 1.0, "time": "2026-01-31"}]}, headers)
    assert first[0] == 200
    assert send("POST", "/points", {"points": [{"x": 1.0, "time": "2026-01-31"}]}, headers) == first
    assert send("POST", "/points", {"points": [{"x": 1.0, "time": "2026-02-01"}]}, headers)[0] == 422


def test_a_feature_may_be_called_time(shared_server):
    send = sender(shared_server, "old")
    send("PUT", "", {"features": ["time", "x"], **SMALL})
    assert send("POST", "/points", {"points": [{"time": 3.0, "x": 1.0}]})[0] == 200
    status, response = send("POST", "/points", {"points": [{"time": "2026-01-31", "x": 1.0}]})
    assert (status, response["detail"]) == (422, "'time' of point 0 must be a number, but is \"2026-01-31\".")


# -- restarts -------------------------------------------------------------------------------------------------------


def posted(points):
    """Return the kind and content of the journal entry for points as a client posts them, and their number."""
    body = json.dumps({"points": points}).encode()
    rows = rows_of(body, "application/json", RowFormat(FEATURES, frozenset([1, 2]), allows_gaps=True), 10**5)
    return *entry_of_points(rows), len(points)


def learn(handle, points, request=None):
    reply = handle.worker.submit(*posted(points), request).result()
    assert reply.status == 200, reply
    return json.loads(reply.content)["results"]


@pytest.mark.parametrize("is_clean", [True, False])
def test_everything_is_restored_after_a_stop_or_a_kill(tmp_path, is_clean):
    registry = Registry(tmp_path / "live", retention=OFTEN)
    handle, _ = registry.create("orders", ORDERS)
    reference = plain_detector()
    timed = [{**row, "time": f"2026-01-31T12:{i // 60:02}:{i % 60:02}"} for i, row in enumerate(ROWS)]
    for first in range(0, 250, 10):
        assert learn(handle, timed[first : first + 10], f"id-{first}") == expected(reference, LISTS[first : first + 10])
    if not is_clean:
        shutil.copytree(tmp_path / "live", tmp_path / "killed")
    registry.close()
    registry = Registry(tmp_path / ("live" if is_clean else "killed"), retention=OFTEN)
    assert registry.damage_reports == []
    handle = registry.get("orders")
    rows = handle.worker.history.rows()
    assert [row.values for row in rows] == LISTS[:250]
    assert [row.own_time for row in rows] == [row["time"] for row in timed[:250]]
    learn(handle, timed[:10], "id-0")  # repeated: not learned again
    assert learn(handle, timed[250:]) == expected(reference, LISTS[250:])
    assert [row.values for row in handle.worker.history.rows()] == LISTS
    registry.close()


def test_a_detector_of_an_older_version_still_refuses_gaps(tmp_path, stream):
    registry = Registry(tmp_path)
    xy = {"features": ["x", "y"], **SMALL}
    registry.create("a", {**xy, "missing": "raise"})
    registry.writer.write(
        lambda store: store._database.execute(
            "UPDATE detectors SET configuration = json_remove(configuration, '$.missing', '$.categorical')"
        )
    )
    registry.close()
    registry = Registry(tmp_path)
    handle = registry.get("a")
    assert (handle.record.configuration["missing"], handle.record.configuration["categorical"]) == ("raise", [])
    assert registry.create("a", xy) == (handle, False)  # a client that does not know the setting
    with ThreadServer(create_app(registry)) as server:
        send = sender(server, "a")
        assert send("PUT", "", xy)[0] == 200
        assert send("PUT", "", xy | {"missing": "median"})[0] == 409
        assert send("POST", "/points", {"points": [[1.0, None]]})[0] == 422
        assert send("POST", "/points", {"points": stream.tolist()})[0] == 200
    registry.close()


# -- configurations and model files ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"categorical": ["contry"]}, "categorical must be a list of names of features, but has 'contry'."),
        ({"categorical": [1]}, "categorical: 0: Input should be a valid string"),
        ({"categorical": "country"}, "categorical: Input should be a valid list"),
        ({"categorical": ["country", "country"]}, "categorical has 'country' more than once."),
        ({"missing": "drop"}, "missing: Input should be 'raise', 'median', 'previous' or 'indicator'"),
    ],
)
def test_an_invalid_configuration_is_refused(shared_server, settings, message):
    status, response = sender(shared_server)("PUT", "", ORDERS | settings)
    assert status == 422
    assert message in response["detail"]


def test_the_order_of_the_categorical_features_does_not_matter(shared_server):
    send = sender(shared_server)
    assert send("PUT", "", ORDERS)[0] == 201
    assert send("PUT", "", ORDERS | {"categorical": ["is_new", "country"]})[0] == 200
    assert send("PUT", "", ORDERS | {"categorical": ["country"]})[0] == 409
    assert send("GET", "")[1]["configuration"]["categorical"] == ["country", "is_new"]


def test_the_memory_of_categories_and_gaps_counts():
    sizes = {"features": ["x"], "window": 10_000, "n_trees": 1}
    _, plain = checked_configuration({**sizes, "missing": "raise"}, Limits())
    _, with_categories = checked_configuration({**sizes, "categorical": ["x"]}, Limits())
    assert with_categories > plain + 10_000 * (16 + 16 + 9)  # place and rarity, codes and counts, gaps
    with pytest.raises(InvalidInputError, match=f"would need {with_categories} bytes"):
        checked_configuration({**sizes, "categorical": ["x"]}, Limits(detector_bytes=with_categories - 1))
    wide = {"features": [f"x{j}" for j in range(1_000)], "window": 70_000, "n_trees": 1, "max_samples": 1}
    with pytest.raises(InvalidInputError, match="With missing='median', a window can have at most 67108864 values"):
        checked_configuration(wide, Limits())


@pytest.mark.parametrize("settings", [{}, {"missing": "indicator"}, {"shingle": 2, "missing": "previous"}])
def test_a_model_file_is_downloaded_and_restored(shared_registry, shared_server, settings):
    send, reference = sender(shared_server), plain_detector(**settings)
    send("PUT", "", ORDERS | settings)
    send("POST", "/points", {"points": LISTS[:200]})
    reference.process_many(LISTS[:200])
    _, content = send("GET", "/model")
    assert from_bytes(content).feature_names == FEATURES
    assert put(shared_server, "copy", content) == (201, {"n_points": 200})
    assert shared_registry.get("copy").record.configuration == shared_registry.get("orders").record.configuration
    send("POST", "/points", {"points": LISTS[200:]})
    assert put(shared_server, "orders", content) == (200, {"n_points": 200})
    after = expected(reference, LISTS[200:])
    for name in ("orders", "copy"):
        assert sender(shared_server, name)("POST", "/points", {"points": LISTS[200:]})[1] == {"results": after}
    assert send("GET", "/history")[1]["index"] == list(range(200, 300))  # the rows before are those of another stream


def test_a_detector_with_categories_by_name_is_uploaded(shared_server):
    order = ["country", "is_new", "amount"]
    detector = StreamDetector(3, categorical=["country", "is_new"], **SMALL)
    assert put(shared_server, "named", to_bytes(detector))[0] == 422  # it does not know the order of its features
    detector.process_many(ROWS)
    assert put(shared_server, "named", to_bytes(detector)) == (201, {"n_points": 300})
    configuration = sender(shared_server, "named")("GET", "")[1]["configuration"]
    assert (configuration["features"], configuration["categorical"]) == (order, order[:2])
    rows = [[row[name] for name in order] for row in ROWS]
    found = sender(shared_server, "named")("POST", "/points", {"points": ROWS})[1]["results"]
    assert found == expected(detector, rows)


def test_a_model_with_other_categories_is_refused_before_it_is_journalled(shared_registry, shared_server):
    sender(shared_server)("PUT", "", ORDERS)
    before = n_rows(shared_registry)
    for other in ({"categorical": [0, 1]}, {"categorical": [1]}, {"missing": "raise"}, {"missing": "indicator"}):
        detector = StreamDetector(3, **({"categorical": [1, 2]} | SMALL | other))
        status, response = put(shared_server, "orders", to_bytes(detector))
        assert status == 422
        assert "The model file contains a different detector: " in response["detail"]
    assert n_rows(shared_registry) == before


# -- large numbers --------------------------------------------------------------------------------------------------


def test_many_distinct_categories_need_bounded_memory(tmp_path):
    n, length = 50_000, 200
    registry = Registry(tmp_path)
    handle, _ = registry.create("ids", {"features": ["x", "id"], "categorical": ["id"], **SMALL})
    with ThreadServer(create_app(registry)) as server:
        points = [[1.0, f"{i:0{length}}"] for i in range(n)]
        assert sender(server, "ids")("POST", "/points", {"points": points})[0] == 200
        rows = sender(server, "ids")("GET", "/history?limit=3")[1]
        assert [row[1] for row in rows["values"]] == [f"{i:0{length}}" for i in range(n - 3, n)]
        assert len(handle.worker.history.rows()) == 2_000
        for first in range(0, 10_000, 1_000):
            sender(server, "ids")("POST", "/points", {"points": points[first : first + 1_000]})
    history = handle.worker.history
    assert sum(len(block.labels) for block in history._blocks) < 4_000 * (length + 3)
    assert len(history.to_bytes()) < 2_000 * (length + 100)
    registry.close()
    registry = Registry(tmp_path)
    assert registry.get("ids").worker.history.rows()[-1].values == [1.0, f"{9_999:0{length}}"]
    registry.close()


def test_the_history_has_a_limit_of_bytes_for_labels():
    history, text = History(1, [0], Retention(history_label_bytes=10_000)), "x" * 250
    for i in range(2_000):
        code = category_code(f"{i} {text}")
        rows = rows_of(json.dumps({"points": [[f"{i} {text}"]]}).encode(), "", RowFormat(["id"], frozenset([0])), 1)
        kind, content = entry_of_points(rows)
        history.add(Entry(i + 1, kind, content, None, 0.0), [ScoredRow(i, 0.5, 1.0, False)])
    kept = history.rows()
    assert [row.number for row in kept] == list(range(2_000 - len(kept), 2_000))
    assert 30 < len(kept) < 40
    assert kept[-1].point == [code]


def test_the_history_after_a_restart_has_the_same_rows():
    """The labels of the rows of a request count once, before and after a restart."""
    retention, text = Retention(history_label_bytes=40_000), "x" * 250
    history, row_format = History(2, [1], retention), RowFormat(["a", "id"], frozenset([1]))
    for i in range(20):
        points = [[float(j), f"{i} {j % 10} {text}"] for j in range(100)]
        rows = rows_of(json.dumps({"points": points}).encode(), "", row_format, 100)
        kind, content = entry_of_points(rows)
        scored = [ScoredRow(100 * i + j, 0.5, 1.0, False) for j in range(100)]
        history.add(Entry(i + 1, kind, content, None, float(i)), scored)
    again = History(2, [1], retention)
    again.restore(history.to_bytes())
    assert 1_000 < len(history.rows()) < 2_000
    assert again.to_bytes() == history.to_bytes()
    assert list(map(repr, again.rows())) == list(map(repr, history.rows()))  # NaN is not equal to itself
    history.add(Entry(21, kind, content, None, 20.0), [row._replace(number=row.number + 100) for row in scored])
    again.add(Entry(21, kind, content, None, 20.0), [row._replace(number=row.number + 100) for row in scored])
    assert again.to_bytes() == history.to_bytes()


def test_parsing_many_categories_needs_little_memory():
    names = [f"x{j}" for j in range(20)]
    body = json.dumps({"points": [[f"{i} {j}" for j in range(20)] for i in range(3_000)]}).encode()
    row_format = RowFormat(names, frozenset(range(20)), max_labelled_rows=200)
    tracemalloc.start()
    try:
        rows = rows_of(body, "application/json", row_format, 10**5)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * len(body)
    assert rows.labels.values(rows.points[-200:], range(20))[0][3] == "2800 3"
