"""Keys and common state as bytes: a fleet that is put back goes on as if nothing had happened."""

import json
from hashlib import blake2b

import numpy as np
import pytest

import imondrian
from imondrian import DamagedFileError, Fleet, InvalidInputError
from imondrian.base.errors import StoreError
from imondrian.fleet import key_states, packed_keys
from imondrian.model_files import load_extra
from tests.fleet.fleets import SIZES, assert_same, new_fleet, orders, rows_with_anomalies

N_ROWS = 600
KEYS = orders(N_ROWS)["random"]
X = rows_with_anomalies(N_ROWS)
ZEROS = np.where(np.random.default_rng(1).random(X.shape) < 0.4, np.copysign(0.0, X), np.round(X, 1))
BYTES = new_fleet().bytes_per_key
DIGEST_BYTES = 16
SETTINGS = [
    {},
    {"borrow": True, "threshold": "kmeans"},
    {"kind": "expected", "scale": [1.0, 2.0], "threshold": 0.1},
    {"kind": "depth", "scale": None, "threshold": "top 5%", "max_samples": None},
    {"preset": "paper", "on_error": "skip", "rules": {"gap": 2}, "threshold": 0.2},
]


def unpacked(fleet, **settings):
    """Return a fleet with the packed common state and the packed keys of another one."""
    copy = Fleet.unpack_common(fleet.pack_common(), **settings)
    for key in fleet.key_changes().changed:
        copy.unpack_key(key, fleet.pack_key(key))
    return copy


def states(fleet):
    """Return everything that a fleet has learned, in the form of the store."""
    return {key: key_states.to_bytes(fleet._state.table.state_of(key)) for key in fleet}


def with_digest(content):
    return blake2b(content, digest_size=DIGEST_BYTES).digest() + bytes(content)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("rows", [X, ZEROS], ids=["numbers", "zeros of both signs"])
def test_an_unpacked_fleet_goes_on_like_the_original(settings, rows):
    fleet = new_fleet(**settings)
    fleet.process_many(KEYS[:400], rows[:400])
    fleet.extra = {"a": [1, None]}
    copy = unpacked(fleet, n_jobs=2)
    assert states(copy) == states(fleet)
    assert (copy.n_rows, copy.keys(), copy.incidents) == (400, fleet.keys(), fleet.incidents)
    assert copy.parameters | {"n_jobs": 1} == fleet.parameters
    assert copy.extra == {"a": [1, None]}
    assert_same(copy.process_many(KEYS[400:], rows[400:]), fleet.process_many(KEYS[400:], rows[400:]))
    assert (copy.incidents, copy.events) == (fleet.incidents, fleet.events)
    assert states(copy) == states(fleet)
    assert {key: copy.pack_key(key) for key in copy} == {key: fleet.pack_key(key) for key in fleet}


def test_the_common_forest_is_part_of_the_common_state():
    """New keys of the copy borrow the same scores."""
    keys, rows = [i % 40 for i in range(21_000)], rows_with_anomalies(21_000, seed=3)
    fleet = new_fleet(borrow=True, warm_up=20)
    fleet.process_many(keys, rows)
    copy = unpacked(fleet)
    new = [f"new {i % 5}" for i in range(95)]
    results = fleet.process_many(new, rows[:95])
    assert results.is_borrowed.any()
    assert_same(copy.process_many(new, rows[:95]), results)


class Snapshot:
    """A copy of a fleet outside of it: only changed keys are packed."""

    def __init__(self):
        self.common, self.keys, self.n_packed = b"", {}, []

    def update(self, fleet):
        changed, removed = fleet.key_changes()
        self.common = fleet.pack_common()
        for key in removed:
            self.keys.pop(key, None)
        for key in changed:
            self.keys.pop(key, None)
            self.keys[key] = fleet.pack_key(key)
        self.n_packed.append(len(changed))
        fleet.confirm_key_changes()

    def fleet(self, **settings):
        fleet = Fleet.unpack_common(self.common, **settings)
        for key, state in self.keys.items():
            fleet.unpack_key(key, state)
        fleet.confirm_key_changes()
        return fleet


