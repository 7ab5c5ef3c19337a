"""Detectors with a key for tests: rows, what a plain fleet makes of them, and requests."""

import json
import shutil

import numpy as np

from imondrian import Fleet
from imondrian.service.changes.journal import FORGET_KEY, SETTINGS, entry_of_points
from imondrian.service.changes.settings import Changes
from imondrian.service.http.bodies import rows_of
from imondrian.service.limits import Retention

SIZE = {"window": 64, "max_samples": 32, "n_trees": 6, "warm_up": 20, "threshold": 0.02}
HOSTS = {"features": ["load", "memory"], "key": "host", **SIZE, "gap": 8}
OFTEN = Retention(points_between_snapshots=100)
NAMES = ["web-1", "web-2", "", "a/b/../c", "quote \" ' \\", "日本 é 🎉", "null", "a\tb\n\x00", "7", "x" * 256]


def keyed_rows(seed=0, n_rows=1_500, names=NAMES, n_features=2):
    """Return keys and values of rows, some of them far away."""
    rng = np.random.default_rng(seed)
    keys = [names[i] for i in rng.integers(len(names), size=n_rows)]
    X = rng.normal(size=(n_rows, n_features)) + (rng.random((n_rows, 1)) < 0.03) * 10.0 ** rng.uniform(1.0, 4.0)
    return keys, X


def plain_fleet(**changes):
    """Return a fleet like those of detectors with the configuration `HOSTS`."""
    return Fleet(2, **{**SIZE, **changes}, rules={"gap": HOSTS["gap"]})


def expected(fleet, keys, X):
    """Return what the service should reply for rows."""
    results = fleet.process_many(keys, X)
    names = ("anomaly_score", "is_anomaly", "threshold", "index", "surprise", "incident", "is_borrowed")
    columns = zip(keys, *(column.tolist() for column in results), strict=True)
    rows = [dict(zip(("key", *names), row, strict=True)) for row in columns]
    return [{**row, "incident": None if row["incident"] < 0 else row["incident"]} for row in rows]


def points_of(keys, X):
    return [[key, *row] for key, row in zip(keys, X.tolist(), strict=True)]


def parsed(handle, points):
    return rows_of(json.dumps({"points": points}).encode(), "application/json", handle.row_format, 10**6)


def learn(handle, keys, X, request=None):
    """Post rows to the worker of a detector, and return the results."""
    rows = parsed(handle, points_of(keys, X))
    reply = handle.worker.submit(*entry_of_points(rows), len(keys), request).result()
    assert reply.status == 200, reply
    return json.loads(reply.content)["results"]


def forget(handle, key, request=None):
    return handle.worker.submit(FORGET_KEY, json.dumps(key).encode(), 0, request).result()


def change(handle, **settings):
    content = Changes.of(settings, handle.configuration).to_bytes()
    return handle.worker.submit(SETTINGS, content, 0).result()


def copied(registry, folder):
    """Return a copy of the folder of a registry, as after a kill."""
    target = folder / "killed"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(registry._store._path.parent, target)
    return target


def rows_shown(registry, name="hosts"):
    """Return the latest rows of every key."""
    handle = registry.get(name)
    rows, id_ = handle.worker.keys.rows, handle.record.id
    return {
        key: registry.writer.write(lambda store, key=key: rows.rows(store.latest_rows, id_, key))
        for key in rows.summaries
    }


def incidents_shown(registry, name="hosts"):
    """Return the incidents of all keys, in the order in which they are listed."""
    return [each.describe() for each in registry.get(name).worker.incidents.listed()]


def events_of(registry):
    return [json.loads(event.as_json()) for event in registry.writer.write(lambda store: store.events.after(0, 10**6))]


def blocks(cuts, n_rows):
    """Return the positions of rows that are posted together."""
    return [block for block in np.split(np.arange(n_rows), cuts) if block.size]
