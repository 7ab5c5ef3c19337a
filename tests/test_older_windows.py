"""Model files from before windows were divided into strata: their points are still selected independently."""

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from imondrian import DamagedFileError, StreamDetector, load
from imondrian.engine.window import Selection
from imondrian.forest.samplers.window import capacity
from imondrian.model_files import from_bytes, to_bytes

FILE = Path(__file__).parent / "files" / "window-before-strata.imf"  # 4 trees, 8 of 32 points, after 100 rows
RNG = np.random.default_rng(23)
X = RNG.normal(size=(160, 2))
X[150] = [7.0, -7.0]
SCORES = np.array(
    [
        0.33068570642086276,
        0.18494465461145726,
        0.5433582506042515,
        0.5136124456704254,
        0.5991358479309346,
        0.5613478237930736,
        0.575126129152385,
        0.5117872068157289,
        0.6093228245173747,
        0.41701845534972,
        0.47100342478667806,
        0.34962458225189985,
        0.45711057128842153,
        0.4599513769531015,
        0.5215203691606025,
        0.4191049332259996,
        0.3805813267076567,
        0.4741465453121647,
        0.40505213206782753,
        0.48762340458204656,
        0.5066787225686737,
        0.43826890820887154,
        0.41676088234291586,
        0.5858098990567655,
        0.4565955235836672,
        0.6992123813885697,
        0.425110373841453,
        0.49752047097361085,
        0.4199509929162076,
        0.5248602113800875,
        0.5692264342978045,
        0.5190876350092983,
        0.4931438087957015,
        0.6532437273579086,
        0.33855003959685154,
        0.3923847100895324,
        0.35036591859152266,
        0.28653486034451303,
        0.5695469323328913,
        0.501587828526192,
        0.46951457371663824,
        0.496090876480625,
        0.4756428051791781,
        0.48671806011347796,
        0.5042587343479896,
        0.6410288931944319,
        0.38980190844433615,
        0.5987010960569364,
        0.18581986522708374,
        0.4571012946990276,
        0.8924045655724344,
        0.7280204879365515,
        0.47532042096535215,
        0.383682280953687,
        0.3860699308835601,
        0.2999735953525393,
        0.5468450895770081,
        0.6831243626983857,
        0.43924834393658185,
        0.5034521664369426,
    ]
)


def clock_of(content):
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return np.load(io.BytesIO(archive.read("clock.npy")))


def test_a_window_from_before_strata_continues_as_it_would_have_then():
    """The scores were computed by the version that wrote the file."""
    detector = load(FILE)
    assert clock_of(FILE.read_bytes()).shape == (3,)
    results = detector.process_many(X[100:])
    np.testing.assert_allclose(results.score, SCORES, rtol=1e-12, atol=0.0)
    assert [incident.first for incident in detector.incidents] == [12, 150]


def test_it_continues_so_when_it_is_saved_again():
    detector = load(FILE)
    detector.process_many(X[100:120])
    content = to_bytes(detector)
    assert clock_of(content)[-1] == 1  # the stratum: points are selected independently
    resumed = from_bytes(content)
    np.testing.assert_array_equal(resumed.process_many(X[120:]).score, detector.process_many(X[120:]).score)
    assert to_bytes(resumed) == to_bytes(detector)


def test_its_trees_have_the_slots_that_independent_selection_needs():
    detector = load(FILE)
    detector.process_many(X[100:])
    trees, arrays = detector.forest.state()
    assert arrays["clock"][-1] == 1
    assert trees.points.shape[1] == capacity(32, Selection(0.25, 1)) == 32
    assert StreamDetector(2, n_trees=4, window=32, max_samples=8).n_bytes < detector.n_bytes


def test_a_new_window_records_its_stratum_and_impossible_ones_are_refused():
    detector = StreamDetector(2, n_trees=4, window=32, max_samples=8)
    detector.process_many(X)
    forest = detector.forest
    state = forest.state()
    assert state[1]["clock"][-1] == 4
    for stratum in (0, 2, 5, -1, 2**62):
        arrays = {**state[1], "clock": np.array([*state[1]["clock"][:3], stratum])}
        with pytest.raises((DamagedFileError, ValueError), match="stratum"):
            type(forest).from_state(forest.snapshot().parameters, state[0], arrays)
