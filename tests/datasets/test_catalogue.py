"""The entries of the catalogue are true of the data."""

from urllib.parse import urlsplit

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

from imondrian.base.errors import InvalidInputError
from imondrian.datasets import CATALOGUE, checksum, load, names
from imondrian.datasets.catalogue import CLUSTERED, COLLECTIONS, FIRST, LAST, MIXED, ORDERS
from imondrian.datasets.groups import GROUPS
from imondrian.datasets.loading import READERS

ENTRIES = pytest.mark.parametrize("entry", CATALOGUE.values(), ids=CATALOGUE)
PAPER = {  # Table I; for WBC the set that was actually used
    "wbc": (569, 30, 37),
    "pima": (768, 8, 35),
    "thyroid": (3772, 6, 2.5),
    "satellite": (6435, 36, 32),
    "optdigits": (5216, 64, 3),
    "ionosphere": (351, 33, 36),
    "wine": (129, 13, 7.7),
    "smtp": (95156, 3, 0.03),
    "cicids": (691406, 77, 36),
}


@ENTRIES
def test_entries_are_complete(entry):
    assert entry.name == entry.name.lower()
    assert entry.title
    assert entry.anomalies
    assert entry.order in ORDERS
    assert entry.citation == COLLECTIONS[entry.collection]
    assert urlsplit(entry.page).scheme in ("http", "https")
    assert 0 < entry.n_anomalies < entry.n_rows
    assert entry.order_reveals_labels == (entry.order != MIXED)
    assert set(entry.groups) <= set(GROUPS)
    assert (entry.original is None) == (entry.original_reader == "")


@ENTRIES
def test_every_download_has_a_checksum_and_a_reader(entry):
    for address in entry.urls:
        assert urlsplit(address).scheme == "https"
        assert entry.checksum is not None
        assert urlsplit(address).path.endswith(tuple(READERS))


def test_file_names_are_unique():
    files = [entry.file.lower() for entry in CATALOGUE.values()]
    originals = [entry.original for entry in CATALOGUE.values() if entry.original]
    assert len(set(files)) == len(files)
    assert len(set(originals)) == len(originals)


def test_the_sets_of_the_paper_have_the_sizes_of_its_table():
    assert names("paper") == tuple(PAPER)
    for name, (n_rows, n_features, percent) in PAPER.items():
        entry = CATALOGUE[name]
        assert entry.shape == (n_rows, n_features)
        digits = 0 if percent == int(percent) else len(str(percent).partition(".")[2])
        assert abs(100 * entry.anomaly_share - percent) < 10.0**-digits  # the paper truncates Wine's 7.75 to 7.7


def test_relations_between_entries_are_symmetric():
    for entry in CATALOGUE.values():
        assert all(entry.name in CATALOGUE[other].shares_rows_with for other in entry.shares_rows_with)
        if entry.same_as is not None:
            other = CATALOGUE[entry.same_as]
            assert other.same_as is None
            assert (other.n_rows, other.n_anomalies) == (entry.n_rows, entry.n_anomalies)


def test_entries_with_the_same_content_are_marked_as_the_same():
    seen = {}
    for entry in CATALOGUE.values():
        if entry.checksum is not None:
            first = seen.setdefault(entry.checksum, entry.name)
            assert first in (entry.name, entry.same_as)


def test_groups_have_the_right_members():
    assert names() == tuple(CATALOGUE)
    assert set(names("open")) == {name for name, e in CATALOGUE.items() if e.same_as is None} - {"cicids"}
    assert set(names("open")) == {name for name, e in CATALOGUE.items() if e.checksum and e.same_as is None}
    assert len({CATALOGUE[name].checksum for name in names("open")}) == len(names("open"))
    assert "those with a checksum (all but `cicids`)" in " ".join(names.__doc__.split())
    assert len(names("adbench")) == 13
    assert {"satellite", "smtp"} - set(names("streams")) == {"satellite"}
    assert not set(names("synthetic")) & set(names())
    with pytest.raises(InvalidInputError, match=r"must be one of paper, open, .* but is 'closed'"):
        names("closed")


@ENTRIES
def test_the_data_match_the_catalogue(entry, data_folder):
    if entry.name == "cicids":
        pytest.skip("not among the open data sets")
    data = load(entry.name, data_folder, download=False)
    assert data.X.shape == entry.shape
    assert data.y.sum() == entry.n_anomalies
    assert checksum(data.X, data.y) == entry.checksum
    assert (data.X.dtype, data.y.dtype) == (np.float64, np.uint8)
    assert order_of(data.y) == entry.order


def order_of(y):
    """Determine the order from the number of label changes, compared with a random order."""
    n_changes = np.count_nonzero(np.diff(y))
    if n_changes == 1:
        return FIRST if y[0] else LAST
    n_by_chance = 2 * y.sum() * (len(y) - y.sum()) / len(y)
    return MIXED if n_changes > n_by_chance / 2 else CLUSTERED


def test_the_wbc_of_odds_is_a_scaled_part_of_the_complete_one(data_folder):
    whole, part = load("wbc"), load("odds-wbc", data_folder)
    low, high = whole.X.min(axis=0), whole.X.max(axis=0)
    scaled = (whole.X - low) / (high - low)
    distances = np.abs(part.X[:, None, :] - scaled[None]).max(axis=2)
    nearest = distances.argmin(axis=1)
    assert distances.min(axis=1).max() < 1e-9
    assert (whole.y[nearest] == part.y).all()
    assert set(np.flatnonzero(whole.y == 0)) == set(nearest[part.y == 0])  # all the benign ones


def test_wbc_equals_the_set_of_scikit_learn():
    bunch, data = load_breast_cancer(), load("wbc")
    assert (bunch.data == data.X).all()
    assert (data.y == (bunch.target == list(bunch.target_names).index("malignant"))).all()
    assert data.feature_names == tuple(bunch.feature_names)


def test_ionosphere_of_adbench_is_ionosphere_scaled_without_a_column(data_folder):
    whole, part = load("ionosphere", data_folder), load("adbench-ionosphere", data_folder)
    assert (whole.y == part.y).all()
    np.testing.assert_allclose((whole.X[:, 1:] + 1.0) / 2.0, part.X, atol=1e-9)


def test_landsat_is_satellite_standardised(data_folder):
    whole, other = load("satellite", data_folder), load("adbench-landsat", data_folder)
    standardised = (whole.X - whole.X.mean(axis=0)) / whole.X.std(axis=0, ddof=1)
    np.testing.assert_allclose(standardised, other.X, atol=1e-9)
    assert (other.y <= whole.y).all()


@pytest.mark.parametrize(
    ("part", "whole"),
    [("adbench-wdbc", "wbc"), ("adbench-satimage-2", "satellite"), ("adbench-wbc", "adbench-breastw")],
)
def test_subsets_have_rows_of_the_whole(part, whole, data_folder):
    rows = {row.tobytes() for row in load(whole, data_folder).X}
    assert all(row.tobytes() in rows for row in load(part, data_folder).X)
    assert part in CATALOGUE[whole].shares_rows_with


def test_thyroid_is_the_first_part_of_annthyroid_scaled(data_folder):
    part, whole = load("thyroid", data_folder), load("annthyroid", data_folder)
    rows = whole.X[: len(part.X)]
    scaled = (rows - rows.min(axis=0)) / (rows.max(axis=0) - rows.min(axis=0))
    np.testing.assert_allclose(scaled, part.X, atol=1e-9)
    assert (part.y <= whole.y[: len(part.y)]).all()
