"""Detectors for time series: forests on views of the series, and the peers, all with the same two functions.

`process` scores each row and then learns it; `predict` scores further rows without learning them. High is anomalous.
Every detector has one setting for all series. Those in OURS are the preset "series" and its variants.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from imondrian import StreamDetector
from series_views import (
    SECONDS_PER_DAY,
    Differences,
    FromMean,
    FromTimeOfDay,
    Shingles,
    ShortMeans,
    Together,
    Values,
    View,
)

# ALL: each tree holds the whole window, as with the preset "series"; SAMPLE: a sample of it; PRACTICE: that preset
ALL: dict[str, Any] = {"kind": "expected", "window": 8_192, "max_samples": None, "n_trees": 20}
SAMPLE: dict[str, Any] = ALL | {"max_samples": 1_024, "n_trees": 50}
PRACTICE: dict[str, Any] = {"kind": "size", "window": 2_048, "max_samples": 256, "n_trees": 100}
HALF_LIFE, SHORT_HALF_LIFE = 200.0, 10.0  # rows
HOUR, N_VALUES_OF_HOUR = 3_600.0, 50  # seconds; values
RUNNING_HALF_LIFE = 50.0  # rows, of the running-mean rule
DELAY, N_AT_ONCE = 200, 400  # of `Delayed`: a row is learned DELAY rows later; the first N_AT_ONCE without delay
KRCF_TREES, KRCF_SAMPLES = 50, 256
N_BEFORE_SCORES = 64  # first rows to which krcf gives the score 0; a quarter of KRCF_SAMPLES is its default


class SeriesDetector(Protocol):
    """A detector for rows that have times in seconds."""

    def process(self, seconds: np.ndarray, X: np.ndarray) -> np.ndarray:
        """Score each row, then learn it."""

    def predict(self, seconds: np.ndarray, X: np.ndarray) -> np.ndarray:
        """Score rows that come next, without learning them."""


class Contestant(NamedTuple):
    """A detector that is compared."""

    make: Callable[[int, int], SeriesDetector]  # called with the number of features and the seed
    window: int = 0  # rows that our detectors remember; 0 for peers, whose scores have no default threshold
    package: str | None = None  # the package that must be installed


# -- ours -------------------------------------------------------------------------------------------------------------


class WithPreset:
    """Our stream detector with the preset "series"."""

    def __init__(self, n_features: int, seed: int, settings: dict[str, Any]) -> None:
        self._detector = StreamDetector(n_features, preset="series", seed=seed, **settings)

    def process(self, seconds: np.ndarray, X: np.ndarray) -> np.ndarray:
        """Score each row, then learn it."""
        return self._detector.process_many(X, seconds).score

    def predict(self, seconds: np.ndarray, X: np.ndarray) -> np.ndarray:
        """Score rows that come next, without learning them."""
        return self._detector.score(X, seconds)


class OnView:
    """Our stream detector on a view of the series."""

    def __init__(self, view: View, n_features: int, seed: int, settings: dict[str, Any]) -> None:
        self._view = view
        self._detector = StreamDetector(n_features, seed=seed, **settings)

    def process(self, seconds: np.ndarray, X: np.ndarray) -> np.ndarray:
        """Score each row, then learn it."""
        return self._detector.process_many(self._view.learn(seconds, X)).score

    def predict(self, seconds: np.ndarray, X: np.ndarray) -> np.ndarray:
        """Score rows that come next, without learning them."""
        return self._detector.score(self._view.apply(seconds, X))


class Delayed:
    """Our stream detector on a view, which learns each row only when DELAY further rows have been scored.

    A change that has lasted for less than DELAY rows is therefore still unusual. The first N_AT_ONCE rows are learned
    without delay.
    """

    def __init__(self, view: View, n_features: int, seed: int, settings: dict[str, Any]) -> None:
        self._view = view
        self._detector = StreamDetector(n_features, seed=seed, **settings)
        self._waiting = np.empty((0, n_features))

    def process(self, seconds: np.ndarray, X: np.ndarray) -> np.ndarray:
        """Score each row, then learn the row that is due."""
        points = self._view.learn(seconds, X)
        n_first = min(max(N_AT_ONCE - self._detector.n_seen, 0), len(points))
        scores = [self._detector.process_many(points[:n_first]).score] if n_first else []
        for point in points[n_first:]:
            scores.append(self._detector.score(point[None]))
            self._waiting = np.concatenate([self._waiting, point[None]])
            if len(self._waiting) > DELAY:
                self._detector.process(self._waiting[0])
                self._waiting = self._waiting[1:]
        return np.concatenate(scores)

    def predict(self, seconds: np.ndarray, X: np.ndarray) -> np.ndarray:
        """Score rows that come next, without learning them."""
        return self._detector.score(self._view.apply(seconds, X))


class Maximum:
    """The highest score of several detectors."""

    def __init__(self, detectors: Sequence[SeriesDetector]) -> None:
        self._detectors = detectors

    def process(self, seconds: np.ndarray, X: np.ndarray) -> np.ndarray:
        """Score each row, then learn it."""
        return np.maximum.reduce([detector.process(seconds, X) for detector in self._detectors])

    def predict(self, seconds: np.ndarray, X: np.ndarray) -> np.ndarray:
        """Score rows that come next, without learning them."""
        return np.maximum.reduce([detector.predict(seconds, X) for detector in self._detectors])


def with_preset(**settings: Any) -> Contestant:
    """Return a detector with the preset "series" and some other settings."""
    window = settings.get("window", ALL["window"])
    return Contestant(lambda n_features, seed: WithPreset(n_features, seed, settings), window)


def on_view(view: Callable[[], View], settings: dict[str, Any] = ALL, width: int = 1) -> Contestant:
    """Return a detector on a view, whose points have `width` values per feature."""
    return Contestant(lambda n_features, seed: OnView(view(), width * n_features, seed, settings), settings["window"])


def delayed(view: Callable[[], View]) -> Contestant:
    """Return a detector with a long memory that learns with a delay."""
    return Contestant(lambda n_features, seed: Delayed(view(), n_features, seed, ALL), ALL["window"])


def maximum(*views: Callable[[], View], settings: dict[str, Any] = ALL) -> Contestant:
    """Return the maximum over views; each has trees of its own."""

    def make(n_features: int, seed: int) -> SeriesDetector:
        seeds = range(len(views) * seed, len(views) * (seed + 1))
        return Maximum([OnView(view(), n_features, k, settings) for view, k in zip(views, seeds, strict=True)])

    return Contestant(make, settings["window"])


def level() -> View:
    """Return the deviation from the recent level."""
    return FromMean(HALF_LIFE)


def hour() -> View:
    """Return the deviation from what is usual at this hour of the day."""
    return FromTimeOfDay(HOUR, N_VALUES_OF_HOUR, HALF_LIFE)


def no_clock() -> View:
    """Return the deviation from the mean of the last values, whatever the hour."""
    return FromTimeOfDay(SECONDS_PER_DAY, N_VALUES_OF_HOUR, HALF_LIFE)


def short_means() -> View:
    """Return exponential means with a short half-life."""
    return ShortMeans(SHORT_HALF_LIFE)


OURS = {
    "practice": on_view(Values, PRACTICE),
    "practice, kind expected": on_view(Values, PRACTICE | {"kind": "expected"}),
    "**series**": with_preset(),
    "series, 10 trees": with_preset(n_trees=10),
    "series, window 4,096": with_preset(window=4_096),
    "series, window 2,048": with_preset(window=2_048),
    "series, 1,024 of 8,192, 50 trees": with_preset(max_samples=1_024, n_trees=50),
    "series, 2,048 of 8,192, 50 trees": with_preset(max_samples=2_048, n_trees=50),
    "value instead of deviations": on_view(Values),
    "hour only": on_view(hour),
    "level only": on_view(level),
    "hour and value": on_view(lambda: Together(hour(), Values()), width=2),
    "hour and level without a clock": on_view(lambda: Together(no_clock(), level()), width=2),
    "hour, level and short mean (half-life 10 rows)": on_view(
        lambda: Together(hour(), level(), short_means()), width=3
    ),
    "two forests, hour and level: the higher score": maximum(hour, level, settings=ALL | {"n_trees": 10}),
    "difference": on_view(Differences, SAMPLE),
    "shingle of 4": on_view(lambda: Shingles(4), SAMPLE, width=4),
    "short mean": on_view(short_means),
    "short mean, learned 200 rows later": delayed(short_means),
}


# -- peers ------------------------------------------------------------------------------------------------------------


class Krcf:
    """The random cut forest of krcf (Rust) on shingles, with its usual 50 trees of 256 points."""

    def __init__(self, n_features: int, seed: int, shingle: int) -> None:
        from krcf import RandomCutForest

        options = {"dimensions": shingle * n_features, "shingle_size": 1, "random_seed": seed}
        sizes = {"num_trees": KRCF_TREES, "sample_size": KRCF_SAMPLES, "output_after": N_BEFORE_SCORES}
        self._view, self._forest = Shingles(shingle), RandomCutForest(options | sizes)

    def process(self, seconds: np.ndarray, X: np.ndarray) -> np.ndarray:
        """Score each row, then learn it."""
        scores = np.empty(len(X))
        for i, point in enumerate(self._view.learn(seconds, X)):
            scores[i] = self._forest.score(point)
            self._forest.update(point)
        return scores

    def predict(self, seconds: np.ndarray, X: np.ndarray) -> np.ndarray:
        """Score rows that come next, without learning them."""
        return np.array([self._forest.score(point) for point in self._view.apply(seconds, X)])


class HalfSpaceTrees:
    """River's half-space trees with default settings, on values scaled to [0, 1] by River as its documentation asks."""

    def __init__(self, n_features: int, seed: int) -> None:
        from river import anomaly, preprocessing

        del n_features
        self._scaler, self._trees = preprocessing.MinMaxScaler(), anomaly.HalfSpaceTrees(seed=seed)

    def process(self, seconds: np.ndarray, X: np.ndarray) -> np.ndarray:
        """Score each row, then learn it."""
        del seconds
        scores = np.empty(len(X))
        for i, x in enumerate(X):
            row = dict(enumerate(x.tolist()))
            self._scaler.learn_one(row)
            scaled = self._scaler.transform_one(row)
            scores[i] = self._trees.score_one(scaled)
            self._trees.learn_one(scaled)
        return scores

    def predict(self, seconds: np.ndarray, X: np.ndarray) -> np.ndarray:
        """Score rows that come next, without learning them."""
        rows = (dict(enumerate(x.tolist())) for x in X)
        return np.array([self._trees.score_one(self._scaler.transform_one(row)) for row in rows])


