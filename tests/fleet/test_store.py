"""The store: save, resume, incremental saves, crashes, damage, a full disk, and a second process."""

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
from hashlib import blake2b

import numpy as np
import pytest

from imondrian import DamagedFileError, Fleet, InvalidInputError
from imondrian.base.errors import StoreError
from tests.fleet.fleets import SIZES, assert_same, new_fleet, orders, rows_with_anomalies

N_ROWS = 600
KEYS = orders(N_ROWS)["random"]
X = rows_with_anomalies(N_ROWS)
SETTINGS = {"threshold": 0.1, "rules": {"gap": 3, "side": {"b": "high"}}, "scale": [1.0, 2.0], "kind": "expected"}
NAMED = [dict(zip("ab", row, strict=True)) for row in X]
BYTES = new_fleet().bytes_per_key


def named_fleet(**settings):
    fleet = new_fleet(**{**SETTINGS, "rules": {"gap": 3}, **settings})
    fleet.process_many(KEYS[:100], NAMED[:100])
    fleet.rules = SETTINGS["rules"]
    return fleet


def contents(path):
    """Return the states in a store that is closed."""
    base = sqlite3.connect(path)
    rows = dict(base.execute("SELECT key, state FROM saved").fetchall())
    base.close()
    return rows


@pytest.mark.parametrize("borrow", [False, True])
@pytest.mark.parametrize("max_keys", [None, 2])
def test_a_saved_and_loaded_fleet_goes_on_as_if_never_saved(tmp_path, borrow, max_keys):
    free, path = named_fleet(borrow=borrow), tmp_path / "fleet.db"
    max_bytes = None if max_keys is None else max_keys * BYTES
    with named_fleet(borrow=borrow, store=path, max_bytes=max_bytes) as fleet:
        for first in range(100, 400, 100):
            assert_same(
                fleet.process_many(KEYS[first : first + 100], X[first : first + 100]),
                free.process_many(KEYS[first : first + 100], X[first : first + 100]),
            )
            fleet.save()
        fleet.process_many(KEYS[400:], X[400:])  # is not saved
    with Fleet.load(path, max_bytes=max_bytes, n_jobs=2) as loaded:
        assert (loaded.n_rows, loaded.incidents, loaded.keys()) == (400, free.incidents, free.keys())
        assert loaded.feature_names == ["a", "b"]
        assert loaded.parameters | {"n_jobs": 1} == free.parameters
        assert (loaded.threshold, loaded.rules) == (free.threshold, free.rules)
        assert_same(loaded.process_many(KEYS[400:], X[400:]), free.process_many(KEYS[400:], X[400:]))
        assert (loaded.incidents, loaded.events) == (free.incidents, free.events)
    assert not (tmp_path / "fleet.db-spill").exists()


def test_a_copy_has_all_keys_and_the_store_is_not_changed(tmp_path):
    fleet = named_fleet(store=tmp_path / "fleet.db", max_bytes=2 * BYTES)
    fleet.process_many(KEYS[100:], X[100:])
    fleet.save(tmp_path / "copy.db")
    fleet.process_many(KEYS[:50], X[:50])
    fleet.close()
    assert contents(tmp_path / "fleet.db") == {}
    free = named_fleet()
    free.process_many(KEYS[100:], X[100:])
    free.save(tmp_path / "free.db")
    assert contents(tmp_path / "free.db") == contents(tmp_path / "copy.db")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy.db", "fleet.db", "free.db"]
    free.save(tmp_path / "copy.db")  # replaces it
    with Fleet.load(tmp_path / "copy.db") as loaded:
        assert_same(loaded.process_many(KEYS, X), free.process_many(KEYS, X))


