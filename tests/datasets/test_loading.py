"""A data set is loaded from the first place that has it, and refused if its content is wrong."""

import sys
from dataclasses import replace

import numpy as np
import pytest
from scipy.io import savemat

from imondrian.base.errors import DamagedFileError, InvalidInputError
from imondrian.datasets import CATALOGUE, MissingDatasetError, checksum, load
from imondrian.datasets.folders import cache_folder

from .conftest import LABELS, POINTS


def write(folder, extension, X=POINTS, y=LABELS, digits=17):
    (folder / "made").mkdir(parents=True, exist_ok=True)
    path = folder / f"made/up{extension}"
    if extension == ".npz":
        np.savez(path, X=X, y=y)
    elif extension == ".mat":
        savemat(path, {"X": X, "y": y})
    else:
        np.savetxt(path, np.column_stack([X, y]), delimiter=",", fmt=f"%.{digits}g", header="a,b,c,y", comments="")


@pytest.mark.parametrize("extension", [".npz", ".mat", ".csv"])
@pytest.mark.parametrize("given_by", ["argument", "environment"])
def test_every_file_format_is_found_in_the_data_folder(tmp_path, monkeypatch, made_up, extension, given_by):
    entry = made_up()
    write(tmp_path, extension)
    if given_by == "environment":
        monkeypatch.setenv("IMONDRIAN_DATA", str(tmp_path))
    data = load("made-up", tmp_path if given_by == "argument" else None, download=False)
    assert (data.X == POINTS).all()
    assert (data.y == LABELS).all()
    assert data.feature_names == (("a", "b", "c") if extension == ".csv" else None)
    assert (data.name, data.entry, data.n_dropped) == ("made-up", entry, 0)
    assert not cache_folder().exists()


def test_the_folder_argument_takes_precedence_over_the_environment(tmp_path, monkeypatch, made_up):
    other = POINTS + 1.0
    made_up(checksum=checksum(other, LABELS))
    write(tmp_path / "given", ".npz", other)
    write(tmp_path / "named", ".npz")
    monkeypatch.setenv("IMONDRIAN_DATA", str(tmp_path / "named"))
    assert (other == load("made-up", tmp_path / "given").X).all()


def test_the_data_folder_takes_precedence_over_scikit_learn(tmp_path):
    wbc = load("wbc")
    np.savez(tmp_path / "wdbc.npz", X=wbc.X, y=wbc.y)
    assert load("wbc", tmp_path).feature_names is None
    np.savez(tmp_path / "wdbc.npz", X=wbc.X[::-1], y=wbc.y[::-1])
    with pytest.raises(DamagedFileError, match="is not exactly wbc"):
        load("wbc", tmp_path)


def test_lost_digits_are_refused_unless_verify_is_false(tmp_path, made_up):
    entry = made_up()
    write(tmp_path, ".csv", digits=6)
    with pytest.raises(
        DamagedFileError, match=rf"SHA-256 of its content must be {entry.checksum}, but is [0-9a-f]{{64}}"
    ):
        load("made-up", tmp_path)
    data = load("made-up", tmp_path, verify=False)
    np.testing.assert_allclose(data.X, POINTS, rtol=1e-5)


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize(
    ("X", "y", "found"),
    [
        (POINTS[1:], LABELS[1:], "19 rows of 3 features with 3 anomalies"),
        (POINTS[:, 1:], LABELS, "20 rows of 2 features with 4 anomalies"),
        (POINTS, 1 - LABELS, "20 rows of 3 features with 16 anomalies"),
    ],
)
def test_a_wrong_size_is_always_refused(tmp_path, made_up, verify, X, y, found):
    made_up()
    write(tmp_path, ".npz", X, y)
    with pytest.raises(DamagedFileError, match=f"must have 20 rows of 3 features with 4 anomalies, but has {found}"):
        load("made-up", tmp_path, verify=verify)


def test_without_a_checksum_only_the_size_is_checked(tmp_path, made_up):
    made_up(checksum=None)
    write(tmp_path, ".npz", POINTS + 1.0)
    assert (load("made-up", tmp_path).X == POINTS + 1.0).all()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("satelite", "did you mean satellite"),
        ("CICIDS", "did you mean cicids or cicids-sample"),
        ("xyzzy", "the names are wbc, pima, thyroid"),
        ("moons", r"is synthetic and cannot be loaded: call make_synthetic\('moons'\)"),
        (None, "There is no data set None"),
        (["wbc"], "There is no data set"),
    ],
)
def test_unknown_names_raise_with_similar_names(name, message):
    with pytest.raises(InvalidInputError, match=message):
        load(name)


def test_the_data_folder_must_exist(tmp_path, monkeypatch):
    with pytest.raises(InvalidInputError, match=f"{tmp_path}/none is not a folder"):
        load("wbc", tmp_path / "none")
    monkeypatch.setenv("IMONDRIAN_DATA", str(tmp_path / "nil"))
    with pytest.raises(InvalidInputError, match=r"nil \(named by IMONDRIAN_DATA\) is not a folder"):
        load("wbc")


def test_an_empty_environment_variable_is_ignored(monkeypatch):
    monkeypatch.setenv("IMONDRIAN_DATA", "")
    assert load("wbc").X.shape == (569, 30)


def test_the_error_for_a_missing_set_says_how_to_get_it(tmp_path):
    with pytest.raises(MissingDatasetError) as caught:
        load("cicids", tmp_path)
    assert "https://www.unb.ca/cic/datasets/ids-2017.html" in str(caught.value)
    assert "Wednesday-workingHours.pcap_ISCX.csv" in str(caught.value)
    assert "IMONDRIAN_DATA" in str(caught.value)
    with pytest.raises(MissingDatasetError, match="pima is not available: download=False"):
        load("pima", tmp_path, download=False)


def test_an_unreadable_file_is_named(tmp_path, made_up):
    made_up()
    (tmp_path / "made").mkdir()
    for extension in (".npz", ".mat", ".csv"):
        path = tmp_path / f"made/up{extension}"
        path.write_bytes(b"\x00rubbish")
        with pytest.raises(DamagedFileError, match=f"{path}"):
            load("made-up", tmp_path)
        path.unlink()


def test_csv_needs_polars(tmp_path, monkeypatch, made_up):
    made_up()
    write(tmp_path, ".csv")
    monkeypatch.delitem(sys.modules, "imondrian.datasets.csv_files", raising=False)
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(InvalidInputError, match=r'polars is needed to read it: pip install "imondrian\[cli\]"'):
        load("made-up", tmp_path)


def test_the_copy_of_scikit_learn_is_checked(monkeypatch):
    monkeypatch.setitem(CATALOGUE, "wbc", replace(CATALOGUE["wbc"], checksum="0" * 64))
    with pytest.raises(DamagedFileError, match="scikit-learn's copy is not exactly wbc"):
        load("wbc")


def test_the_environment_sets_the_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("IMONDRIAN_CACHE", str(tmp_path / "a"))
    assert cache_folder() == tmp_path / "a"
    monkeypatch.delenv("IMONDRIAN_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "b"))
    assert cache_folder() == tmp_path / "b" / "imondrian"
    monkeypatch.setenv("HOME", str(tmp_path / "c"))
    for ignored in ("", "relative/path"):
        monkeypatch.setenv("XDG_CACHE_HOME", ignored)
        assert cache_folder() == tmp_path / "c" / ".cache" / "imondrian"