class RunningMean:
    """The largest distance of a value from its running mean, in running standard deviations (exponential weights)."""

    def __init__(self, n_features: int, seed: int) -> None:
        del seed
        self._n_rows, self._mean, self._square = 0, np.zeros(n_features), np.zeros(n_features)
        self._share = 1.0 - 0.5 ** (1.0 / RUNNING_HALF_LIFE)

    def process(self, seconds: np.ndarray, X: np.ndarray) -> np.ndarray:
        """Score each row, then learn it."""
        scores = np.zeros(len(X))
        for i, x in enumerate(X):
            scores[i] = self.predict(seconds[i : i + 1], x[None])[0] if self._n_rows > 1 else 0.0
            self._n_rows += 1
            share = max(self._share, 1.0 / self._n_rows)
            distance = x - self._mean
            self._mean = self._mean + share * distance
            self._square = (1.0 - share) * (self._square + share * distance**2)
        return scores

    def predict(self, seconds: np.ndarray, X: np.ndarray) -> np.ndarray:
        """Score rows that come next, without learning them."""
        deviation = np.sqrt(self._square)
        distance = np.abs(X - self._mean)
        return np.divide(distance, deviation, out=np.zeros(X.shape), where=deviation > 0.0).max(axis=1)


STREAM_PEERS = {
    "krcf, shingle 1": Contestant(lambda n_features, seed: Krcf(n_features, seed, 1), package="krcf"),
    "krcf, shingle 4": Contestant(lambda n_features, seed: Krcf(n_features, seed, 4), package="krcf"),
    "krcf, shingle 8": Contestant(lambda n_features, seed: Krcf(n_features, seed, 8), package="krcf"),
    "River, half-space trees": Contestant(HalfSpaceTrees, package="river"),
    "running mean": Contestant(RunningMean),
}


def isolation_forest(learned: np.ndarray, X: np.ndarray) -> np.ndarray:
    """Return the scores of scikit-learn's isolation forest with default settings."""
    from sklearn.ensemble import IsolationForest

    return -IsolationForest(random_state=0).fit(learned).score_samples(X)


def t_squared(learned: np.ndarray, X: np.ndarray) -> np.ndarray:
    """Return Hotelling's T-squared: the squared Mahalanobis distance from the mean of the rows learned."""
    varies = learned.std(axis=0) > 0.0
    mean, deviation = learned[:, varies].mean(axis=0), learned[:, varies].std(axis=0)
    scaled = (X[:, varies] - mean) / deviation
    inverse = np.linalg.inv(np.cov(((learned[:, varies] - mean) / deviation).T))
    return np.einsum("ij,jk,ik->i", scaled, inverse, scaled)


BATCH_PEERS = {"scikit-learn, isolation forest": isolation_forest, "T-squared": t_squared}
