"""The stream detector: scores each point, tells whether it is an anomaly, and learns it; in a fixed number of bytes."""

from collections import deque
from collections.abc import Iterator
from itertools import groupby
from typing import Any, NamedTuple, Self

import numpy as np

from imondrian.drift import OUTSIDE, SCORES, Drift, DriftMonitor
from imondrian.engine.jit import Array
from imondrian.engine.nodes import MAX_POINTS
from imondrian.errors import InvalidInputError
from imondrian.forest import MAX_SEED, MondrianForest
from imondrian.inputs import as_count, as_number
from imondrian.memories import Step
from imondrian.presets import preset_of
from imondrian.records import Records
from imondrian.scores import scoring_of
from imondrian.shingles import Shingle
from imondrian.thresholds import THRESHOLDS, StreamingThreshold

_UNKNOWN = 0.5  # the score of a point of which nothing can be said
_N_DRIFTS_KEPT = 16


class Result(NamedTuple):
    """What there is to say of one row."""

    score: float  # in (0, 1), high is odd; NaN of a row that was skipped
    is_anomaly: bool  # the score lies above the threshold; never while warming up
    threshold: float  # as it was when the row came
    index: int  # type: ignore[assignment]  # hides tuple.index; number of the row in the stream


class Results(NamedTuple):
    """What there is to say of many rows: the fields of `Result` as arrays."""

    score: Array
    is_anomaly: Array
    threshold: Array
    index: Array  # type: ignore[assignment]