@pytest.mark.parametrize("has_store", [False, True])
def test_incremental_snapshots_contain_the_fleet(tmp_path, has_store):
    """Meanwhile keys are dropped or stored, forgotten and started again."""
    paths = [tmp_path / "fleet.db", tmp_path / "copy.db"] if has_store else [None, None]
    fleet, snapshot = new_fleet(max_bytes=8 * BYTES, store=paths[0], borrow=True, threshold=0.2), Snapshot()
    for first in range(0, N_ROWS, 5):
        if first % 100 == 50:
            fleet.forget(KEYS[first - 1])
        if first % 30 == 0:
            snapshot.update(fleet)
            assert fleet.key_changes() == ([], [])
            assert snapshot.keys == {key: fleet.pack_key(key) for key in fleet}
        fleet.process_many(KEYS[first : first + 5], X[first : first + 5])
    snapshot.update(fleet)
    with fleet, snapshot.fleet(max_bytes=8 * BYTES, store=paths[1]) as copy:
        assert copy.key_changes() == ([], [])
        assert_same(copy.process_many(KEYS, X), fleet.process_many(KEYS, X))
        assert (copy.keys(), copy.n_dropped, copy.incidents) == (fleet.keys(), fleet.n_dropped, fleet.incidents)
        assert (fleet.n_dropped > 0) == (not has_store)
        assert states(copy) == states(fleet)
    assert min(snapshot.n_packed[1:]) < len(set(KEYS))


def test_changes_are_returned_until_they_are_confirmed():
    fleet = new_fleet()
    fleet.process_many(["a", "b", "c"], X[:3])
    assert fleet.key_changes() == (["a", "b", "c"], [])
    fleet.process_many(["b", "d"], X[:2])
    assert fleet.key_changes() == (["a", "c", "b", "d"], [])
    fleet.process("a", X[4])
    fleet.confirm_key_changes()
    assert fleet.key_changes() == (["a"], [])
    fleet.forget("b")
    fleet.confirm_key_changes()
    assert fleet.key_changes() == ([], ["b"])
    fleet.process("b", X[0])
    assert fleet.key_changes() == (["b"], [])
    fleet.unpack_key("e", fleet.pack_key("a"))
    assert fleet.key_changes() == (["b", "e"], [])


def test_confirming_without_a_question_starts_to_record():
    fleet = new_fleet()
    fleet.process_many(["a", "b", "c"], X[:3])
    fleet.confirm_key_changes()
    assert fleet.key_changes() == ([], [])
    fleet.process("b", X[3])
    assert fleet.key_changes() == (["b"], [])


def test_reading_and_saving_change_no_key(tmp_path):
    with new_fleet(store=tmp_path / "fleet.db", max_bytes=2 * BYTES) as fleet:
        fleet.process_many([1, 2, 3, 4], X[:4])
        fleet.confirm_key_changes()
        fleet.save()
        fleet.detector(1)
        fleet.explain(2, X[0])
        fleet.pack_key(3)
        assert fleet.key_changes() == ([], [])
        fleet.process(1, X[0])
        fleet.save()
        fleet.process(2, X[0])
        assert fleet.key_changes() == ([1, 2], [])


def test_a_key_can_be_moved_to_another_fleet():
    fleet, other = new_fleet(), new_fleet()
    fleet.process_many(["a"] * 60, X[:60])
    other.process_many(["b"] * 10, X[:10])
    other.unpack_key("a", fleet.pack_key("a"))
    assert_same(other.process_many(["a"] * 60, X[60:120]), fleet.process_many(["a"] * 60, X[60:120]))


def test_an_unpacked_key_makes_room(tmp_path):
    source = new_fleet()
    source.process_many(["a", "b", "c"], X[:3])
    dropping = new_fleet(max_bytes=2 * BYTES)
    with new_fleet(max_bytes=2 * BYTES, store=tmp_path / "fleet.db") as storing:
        for fleet in (dropping, storing):
            for key in "abc":
                fleet.unpack_key(key, source.pack_key(key))
            assert fleet.n_bytes == 2 * BYTES
        assert (dropping.keys(), dropping.n_dropped) == (["b", "c"], 1)
        assert storing.keys() == ["a", "b", "c"]
        storing.save()
        assert_same(storing.process_many(["a", "b", "c"], X[3:6]), source.process_many(["a", "b", "c"], X[3:6]))


