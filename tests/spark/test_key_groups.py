"""Groups of keys: the same results as one detector per key, from memory and from bytes."""

import json
from hashlib import blake2b

import numpy as np
import pytest

from imondrian import InvalidInputError, StreamDetector
from imondrian.base.errors import DamagedFileError
from imondrian.spark.key_group import GroupCache, GroupSettings, KeyGroup, detector_settings, fits_fleet
from imondrian.spark.point_columns import Features

SIZES = {"window": 64, "max_samples": 16, "n_trees": 8, "warm_up": 10, "on_error": "skip"}
N_GROUPS = 4
COLUMNS = ("score", "surprise", "threshold", "is_anomaly", "incident")


def settings(on_error="skip", **options):
    detector = StreamDetector(3, **{**SIZES, **options})
    assert fits_fleet(detector)
    return GroupSettings(detector_settings(detector), N_GROUPS, Features(["a", "b", "c"], 3, ()), on_error)


def keyed_rows(n_rows=900, n_keys=7):
    """Rows with copies, zeros of both signs and anomalies, in a random order of keys."""
    rng = np.random.default_rng(1)
    X = np.round(rng.normal(size=(n_rows, 3)), 1)
    X[::10] = [0.0, -0.0, 0.25]
    X[n_rows // 2 :: 40] *= 9.0
    return [f'{{"key":"{i}"}}' for i in rng.integers(0, n_keys, n_rows)], X


def expected_results(keys, X, **options):
    table = np.empty((len(keys), len(COLUMNS)))
    for key in set(keys):
        rows = [i for i, each in enumerate(keys) if each == key]
        results = StreamDetector(3, **{**SIZES, **options}).process_many(X[rows])
        table[rows] = np.column_stack([getattr(results, name) for name in COLUMNS])
    return table


def processed(group, keys, X, options):
    return np.column_stack(group.process(keys, X, options))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"threshold": "kmeans"},
        {"threshold": "top 5%", "kind": "expected", "seed": 7},
        {"threshold": 0.01, "kind": "depth", "scale": None, "missing": "raise"},
        {"preset": "paper", "rules": {"min_points": 2, "gap": 3}},
        {"max_samples": None, "scale": [1.0, 0.5, 2.0]},
    ],
    ids=str,
)
@pytest.mark.parametrize("is_reread", [False, True], ids=["in memory", "reread"])
def test_results_equal_those_of_one_detector_per_key(options, is_reread):
    keys, X = keyed_rows()
    group, query, found = KeyGroup(N_GROUPS), settings(**options), []
    for first, end in ((0, 5), (5, 300), (300, 301), (301, 900)):
        found.append(processed(group, keys[first:end], X[first:end], query))
        if is_reread:
            group = KeyGroup.from_bytes(group.to_bytes(), N_GROUPS)
    np.testing.assert_array_equal(np.vstack(found), expected_results(keys, X, **options))


@pytest.mark.parametrize("missing", ["median", "previous", "raise"])
def test_missing_numbers_and_unusable_rows_equal_those_of_one_detector_per_key(missing):
    keys, X = keyed_rows()
    X[400::97, 1] = np.nan  # several keys, and some keys never
    X[450:452, 2], X[460] = np.inf, np.nan
    group, query, found = KeyGroup(N_GROUPS), settings(missing=missing), []
    for first, end in ((0, 300), (300, 460), (460, 900)):
        found.append(processed(group, keys[first:end], X[first:end], query))
        group = KeyGroup.from_bytes(group.to_bytes(), N_GROUPS)
    np.testing.assert_array_equal(np.vstack(found), expected_results(keys, X, missing=missing))
    assert group.n_keys == 7


def test_the_first_row_of_a_key_may_have_a_gap():
    X = np.array([[1.0, np.nan, 2.0], [1.0, 3.0, 2.0]] * 20)
    found = processed(KeyGroup(N_GROUPS), ["x"] * 40, X, settings())
    np.testing.assert_array_equal(found, expected_results(["x"] * 40, X))


def test_an_unusable_row_is_named():
    with pytest.raises(InvalidInputError, match="the feature 'b' of a row is inf"):
        KeyGroup(N_GROUPS).process(["x"], np.array([[1.0, np.inf, 2.0]]), settings("raise"))


def test_keys_retain_the_settings_with_which_they_were_created():
    keys, X = keyed_rows()
    is_old = np.array([key < '{"key":"4"}' for key in keys])
    group = KeyGroup(N_GROUPS)
    names = np.array(keys, object)
    group.process(names[is_old][:50], X[is_old][:50], settings())
    group = KeyGroup.from_bytes(group.to_bytes(), N_GROUPS)
    rest = np.ones(len(keys), np.bool_)
    rest[np.flatnonzero(is_old)[:50]] = False
    found = processed(group, names[rest], X[rest], settings(window=32, threshold="kmeans"))
    for chosen, options in ((is_old, {}), (~is_old, {"window": 32, "threshold": "kmeans"})):
        expected = expected_results(names[chosen].tolist(), X[chosen], **options)
        np.testing.assert_array_equal(found[chosen[rest]], expected[rest[chosen]])
    assert KeyGroup.from_bytes(group.to_bytes(), N_GROUPS).to_bytes() == group.to_bytes()