def test_a_save_writes_only_the_keys_that_changed(tmp_path):
    written = []
    fleet = new_fleet(store=tmp_path / "fleet.db", max_bytes=100 * BYTES)
    fleet.process_many(range(50), X[:50])
    store = fleet._state.table.store
    save = store.save
    store.save = lambda facts, states: save(facts, (written.append(key) or (key, state) for key, state in states))
    fleet.save()
    assert sorted(written) == list(range(50))
    written.clear()
    fleet.save()
    assert written == []
    fleet.process_many([7, 9, 7], X[:3])
    fleet.detector(11)
    fleet.explain(12, X[0])
    fleet.save()
    assert sorted(written) == [7, 9]
    fleet.close()
    before = contents(tmp_path / "fleet.db")
    with Fleet.load(tmp_path / "fleet.db", max_bytes=3 * BYTES) as fleet:
        fleet.process_many([5, 6], X[:2])
        fleet.process_many([1, 2, 3, 4], X[:4])  # the first ones are spilled
        fleet.save()
    after = contents(tmp_path / "fleet.db")
    assert {key for key in after if after[key] != before[key]} == {b"i1", b"i2", b"i3", b"i4", b"i5", b"i6"}


PROGRAM = """
    import os, signal, sys
    import numpy as np
    from imondrian import Fleet
    from tests.fleet.fleets import KEYS, new_fleet
    keys, X = [KEYS[i % 9] for i in range(400)], np.random.default_rng(0).normal(size=(400, 2))
    fleet = new_fleet(store=sys.argv[1], max_bytes=3 * new_fleet().bytes_per_key)
    fleet.process_many(keys[:100], X[:100])
    fleet.save()
    fleet.process_many(keys[100:200], X[100:200])
    fleet.save()
    fleet.forget(3)
    fleet.process_many(keys[200:300], X[200:300])
    when = sys.argv[2]
    if when == "inside":
        base = fleet._state.table.store._base
        base.set_progress_handler(lambda: os.kill(os.getpid(), signal.SIGKILL), int(sys.argv[3]))
        fleet.save()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
@pytest.mark.parametrize("when", [["between"], ["inside", "60"]])
def test_after_a_crash_the_store_has_the_last_save(tmp_path, when):
    path = tmp_path / "fleet.db"
    run = subprocess.run([sys.executable, "-c", textwrap.dedent(PROGRAM), path, *when], check=False)
    assert run.returncode == -signal.SIGKILL
    assert (tmp_path / "fleet.db-spill").exists()
    free = new_fleet()
    keys, rows = [orders(9)["in turn"][i % 9] for i in range(400)], np.random.default_rng(0).normal(size=(400, 2))
    free.process_many(keys[:200], rows[:200])
    with Fleet.load(path) as loaded:
        assert (loaded.n_rows, loaded.keys()) == (200, free.keys())
        assert_same(loaded.process_many(keys[200:], rows[200:]), free.process_many(keys[200:], rows[200:]))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "fleet.db"
    with named_fleet(store=path, borrow=True) as fleet:
        fleet.process_many(KEYS[100:], X[100:])
        fleet.save()
    return path.read_bytes()


def load_and_use(path):
    with Fleet.load(path) as fleet:
        for key in fleet:
            fleet.process(key, X[0])


def test_flipped_bits_of_a_store_are_found_or_harmless(tmp_path, saved):
    rng, path, n_found = np.random.default_rng(0), tmp_path / "fleet.db", 0
    for position in [0, 5, 17, 40, 70, 100, *rng.integers(0, len(saved), 40).tolist()]:
        damaged = bytearray(saved)
        damaged[position] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        try:
            load_and_use(path)
        except (DamagedFileError, StoreError) as error:
            n_found += "\n" not in str(error)
    assert n_found > 20


@pytest.mark.parametrize("length", [1, 100, 511, 4096, 5000, -4096, -1])
def test_a_store_that_was_cut_is_damaged(tmp_path, saved, length):
    path = tmp_path / "fleet.db"
    path.write_bytes(saved[:length])
    with pytest.raises((DamagedFileError, StoreError)):
        load_and_use(path)


def test_states_that_no_fleet_writes_are_damaged_even_if_the_digest_matches(tmp_path, saved):
    """Every word of the arrays is overwritten once in a while; kernels never see what is impossible."""
    path, rng, n_found = tmp_path / "fleet.db", np.random.default_rng(1), 0
    path.write_bytes(saved)
    base = sqlite3.connect(path, isolation_level=None)
    key, state = base.execute("SELECT key, state FROM saved WHERE key = ?", (b"t3",)).fetchone()
    base.close()
    for i in range(150):
        content = bytearray(state[16:])
        at = int(rng.integers(0, len(content) - 8))
        content[at : at + 8] = [b"\xff" * 8, b"\x00" * 8, rng.bytes(8)][i % 3]
        base = sqlite3.connect(path, isolation_level=None)
        digest = blake2b(content, digest_size=16).digest()
        base.execute("UPDATE saved SET state = ? WHERE key = ?", (digest + bytes(content), key))
        base.close()
        with Fleet.load(path) as fleet:
            try:
                fleet.process("3", X[0])
            except DamagedFileError as error:
                n_found += "'3'" in str(error) and "\n" not in str(error)
            n_rows = fleet.n_rows
            fleet.process(3, X[0])  # other keys are not concerned
            assert (fleet.n_rows, len(fleet)) == (n_rows + 1, 15)
    assert n_found > 75


def changed_header(old, new):
    """Return the statement that replaces a text in the header of a store."""
    return f"UPDATE facts SET value = CAST(replace(value, '{old}', '{new}') AS BLOB) WHERE name = 'header'"  # noqa: S608


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE saved SET state = 5",
        "UPDATE saved SET state = 'text'",
        "UPDATE saved SET state = x''",
        "UPDATE saved SET state = substr(state, 1, 5000)",
        "UPDATE saved SET key = x'00' WHERE key = x'7433'",
        "UPDATE saved SET key = x'692b35' WHERE key = x'7433'",
        "UPDATE facts SET value = x''",
        "UPDATE facts SET value = 'text' WHERE name = 'common'",
        "UPDATE facts SET value = '[]' WHERE name = 'header'",
        changed_header("expected", "depth"),
        changed_header('"n_trees": 5', '"n_trees": 1000000000'),
        changed_header('"n_rows": 600', '"n_rows": -1'),
        changed_header('"version": 1', '"version": 2'),
        changed_header('"window": 32', '"window": 33'),
        "DELETE FROM facts",
        "DELETE FROM facts WHERE name = 'common'",
        "DROP TABLE saved",
        "PRAGMA application_id = 0",
        "CREATE TABLE other (x)",
        "CREATE TRIGGER t AFTER INSERT ON saved BEGIN DELETE FROM saved; END",
    ],
)
def test_contents_that_no_fleet_writes_are_damaged(tmp_path, saved, change):
    path = tmp_path / "fleet.db"
    path.write_bytes(saved)
    base = sqlite3.connect(path, isolation_level=None)
    base.execute(change)
    base.close()
    with pytest.raises(DamagedFileError) as found:
        load_and_use(path)
    assert "\n" not in str(found.value)


def test_other_files_are_not_stores(tmp_path):
    text = tmp_path / "notes.txt"
    text.write_text("host,cpu\n" * 200)
    other = tmp_path / "other.db"
    base = sqlite3.connect(other)
    base.execute("CREATE TABLE people (name)")
    base.commit()
    base.close()
    for path in (text, other):
        before = path.read_bytes()
        with pytest.raises(DamagedFileError, match=path.name):
            Fleet.load(path)
        with pytest.raises(DamagedFileError, match=path.name):
            Fleet(1, store=path)
        assert path.read_bytes() == before
    with pytest.raises(FileNotFoundError, match=r"missing\.db"):
        Fleet.load(tmp_path / "missing.db")
    with pytest.raises(StoreError, match="cannot be used"):
        Fleet(1, store=tmp_path / "no folder" / "fleet.db")
    with pytest.raises(DamagedFileError, match="no fleet was saved"):
        Fleet(1, store=tmp_path / "new.db").close() or Fleet.load(tmp_path / "new.db")


def test_a_full_disk_is_an_error_and_the_fleet_goes_on(tmp_path):
    free, path, keys = new_fleet(), tmp_path / "fleet.db", list(range(120))
    with new_fleet(store=path, max_bytes=40 * BYTES) as fleet:
        assert_same(fleet.process_many(keys[:40], X[:40]), free.process_many(keys[:40], X[:40]))
        base = fleet._state.table.store._base
        for table in ("spill", "main"):
            base.execute(f"PRAGMA {table}.max_page_count = 1")  # at most the pages that are there
        for call in (lambda: fleet.process_many(keys[40:80], X[40:80]), fleet.save):
            with pytest.raises(StoreError, match="full"):
                call()
            assert (fleet.n_rows, fleet.keys(), fleet.n_bytes) == (40, free.keys(), 40 * BYTES)
        assert_same(fleet.process_many(keys[:40], X[:40]), free.process_many(keys[:40], X[:40]))
        for table in ("spill", "main"):
            base.execute(f"PRAGMA {table}.max_page_count = 1000000")
        assert_same(fleet.process_many(keys, X[:120]), free.process_many(keys, X[:120]))
        fleet.save()
    with Fleet.load(path) as loaded:
        assert_same(loaded.process_many(keys, X[:120]), free.process_many(keys, X[:120]))


@pytest.mark.parametrize("n_keys", [3, 10, 30])
def test_the_store_never_needs_more_space_than_announced(tmp_path, n_keys):
    """Rows of few and of many keys, in memory and not, in several calls."""
    rng = np.random.default_rng(n_keys)
    path = tmp_path / "fleet.db-spill"
    with new_fleet(store=tmp_path / "fleet.db", max_bytes=10 * BYTES) as fleet:
        assert fleet.spill_bytes(range(10)) == 0
        for i in range(20):
            keys = rng.integers(n_keys, size=100).tolist()
            before, announced = path.stat().st_size, fleet.spill_bytes(keys)
            fleet.process_many(keys, X[:100])
            assert path.stat().st_size <= before + announced + 2**14
            if i % 7 == 6:
                fleet.save()
        assert (fleet.spill_bytes(range(1000, 1050)) > 0) or n_keys == 3


@pytest.mark.parametrize(("method", "n_calls"), [("execute", 60), ("executemany", 3)])
def test_any_error_of_the_store_leaves_the_rows_before_it(tmp_path, method, n_calls):
    """Blocks before the error are processed; `n_rows` says how many rows."""

    class Failing:
        def __init__(self, base):
            self.base, self.n_left = base, n_calls

        def __getattr__(self, name):
            if name == method and self.n_left == 0:
                raise sqlite3.OperationalError("disk I/O error")
            self.n_left -= name == method
            return getattr(self.base, name)

    with new_fleet(store=tmp_path / "fleet.db", max_bytes=2 * BYTES) as fleet:
        store = fleet._state.table.store
        store._base = Failing(store._base)
        with pytest.raises(StoreError, match="disk I/O error") as caught:
            fleet.process_many(KEYS, X)
        n_rows = fleet.n_rows
        store._base = store._base.base
        free = new_fleet()
        assert_same(caught.value.results, free.process_many(KEYS[:n_rows], X[:n_rows]))
        assert 0 < n_rows < N_ROWS
        assert fleet.keys() == free.keys()
        assert_same(fleet.process_many(KEYS[n_rows:], X[n_rows:]), free.process_many(KEYS[n_rows:], X[n_rows:]))
        assert fleet.incidents == free.incidents


def test_a_second_user_of_a_store_is_told_in_one_line(tmp_path):
    path = tmp_path / "fleet.db"
    with new_fleet(store=path, max_bytes=2 * BYTES) as fleet:
        fleet.process_many(KEYS[:100], X[:100])
        fleet.save()
        fleet.process_many(KEYS[100:200], X[100:200])
        program = "import sys; from imondrian import Fleet; Fleet.load(sys.argv[1])"
        run = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=False)
        assert run.returncode == 1
        assert run.stderr.splitlines()[-1].endswith(
            f"{path}: the store cannot be used: another process or fleet is using it."
        )
        with pytest.raises(StoreError, match="another process or fleet is using it"):
            Fleet.load(path)
        free = new_fleet()
        free.process_many(KEYS[:200], X[:200])
        assert_same(fleet.process_many(KEYS, X), free.process_many(KEYS, X))  # the spilled keys are still there
    with Fleet.load(path) as again:
        assert again.n_rows == 100


def test_a_store_with_a_fleet_is_not_overwritten(tmp_path):
    path = tmp_path / "fleet.db"
    with new_fleet(store=path) as fleet:
        fleet.process("a", X[0])
        fleet.save()
    with pytest.raises(InvalidInputError, match=r"fleet\.db' already contains a fleet: use Fleet\.load"):
        new_fleet(store=path)
    with Fleet.load(path) as loaded:
        assert loaded.keys() == ["a"]


def test_wrong_arguments_of_load_are_not_damage(tmp_path):
    with new_fleet() as fleet:
        fleet.process("a", X[0])
        fleet.save(tmp_path / "fleet.db")
        with pytest.raises(InvalidInputError, match="no store"):
            fleet.save()
    for wrong in ({"max_bytes": 1}, {"max_bytes": "many"}, {"n_jobs": 1.5}):
        with pytest.raises(InvalidInputError, match=next(iter(wrong))):
            Fleet.load(tmp_path / "fleet.db", **wrong)


def test_a_closed_fleet_says_so(tmp_path):
    fleet = new_fleet(store=tmp_path / "fleet.db")
    fleet.process("a", X[0])
    fleet.close()
    fleet.close()
    calls = [
        lambda: fleet.process("a", X[0]),
        lambda: fleet.process_many(["a"], X[:1]),
        fleet.keys,
        lambda: len(fleet),
        lambda: "a" in fleet,
        fleet.save,
        lambda: fleet.save(tmp_path / "other.db"),
        lambda: fleet.forget("a"),
        lambda: fleet.detector("a"),
        lambda: fleet.explain("a", X[0]),
    ]
    for call in calls:
        with pytest.raises(StoreError, match=r"The fleet is closed\."):
            call()
    assert (fleet.n_rows, fleet.incidents) == (1, ())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_cannot_harm_the_store(tmp_path):
    path, free = tmp_path / "fleet.db", new_fleet()
    with new_fleet(store=path, max_bytes=2 * BYTES) as fleet:
        fleet.process_many(KEYS[:100], X[:100])
        child = os.fork()
        if child == 0:
            code = 1
            try:
                fleet.process_many(KEYS[:100], X[:100])
            except StoreError as error:
                code = 0 if "forked" in str(error) else 2
            fleet.close()
            os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        free.process_many(KEYS[:100], X[:100])
        assert_same(fleet.process_many(KEYS, X), free.process_many(KEYS, X))
        fleet.save()
    assert SIZES["n_trees"] == fleet.parameters["n_trees"]


def test_a_damaged_key_does_not_lose_the_results_of_the_rows_before(tmp_path):
    path = tmp_path / "fleet.db"
    with new_fleet(store=path) as fleet:
        fleet.process_many(["a", "b"], X[:2])
        fleet.save()
    base = sqlite3.connect(path)
    base.execute("UPDATE saved SET state = zeroblob(length(state)) WHERE rowid = (SELECT max(rowid) FROM saved)")
    base.commit()
    base.close()
    with Fleet.load(path, max_bytes=BYTES) as fleet:
        with pytest.raises(DamagedFileError, match="key 'b' is damaged") as error:
            fleet.process_many(["a", "b"], X[2:4])
        assert len(error.value.results.score) == 1
        assert fleet.n_rows == 3