def test_forgetting_all_keys_leaves_an_empty_fleet(tmp_path):
    fleet = new_fleet(max_bytes=3 * BYTES, store=tmp_path / "fleet.db", threshold=0.2)
    with fleet:
        fleet.process_many(KEYS, X)
        fleet.save()
        assert fleet.forget_all() is fleet
        assert (len(fleet), fleet.n_bytes, fleet.incidents, fleet.n_rows) == (0, 0, (), N_ROWS)
        fresh = new_fleet(threshold=0.2)
        assert_same(fleet.process_many(KEYS, X), fresh.process_many(KEYS, X))
        fleet.forget_all()
        fleet.save()
    with Fleet.load(tmp_path / "fleet.db") as loaded:
        assert len(loaded) == 0


# -- damage -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fleet():
    fleet = new_fleet(borrow=True, threshold=0.2)
    fleet.process_many(KEYS, X)
    return fleet


def packed(fleet, key):
    """Return the packed states of a key in both forms."""
    state = fleet._state.table.state_of(key)
    return packed_keys.pack(state), key_states.to_bytes(state)


def test_flipped_bits_are_found(fleet):
    rng = np.random.default_rng(0)
    contents = [(content, lambda damaged: new_fleet().unpack_key(3, damaged)) for content in packed(fleet, 3)]
    for content, unpack in [*contents, (fleet.pack_common(), Fleet.unpack_common)]:
        for position in [0, 15, 16, 17, 20, *rng.integers(0, len(content), 20).tolist()]:
            damaged = bytearray(content)
            damaged[position] ^= 1 << int(rng.integers(8))
            with pytest.raises(DamagedFileError, match="damaged: the digest does not match"):
                unpack(bytes(damaged))


@pytest.mark.parametrize("length", [0, 1, 16, 20, 24, 500, -1])
def test_bytes_that_were_cut_are_damaged(fleet, length):
    for content in packed(fleet, 3):
        for damaged in (content[:length], with_digest(content[DIGEST_BYTES:][:length])):
            with pytest.raises(DamagedFileError, match="state of the key 3 is damaged"):
                new_fleet().unpack_key(3, damaged)
    for damaged in (fleet.pack_common()[:length], with_digest(fleet.pack_common()[DIGEST_BYTES:][:length])):
        with pytest.raises(DamagedFileError):
            Fleet.unpack_common(damaged)


def test_added_bytes_are_damage(fleet):
    for content in packed(fleet, 3):
        with pytest.raises(DamagedFileError, match="bytes, but should have"):
            new_fleet().unpack_key(3, with_digest(content[DIGEST_BYTES:] + b"\0"))


@pytest.mark.parametrize("wrong", [None, 3, "text", [], b"IMP1"], ids=repr)
def test_other_things_than_packed_states_are_refused(wrong):
    with pytest.raises(ValueError, match="damaged"):
        new_fleet().unpack_key(3, wrong)
    with pytest.raises(ValueError, match="damaged"):
        Fleet.unpack_common(wrong)