def test_more_keys_than_a_shard_of_a_fleet_are_packed():
    X = np.random.default_rng(0).normal(size=(1200, 3))
    keys = [str(i % 300) for i in range(1200)]
    group, query = KeyGroup(N_GROUPS), settings()
    first = processed(group, keys[:700], X[:700], query)
    group = KeyGroup.from_bytes(group.to_bytes(), N_GROUPS)
    second = processed(group, keys[700:], X[700:], query)
    np.testing.assert_array_equal(np.vstack([first, second]), expected_results(keys, X))


def test_idle_keys_are_removed():
    group, query = KeyGroup(N_GROUPS), settings()
    X = np.array([[1.0, 2.0, 3.0], [1.0, np.nan, 3.0], [2.0, 2.0, 2.0]])
    group.process(["x", "y", "z"], X, query)
    group.deadlines = {"x": 10, "y": 11, "z": 12}
    group.remove_before(12)
    group = KeyGroup.from_bytes(group.to_bytes(), N_GROUPS)
    assert (group.n_keys, group.deadlines) == (1, {"z": 12})
    np.testing.assert_array_equal(
        processed(group, ["x"], X[:1], query), expected_results(["x"], X[:1])
    )  # x begins again


@pytest.mark.parametrize(
    "options",
    [
        {"preset": "series"},
        {"categorical": [0]},
        {"missing": "indicator"},
        {"learn_anomalies": False},
        {"shingle": 2},
    ],
    ids=str,
)
def test_settings_that_a_fleet_lacks_are_left_to_single_detectors(options):
    assert not fits_fleet(StreamDetector(3, **options))


# -- bytes --------------------------------------------------------------------------------------------------------


def filled_group():
    keys, X = keyed_rows(300)
    group = KeyGroup(N_GROUPS)
    X[200, 1] = np.nan
    group.process(keys, X, settings())
    return group


def test_a_state_of_another_form_is_refused():
    with pytest.raises(InvalidInputError, match=r"earlier version of imondrian, .*Use a new checkpoint"):
        GroupCache().pop(0, b"PK\x03\x04 a detector", N_GROUPS)


def test_another_number_of_groups_is_refused():
    with pytest.raises(InvalidInputError, match="created with n_groups=4, but this query has n_groups=5"):
        KeyGroup.from_bytes(filled_group().to_bytes(), 5)


def test_a_damaged_state_is_refused():
    content = filled_group().to_bytes()
    for position in np.random.default_rng(0).integers(20, len(content), 30):
        damaged = bytearray(content)
        damaged[position] ^= 1
        with pytest.raises(DamagedFileError, match=r"digest .*does not match"):
            KeyGroup.from_bytes(bytes(damaged), N_GROUPS)


def with_digest(content):
    """Return the content of a group with the digest of its header."""
    end = 24 + int.from_bytes(content[20:24], "little")
    return content[:4] + blake2b(content[24:end], digest_size=16).digest() + content[20:]


def test_a_damaged_header_with_a_valid_digest_is_refused_or_harmless():
    content, rng = filled_group().to_bytes(), np.random.default_rng(0)
    keys, X = keyed_rows(50)
    n_header, n_refused = int.from_bytes(content[20:24], "little"), 0
    for position in rng.integers(20, 24 + n_header, 200):
        damaged = bytearray(content)
        damaged[position] = int(rng.integers(256))
        try:
            group = KeyGroup.from_bytes(with_digest(bytes(damaged)), N_GROUPS)
        except (DamagedFileError, InvalidInputError):
            n_refused += 1
        else:
            group.process(keys, X, settings())
    assert n_refused > 20


def test_states_of_keys_cannot_be_exchanged():
    """The states of two keys are valid, but the digests in the header say which is which."""
    group = KeyGroup(N_GROUPS)
    X = np.random.default_rng(0).normal(size=(2, 3))
    group.process(["x", "y"], X, settings())
    content = group.to_bytes()
    first = 24 + int.from_bytes(content[20:24], "little")
    middle = first + (len(content) - first) // 2
    exchanged = content[:first] + content[middle:] + content[first:middle]
    assert len(exchanged) == len(content)
    with pytest.raises(DamagedFileError, match="the digest of the key 'x' does not match"):
        KeyGroup.from_bytes(exchanged, N_GROUPS)


def test_the_cache_returns_groups_by_their_bytes():
    cache, group = GroupCache(), filled_group()
    content = cache.put(0, group)
    assert cache.pop(0, content, N_GROUPS) is group
    again = cache.pop(0, content, N_GROUPS)  # no longer cached, so the bytes are read
    assert again is not group
    assert again.to_bytes() == content


def test_a_stale_group_lends_its_memory_to_the_state():
    keys, X = keyed_rows()
    cache, query = GroupCache(), settings()
    group = KeyGroup(N_GROUPS)
    group.process(keys[:300], X[:300], query)
    content = group.to_bytes()
    group.process(["other", *keys[300:400]], np.vstack([X[:1], X[300:400]]), query)
    cache.put(0, group)  # a failed attempt
    again = cache.pop(0, content, N_GROUPS)
    assert again.to_bytes() == content
    np.testing.assert_array_equal(processed(again, keys[300:], X[300:], query), expected_results(keys, X)[300:])


def test_the_cache_is_bounded():
    group = filled_group()
    cache = GroupCache(max_bytes=group.n_bytes - 1)
    assert cache.pop(0, cache.put(0, group), N_GROUPS) is not group


def test_settings_are_plain_json():
    text = json.loads(settings(rules={"side": {1: "high"}}).detector)
    assert text["missing"] == "median"
    assert text["fleet"]["window"] == 64