class StreamDetector:
    """Anomaly detection on an endless stream, with a forest that follows the latest points.

    Each point is scored, then held against a threshold that moves with the scores, then learned; the point that leaves
    the window is forgotten exactly. Memory is fixed from the start, see `n_bytes`.

    Parameters
    ----------
    n_features : int
        Number of values in a row.
    window : int, default=2048
        How many of the latest points are known.
    max_samples : int or None, default=256
        How many points of the window a tree holds, about; None: all of them.
    n_estimators : int, default=100
        Number of trees.
    threshold : "kmeans", "auto" or float, default="kmeans"
        What is an anomaly: a score above the middle between the means of two clusters of the latest scores (the paper;
        it always finds two clusters, be the upper one ever so ordinary); above 0.5 ("auto", or 0.5); or a share below
        0.5 of the latest points, the oddest.
    preset : "practice" or "paper", default="practice"
        "practice": the score "size" with `scale="std"`. "paper": the score "depth", features as they come.
    score : "preset", "depth", "expected" or "size", default="preset"
        Another score than that of the preset.
    scale : "preset", None, "std" or one weight per feature, default="preset"
        Another scale than that of the preset. (In a shingle, a weight for each feature of each row.)
    seed : int, default=0
        The same seed and the same rows give the same results, bit for bit, however they are cut into calls.
    warm_up : int, optional
        How many points are learned before any is called an anomaly. By default an eighth of the window.
    learn_anomalies : bool, default=True
        Whether points called anomalies are learned. If not, a stream that moves to a new place may be called anomalous
        for ever; and rows must be scored one by one, which is slower.
    shingle : int, default=1
        How many rows make a point: the last so many, side by side, for time series.
    on_error : "raise" or "skip", default="raise"
        What to do with a row that cannot be used (not finite, no number, a wrong width, other features): raise an
        InvalidInputError, or count it in `n_skipped` and give it the score NaN. Either way nothing else changes.
    n_jobs : int, default=1
        Number of threads for `process_many`; results do not depend on it.

    Attributes
    ----------
    n_seen : int
        Number of rows so far, those skipped included.
    n_skipped : int
        Number of rows skipped.
    drifts : tuple of Drift
        The last reports that the stream has moved for good, at most 16.
    forest : MondrianForest
        The forest itself.
    kind : str
        The score: "depth", "expected" or "size".

    Examples
    --------
    >>> import numpy as np
    >>> from imondrian import StreamDetector
    >>> X = np.random.default_rng(0).normal(size=(1_000, 2))
    >>> detector = StreamDetector(n_features=2, threshold=0.01, seed=0)
    >>> results = detector.process_many(X)
    >>> int(results.is_anomaly.sum()) < 25
    True
    >>> result = detector.process([9.0, 9.0])
    >>> result.is_anomaly, result.index
    (True, 1000)
    """

    def __init__(  # noqa: PLR0913
        self,
        n_features: int,
        *,
        window: int = 2048,
        max_samples: int | None = 256,
        n_estimators: int = 100,
        threshold: Any = "kmeans",
        preset: str = "practice",
        score: str = "preset",
        scale: Any = "preset",
        seed: int = 0,
        warm_up: int | None = None,
        learn_anomalies: bool = True,
        shingle: int = 1,
        on_error: str = "raise",
        n_jobs: int = 1,
    ) -> None:
        self._parameters = {
            "n_features": as_count(n_features, "n_features", 1, MAX_POINTS),
            "window": as_count(window, "window", 1, MAX_POINTS),
            "max_samples": None if max_samples is None else as_count(max_samples, "max_samples", 1, MAX_POINTS),
            "n_estimators": as_count(n_estimators, "n_estimators", 1, MAX_POINTS),
            "threshold": _checked_threshold(threshold),
            "preset": preset,
            "score": score,
            "scale": scale.tolist() if isinstance(scale, np.ndarray) else scale,
            "seed": as_count(seed, "seed", 0, MAX_SEED),
            "warm_up": int(window) // 8 if warm_up is None else as_count(warm_up, "warm_up", 0, MAX_POINTS),
            "learn_anomalies": _checked_choice(learn_anomalies, "learn_anomalies", (True, False)),
            "shingle": as_count(shingle, "shingle", 1, MAX_POINTS),
            "on_error": _checked_choice(on_error, "on_error", ("raise", "skip")),
            "n_jobs": as_count(n_jobs, "n_jobs", -MAX_POINTS, MAX_POINTS),
        }
        self.kind, weights = _score_and_scale(self._parameters)
        scoring_of(self.kind)  # for its check
        self.forest = MondrianForest(n_estimators, max_samples, weights, seed, n_jobs, window)
        self._shingle = Shingle(shingle, n_features)
        self.forest.reserve(n_features * self._shingle.size)
        self._records = Records(n_features)
        self._threshold = StreamingThreshold(self._parameters["threshold"], half_life=max(window // 2, 1))
        self._monitor = DriftMonitor()
        self._drifts: deque[Drift] = deque(maxlen=_N_DRIFTS_KEPT)
        self._turns = (self._parameters["warm_up"] // 2, self._parameters["warm_up"])
        self.n_seen = self.n_skipped = self.n_scored = self.n_drifts = 0

    def __repr__(self) -> str:
        return f"StreamDetector({', '.join(f'{name}={value!r}' for name, value in self._parameters.items())})"

    @property
    def parameters(self) -> dict[str, Any]:
        """The arguments that make a detector like this one."""
        return dict(self._parameters)

    @property
    def feature_names(self) -> list[Any] | None:
        """The names of the features, once a dictionary or a frame has named them."""
        return None if self._records.names is None else list(self._records.names)

    @property
    def threshold(self) -> float:
        """The score above which the next point would be an anomaly, were it not for the warm-up."""
        return self._threshold.threshold

    @property
    def is_warm(self) -> bool:
        """Whether the warm-up is over, so that the next point can be called an anomaly."""
        return self.n_scored >= self._parameters["warm_up"]

    @property
    def drifts(self) -> tuple[Drift, ...]:
        """The last reports that the stream has moved for good."""
        return tuple(self._drifts)

    @property
    def n_bytes(self) -> int:
        """Memory that the state takes: the same from the first point to the last."""
        arrays = (self._threshold.histogram, self._monitor.present, self._monitor.before, self._monitor.moments)
        shingle = (self._shingle.size - 1) * self._shingle.n_features * 8
        return self.forest.n_bytes + sum(array.nbytes for array in arrays) + shingle

    # -- the stream -------------------------------------------------------------------------------------------------

    def process(self, x: Any) -> Result:
        """Score one row, tell whether it is an anomaly, then learn it.

        Parameters
        ----------
        x : array of shape (n_features,), dictionary, or a number where there is one feature
        """
        try:
            row = self._records.point(x)
        except InvalidInputError:
            if self._parameters["on_error"] == "raise":
                raise
            self.skip()
            return Result(float("nan"), False, self.threshold, self.n_seen - 1)
        point = self._shingle.points(row)
        if len(point) == 0:
            self.n_seen += 1
            return Result(_UNKNOWN, False, self.threshold, self.n_seen - 1)
        return Result(*self._process_point(point[0]), self.n_seen - 1)

    def process_many(self, X: Any) -> Results:
        """Do as `process` with one row after the other, and the same to the last bit; several times as fast.

        Parameters
        ----------
        X : array of shape (n_rows, n_features), data frame (pandas, polars), or rows or dictionaries in any iterable

        Returns
        -------
        Results
            With one entry per row. With ``on_error="raise"`` and a bad row anywhere, nothing is processed.
        """
        if isinstance(X, Iterator):
            X = list(X)
        if not hasattr(X, "__len__") or getattr(X, "shape", None) == ():
            raise InvalidInputError(f"X must be a table or rows one after the other, but is {X!r}.")
        first = self.n_seen
        index = np.arange(first, first + len(X))
        if len(X) == 0:
            return Results(np.empty(0), np.empty(0, np.bool_), np.empty(0), index)
        if self._parameters["on_error"] == "raise":
            return Results(*self._process(self._records.points(X)), index)
        return self._process_usable(*self._records.usable(X), index)

    def skip(self, n_rows: int = 1) -> None:
        """Count rows that came and cannot be used, as ``on_error="skip"`` does; nothing else changes."""
        n_rows = as_count(n_rows, "n_rows", 0, MAX_POINTS)
        self.n_skipped += n_rows
        self.n_seen += n_rows

    def score(self, X: Any) -> Array:
        """Score each row as if it came next; nothing is learned and nothing counted."""
        rows = self._asked().points(X) if not hasattr(X, "__len__") or len(X) else np.empty((0, 0))
        points = [self._shingle.preview(row[None]) for row in rows]
        if sum(map(len, points)) == 0:
            return np.full(len(rows), _UNKNOWN)
        return self.forest.score_next(np.vstack(points), self.kind)

    def explain(self, x: Any) -> dict[Any, float]:
        """Divide the score of a row, as if it came next, among its features; the sizes of the parts sum to the score.

        A part is positive where the row lies too high, negative where it lies too low. Features are named as the
        stream named them, or numbered; in a shingle with the rows ago as well: ("x", 2) is x two rows ago.
        """
        records = self._asked()
        point = self._shingle.preview(records.point(x))
        names = records.names or range(self._shingle.n_features)
        size = self._shingle.size
        keys = list(names) if size == 1 else [(name, size - 1 - i) for i in range(size) for name in names]
        if len(point) == 0:
            return dict.fromkeys(keys, _UNKNOWN / len(keys))
        return {key: float(value) for key, value in zip(keys, self.explain_point(point), strict=True)}

    def explain_point(self, point: Array) -> Array:
        """Divide the score of a point as the forest holds it among its values; of a shingle, those of all its rows."""
        if self.forest.n_points == 0:
            return np.full(point.size, _UNKNOWN / point.size)
        point = point.reshape(1, -1)
        parts = self.forest.explain(point, self.kind)[0]
        return parts * (self.forest.score_next(point, self.kind)[0] / np.abs(parts).sum())

    def forget(self, X: Any) -> Self:
        """Forget rows of the window exactly: the trees are distributed as if they had never held them.

        A row that is not in the window is an error, and then none is forgotten. The threshold and the drift monitor
        have seen the rows and keep what they counted. The points of a shingle are several rows each, which cannot be
        forgotten by one of them.
        """
        if self._shingle.size > 1:
            raise InvalidInputError(f"The points are {self._shingle.size} rows each: single rows cannot be forgotten.")
        self.forest.forget(self._asked().points(X))
        return self

    def rescore(self) -> tuple[Array, Array]:
        """Score the points of the window again with the forest as it is now; give the points, oldest first, and scores.

        The paper scores earlier points again after each update.
        """
        return self.forest.rescore(self.kind)

    # -- model files ------------------------------------------------------------------------------------------------

    def notes(self) -> dict[str, Any]:
        """Give what a model file keeps beside the forest, as JSON can hold it."""
        return {
            "parameters": self.parameters,
            "names": self._records.names,
            "shingle": self._shingle.last.tolist(),
            "threshold": self._threshold.state(),
            "monitor": self._monitor.state(),
            "drifts": [list(drift) for drift in self._drifts],
            "counts": [self.n_seen, self.n_skipped, self.n_scored, self.n_drifts],
        }

    @classmethod
    def from_notes(cls, forest: MondrianForest, notes: dict[str, Any]) -> Self:
        """Make a detector from its forest and what `notes` gave; notes that cannot be are a ValueError."""
        _check_forest(forest, notes["parameters"])
        detector = cls(**notes["parameters"])
        detector.forest = forest
        if notes["names"] is not None:
            detector._records.fix_names(notes["names"])
        detector._shingle.restore(notes["shingle"])
        detector._threshold.restore(notes["threshold"])
        detector._monitor.restore(notes["monitor"])
        detector._drifts.extend(_checked_drift(*values) for values in notes["drifts"])
        if any(ours > theirs for ours, theirs in zip(detector._monitor.counts, forest.n_taken, strict=True)):
            raise ValueError("the drift monitor has counted points that the forest has not taken.")
        counts = [as_count(count, "a count", 0, 2**61) for count in notes["counts"]]
        detector.n_seen, detector.n_skipped, detector.n_scored, detector.n_drifts = counts
        return detector

    # -- inside -----------------------------------------------------------------------------------------------------

    def _asked(self) -> Records:
        """Give records that forget the names of rows that were only asked about."""
        return Records(self._records.n_features, self._records.names)

    def _process_usable(self, rows: Array, is_usable: Array, index: Array) -> Results:
        """Process the usable rows and skip the others."""
        score, is_anomaly = np.full(index.size, np.nan), np.zeros(index.size, np.bool_)
        threshold = np.empty(index.size)
        done = first = 0
        for usable, run in groupby(is_usable):
            n = len(list(run))
            places = slice(first, first + n)
            if usable:
                score[places], is_anomaly[places], threshold[places] = self._process(rows[done : done + n])
                done += n
            else:
                self.skip(n)
                threshold[places] = self.threshold
            first += n
        return Results(score, is_anomaly, threshold, index)

    def _process(self, rows: Array) -> tuple[Array, Array, Array]:
        """Score, judge and learn rows that have been checked."""
        n_rows = rows.shape[0]
        points = self._shingle.points(rows)
        n_waiting = n_rows - points.shape[0]  # rows that do not make a point yet
        score, is_anomaly = np.full(n_rows, _UNKNOWN), np.zeros(n_rows, np.bool_)
        threshold = np.full(n_rows, self.threshold if n_waiting else np.nan)
        self.n_seen += n_waiting
        first = 0
        while first < points.shape[0]:
            last = min(first + self._n_together(), points.shape[0])
            places = slice(n_waiting + first, n_waiting + last)
            score[places], is_anomaly[places], threshold[places] = self._process_points(points[first:last])
            first = last
        return score, is_anomaly, threshold

    def _n_together(self) -> int:
        """Tell how many points can be treated alike: up to the next turn of the warm-up."""
        if self.is_warm and not self._parameters["learn_anomalies"]:
            return 1
        return min((turn - self.n_scored for turn in self._turns if turn > self.n_scored), default=MAX_POINTS)

    def _judges_first(self) -> bool:
        """Tell whether the next point must be judged before it is known whether it is learned; the first is."""
        return self.is_warm and not self._parameters["learn_anomalies"] and self.n_scored > 0

    def _process_point(self, point: Array) -> tuple[float, bool, float]:
        """Do as `_process_points` with one point, without the arrays that only many are worth."""
        if self._judges_first():
            scores, anomalies, thresholds = self._process_points(point[None])
            return float(scores[0]), bool(anomalies[0]), float(thresholds[0])
        is_warm, is_counted = self.is_warm, self.n_scored >= self._turns[0]
        score, steps = self.forest.score_and_slide_one(point, self.kind)
        threshold = self._threshold.observe_one(score) if is_counted else self.threshold
        if steps:
            self._watch(np.array([score]), steps)
        else:
            self._monitor.count_one(score)
        self.n_seen += 1
        self.n_scored += 1
        return score, is_warm and score > threshold, threshold

    def _process_points(self, points: Array) -> tuple[Array, Array, Array]:
        is_warm, is_counted = self.is_warm, self.n_scored >= self._turns[0]
        if self._judges_first():
            score = self.forest.score_next(points, self.kind)
            if not score[0] > self.threshold:
                self.forest.extend(points)
            steps = self._own_step()
        else:
            score, steps = self.forest.score_and_slide(points, self.kind)
        threshold = self._threshold.observe(score) if is_counted else np.full(len(score), self.threshold)
        self._watch(score, steps)
        self.n_seen += len(score)
        self.n_scored += len(score)
        return score, (score > threshold) & is_warm, threshold

    def _own_step(self) -> list[Step]:
        """Take a step with every eighth of a window that was scored, where the window itself may stand still."""
        is_due = (self.n_scored + 1) % max(self._parameters["window"] // 8, 1) == 0
        return [Step(1, *self.forest.n_taken)] if is_due else []

    def _watch(self, scores: Array, steps: list[Step]) -> None:
        """Let the drift monitor look at the scores, block by block: its blocks are the steps of a full window."""
        if not steps:
            self._monitor.count(scores)
            return
        first = 0
        for step in steps:
            self._monitor.count(scores[first : step.n_rows])
            first, index = step.n_rows, self.n_seen + step.n_rows - 1
            if self._monitor.began[1] >= 0:
                drift = self._monitor.close(step.n_taken, step.n_outside, index)
                if drift is not None:
                    self._drifts.append(drift)
                    self.n_drifts += 1
            elif self.n_scored + step.n_rows >= self._parameters["window"]:
                self._monitor.begin(step.n_taken, step.n_outside, index)
        self._monitor.count(scores[first:])


def _check_forest(forest: MondrianForest, parameters: dict[str, Any]) -> None:
    """Make sure that the forest can be that of a detector with these parameters."""
    ours = (parameters["window"], parameters["max_samples"], parameters["n_features"] * parameters["shingle"])
    is_ours = forest.window is not None and ours == (forest.window, forest.max_samples, forest.n_features)
    if not is_ours or not np.array_equal(_score_and_scale(parameters)[1], forest.scale):
        raise ValueError("the forest is not that of the detector.")
    as_count(parameters["n_estimators"], "n_estimators", 1, forest.n_trees)


def _score_and_scale(parameters: dict[str, Any]) -> tuple[str, Any]:
    """Give the score and the scale: those of the preset, unless others are named (older files name none)."""
    preset = preset_of(parameters["preset"])
    score, scale = parameters.get("score", "preset"), parameters.get("scale", "preset")
    is_preset = isinstance(scale, str) and scale == "preset"
    return preset.score if score == "preset" else score, preset.scale if is_preset else scale


def _checked_drift(index: int, since: int, what: str, value: float, usual: float) -> Drift:
    if what not in (OUTSIDE, SCORES):
        raise ValueError(f"a drift is of {what!r}.")
    index, since = (as_count(row, "a row of a drift", 0, 2**62) for row in (index, since))
    return Drift(index, since, what, as_number(value, "value"), as_number(usual, "usual"))


def _checked_threshold(threshold: Any) -> Any:
    if isinstance(threshold, str) and threshold in THRESHOLDS:
        return threshold
    is_number = isinstance(threshold, (float, int, np.floating)) and not isinstance(threshold, bool)
    if is_number and 0.0 < threshold <= 0.5:
        return "auto" if threshold == 0.5 else float(threshold)
    raise InvalidInputError(
        f"threshold must be 'kmeans', 'auto' or 0.5 (scores above 0.5), or a share below 0.5, but is {threshold!r}."
    )


def _checked_choice(value: Any, name: str, choices: tuple[Any, ...]) -> Any:
    if not any(value is choice or (isinstance(value, str) and value == choice) for choice in choices):
        raise InvalidInputError(f"{name} must be one of {choices}, but is {value!r}.")
    return value