def test_states_that_no_fleet_writes_are_damaged_or_harmless_even_if_the_digest_matches(fleet):
    """Kernels never see what is impossible, and the fleet is not changed by what is refused."""
    rng, n_refused, target = np.random.default_rng(1), 0, new_fleet(borrow=True, threshold=0.2)
    target.process_many(KEYS[:50], X[:50])
    target.forget(3)
    before = states(target)
    for content in packed(fleet, 3):
        for i in range(300):
            body = bytearray(content[DIGEST_BYTES:])
            at = int(rng.integers(0, len(body) - 8))
            body[at : at + 8] = [b"\xff" * 8, b"\x00" * 8, rng.bytes(8)][i % 3]
            try:
                target.unpack_key(3, with_digest(body))
            except DamagedFileError as error:
                n_refused += "key 3" in str(error) and "\n" not in str(error)
            else:
                target.process_many([3] * 40, X[:40])
                target.forget(3)
            assert states(target) == before
    assert n_refused > 300


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"n_rows": 600', '"n_rows": -1'),
        ('"version": 1', '"version": 2'),
        ('"window": 32', '"window": 33333333333333'),
        ('"format": "imondrian fleet"', '"format": "other"'),
        ('"watch": {}', '"watch": 3'),
        ('"borrow": true', '"borrow": 1'),
    ],
)
def test_a_common_state_that_no_fleet_writes_is_damaged(fleet, old, new):
    content = fleet.pack_common()[DIGEST_BYTES:]
    n_header = int.from_bytes(content[4:8], "little")
    header = content[8 : 8 + n_header].decode()
    assert old in header
    changed = header.replace(old, new).encode()
    body = content[:4] + len(changed).to_bytes(4, "little") + changed + content[8 + n_header :]
    with pytest.raises(DamagedFileError) as found:
        Fleet.unpack_common(with_digest(body))
    assert "\n" not in str(found.value)
    if "format" in old:
        assert "its format must be 'imondrian fleet', but is 'other'" in str(found.value)


def test_a_key_of_a_fleet_with_other_sizes_is_damaged(fleet):
    for sizes in ({"n_trees": 6}, {"window": 64}, {"max_samples": 16}):
        other = new_fleet(**sizes)
        other.process_many([3] * 40, X[:40])
        with pytest.raises(DamagedFileError):
            new_fleet().unpack_key(3, other.pack_key(3))
    assert SIZES["n_trees"] == fleet.parameters["n_trees"]


def test_wrong_keys_are_named(fleet):
    with pytest.raises(InvalidInputError, match="There is no key 'missing'"):
        fleet.pack_key("missing")
    with pytest.raises(InvalidInputError, match="The fleet already has the key 3"):
        fleet.unpack_key(3, fleet.pack_key(3))
    with pytest.raises(InvalidInputError, match="text or an integer"):
        fleet.unpack_key(3.5, fleet.pack_key(3))


def test_a_closed_fleet_packs_nothing():
    fleet = new_fleet()
    fleet.process("a", X[0])
    state = fleet.pack_key("a")
    fleet.close()
    calls = [
        fleet.pack_common,
        fleet.key_changes,
        fleet.confirm_key_changes,
        fleet.forget_all,
        lambda: fleet.pack_key("a"),
        lambda: fleet.unpack_key("b", state),
    ]
    for call in calls:
        with pytest.raises(StoreError, match="closed"):
            call()


# -- extra ------------------------------------------------------------------------------------------------------------


def test_extra_values_are_saved_with_a_fleet(tmp_path):
    with new_fleet(store=tmp_path / "fleet.db") as fleet:
        assert fleet.extra == {}
        fleet.save()
        fleet.extra = {"a": [1, "🦆"]}
        fleet.extra["b"] = 3  # a copy
        fleet.save(tmp_path / "copy.db")
    assert load_extra(tmp_path / "copy.db") == {"a": [1, "🦆"]}
    assert load_extra(tmp_path / "fleet.db") == {}
    with imondrian.load(tmp_path / "copy.db") as loaded:
        assert loaded.extra == {"a": [1, "🦆"]}
        imondrian.save(loaded, tmp_path / "third.db")
        imondrian.save(loaded, tmp_path / "fourth.db", {"c": None})
    assert load_extra(tmp_path / "third.db") == {"a": [1, "🦆"]}
    assert load_extra(tmp_path / "fourth.db") == {"c": None}


@pytest.mark.parametrize("wrong", [None, [], "text", {"a": {1, 2}}, {(1, 2): 3}, {"a": b""}], ids=repr)
def test_extra_values_must_be_a_dictionary_of_json_values(wrong):
    fleet = new_fleet()
    fleet.extra = {"a": 1}
    with pytest.raises(InvalidInputError, match="extra must"):
        fleet.extra = wrong
    assert fleet.extra == {"a": 1}


def test_extra_values_are_plain_json(tmp_path):
    with new_fleet(store=tmp_path / "fleet.db") as fleet:
        fleet.extra = {1: (1.5, True)}
        assert fleet.extra == {"1": [1.5, True]} == json.loads(json.dumps(fleet.extra))
