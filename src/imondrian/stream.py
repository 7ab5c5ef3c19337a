"""The stream detector: scores each point, tells whether it is an anomaly, and learns it; in a fixed number of bytes."""

import copy
from collections.abc import Iterator
from itertools import groupby
from typing import Any, NamedTuple, Self

import numpy as np

from imondrian.defaults import (
    FROM_PRESET,
    LEARN_ANOMALIES,
    MAX_SAMPLES,
    N_JOBS,
    N_TREES,
    PRESET,
    SEED,
    SHINGLE,
    WINDOW,
    default_warm_up,
    with_preset,
)
from imondrian.drift import OUTSIDE, SCORES, Drift
from imondrian.engine.jit import Array
from imondrian.engine.nodes import MAX_POINTS, MAX_SHOWN
from imondrian.errors import InvalidInputError
from imondrian.forest import MAX_SEED, MondrianForest, Snapshot
from imondrian.inputs import as_count, as_number
from imondrian.locking import changes, is_inside, reads
from imondrian.named_rows import Records
from imondrian.option_types import ON_ERROR, Kind, KindOrPreset, OnError, PresetName, ScaleOrPreset, ThresholdOrPreset
from imondrian.samplers import Step
from imondrian.scores import scoring_of
from imondrian.shingles import Shingle
from imondrian.stream_state import N_DRIFTS, N_DRIFTS_KEPT, N_SEEN, N_SHOWN, N_SKIPPED, Judged, Progress
from imondrian.thresholds import THRESHOLDS, StreamingThreshold

_score_and_slide = MondrianForest.score_and_slide.__wrapped__  # type: ignore[attr-defined]  # the lock is held
_score_and_slide_one = MondrianForest.score_and_slide_one.__wrapped__  # type: ignore[attr-defined]
_FORMER_NAMES = {"n_estimators": "n_trees", "score": "kind"}  # in model files of version 0.1
_NOTHING = -1
_UNKNOWN = 0.5  # the score of a point of which nothing can be said


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
    n_trees : int, default=100
        Number of trees.
    threshold : "preset", "auto", "kmeans" or float, default="preset"
        What is an anomaly: a share below 0.5 of the latest points, the oddest; a score above 0.5 ("auto", or 0.5); or a
        score above the middle between the means of two clusters of the latest scores ("kmeans", the paper; it always
        finds two clusters, be the upper one ever so ordinary).
    preset : "practice" or "paper", default="practice"
        "practice": `kind="size"`, `scale="std"`, `threshold=0.01`. "paper": `kind="depth"`, `scale=None` (features as
        they come), `threshold="kmeans"`.
    kind : "preset", "depth", "expected" or "size", default="preset"
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

    Notes
    -----
    A detector may be used from several threads: a call that changes it has it alone, calls that only ask run side by
    side. An interrupted call (Ctrl+C) has processed the first rows up to some row as if no other had come; `n_seen`
    says how many.

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
        window: int = WINDOW,
        max_samples: int | None = MAX_SAMPLES,
        n_trees: int = N_TREES,
        threshold: ThresholdOrPreset = "preset",
        preset: PresetName = PRESET,
        kind: KindOrPreset = "preset",
        scale: ScaleOrPreset = "preset",
        seed: int = SEED,
        warm_up: int | None = None,
        learn_anomalies: bool = LEARN_ANOMALIES,
        shingle: int = SHINGLE,
        on_error: OnError = "raise",
        n_jobs: int = N_JOBS,
    ) -> None:
        self._configure(
            {
                "n_features": n_features,
                "window": window,
                "max_samples": max_samples,
                "n_trees": n_trees,
                "threshold": threshold,
                "preset": preset,
                "kind": kind,
                "scale": scale,
                "seed": seed,
                "warm_up": warm_up,
                "learn_anomalies": learn_anomalies,
                "shingle": shingle,
                "on_error": on_error,
                "n_jobs": n_jobs,
            }
        )
        names = ("n_trees", "max_samples", "window", "scale", "seed", "n_jobs")
        self._begin(MondrianForest(**{name: self._parameters[name] for name in names}))
        self.forest.reserve(n_features * shingle)

    def _configure(self, parameters: dict[str, Any]) -> None:
        """Check the parameters and keep them."""
        self._parameters = _checked_parameters(**with_preset(parameters))
        self.kind: Kind = self._parameters["kind"]

    def _begin(self, forest: MondrianForest) -> None:
        """Begin with a forest, and nothing counted yet; the parameters are set."""
        window, n_features = self._parameters["window"], self._parameters["n_features"]
        threshold = StreamingThreshold(self._parameters["threshold"], half_life=max(window // 2, 1))
        shingle = Shingle(self._parameters["shingle"], n_features)
        self.forest, self._locks = forest, forest._locks  # noqa: SLF001 (one lock for both)
        self._progress = self._prepared = Progress(shingle, threshold, window, self._parameters["warm_up"])
        self._awaited = _NOTHING  # number of the first point that the forest is being shown by this detector

    def __repr__(self) -> str:
        return f"StreamDetector({', '.join(f'{name}={value!r}' for name, value in self._parameters.items())})"

    @property
    def parameters(self) -> dict[str, Any]:
        """The arguments that make a detector like this one, with what its preset stands for."""
        return dict(self._parameters)

    @property
    def n_seen(self) -> int:
        """Number of rows so far, those skipped included."""
        return self._committed().n_seen

    @property
    def n_skipped(self) -> int:
        """Number of rows skipped."""
        return int(self._committed().counts[N_SKIPPED])

    @property
    def n_scored(self) -> int:
        """Number of points scored."""
        return self._committed().n_scored

    @property
    def n_drifts(self) -> int:
        """Number of reports that the stream has moved for good."""
        return int(self._committed().counts[N_DRIFTS])

    @property
    def feature_names(self) -> list[Any] | None:
        """The names of the features, once a dictionary or a frame has named them."""
        names = self._committed().names
        return None if names is None else list(names)

    @property
    def threshold(self) -> float:
        """The score above which the next point would be an anomaly, were it not for the warm-up."""
        return self._committed().threshold.threshold

    @property
    def is_warm(self) -> bool:
        """Whether the warm-up is over, so that the next point can be called an anomaly."""
        return self._committed().is_warm

    @property
    def drifts(self) -> tuple[Drift, ...]:
        """The last reports that the stream has moved for good."""
        return self._committed().drifts

    @property
    @reads
    def n_bytes(self) -> int:
        """Memory that the state takes: the same from the first point to the last."""
        return self.forest.n_bytes + self._progress.n_bytes

    # -- the stream -------------------------------------------------------------------------------------------------

    @changes
    def process(self, x: Any) -> Result:
        """Score one row, tell whether it is an anomaly, then learn it.

        Parameters
        ----------
        x : array of shape (n_features,), dictionary, or a number where there is one feature
        """
        records, progress = self._records(), self._progress
        index = progress.check_growth(1)
        try:
            row = records.point(x)
        except InvalidInputError:
            if self._parameters["on_error"] == "raise":
                raise
            progress.skip(1)
            return Result(float("nan"), False, progress.threshold.threshold, index)
        if progress.shingle.size > 1 or records.names is not progress.names or self._judges_first(progress):
            score, is_anomaly, threshold = (column[0].item() for column in self._process(row, records.names))
            return Result(score, is_anomaly, threshold, index)
        return Result(*self._process_point(row[0]), index)

    def process_many(self, X: Any) -> Results:
        """Like `process` for one row after the other, and the same to the last bit; several times as fast.

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
        return self._process_many(X)

    @changes
    def _process_many(self, X: Any) -> Results:
        """Process rows that are all there: nobody waits for the lock while they are waited for."""
        records, first = self._records(), self._progress.check_growth(len(X))
        index = np.arange(first, first + len(X))
        if len(X) == 0:
            return Results(np.empty(0), np.empty(0, np.bool_), np.empty(0), index)
        if self._parameters["on_error"] == "raise":
            return Results(*self._process(records.points(X), records.names), index)
        rows, is_usable = records.usable(X)
        return Results(*self._process_usable(rows, is_usable, records.names), index)

    @changes
    def skip(self, n_rows: int = 1) -> None:
        """Count rows that came and cannot be used, as ``on_error="skip"`` does; nothing else changes."""
        n_rows = as_count(n_rows, "n_rows", 0, MAX_POINTS)
        self._progress.check_growth(n_rows)
        self._progress.skip(n_rows)

    @reads
    def score(self, X: Any) -> Array:
        """Score each row as if it came next; nothing is learned and nothing counted."""
        rows = self._records().points(X) if not hasattr(X, "__len__") or len(X) else np.empty((0, 0))
        points = [self._progress.shingle.preview(row[None]) for row in rows]
        if sum(map(len, points)) == 0:
            return np.full(len(rows), _UNKNOWN)
        return self.forest.score_next(np.vstack(points), self.kind)

    @reads
    def explain(self, x: Any) -> dict[Any, float]:
        """Divide the score of a row, as if it came next, among its features; the sizes of the parts sum to the score.

        A part is positive where the row lies too high, negative where it lies too low. Features are named as the
        stream named them, or numbered; in a shingle with the rows ago as well: ("x", 2) is x two rows ago.
        """
        records, shingle = self._records(), self._progress.shingle
        point = shingle.preview(records.point(x))
        names = records.names or range(shingle.n_features)
        size = shingle.size
        keys = list(names) if size == 1 else [(name, size - 1 - i) for i in range(size) for name in names]
        if len(point) == 0:
            return dict.fromkeys(keys, _UNKNOWN / len(keys))
        return {key: float(value) for key, value in zip(keys, self.explain_point(point), strict=True)}

    @reads
    def explain_point(self, point: Array) -> Array:
        """Divide the score of a point as the forest holds it among its values; of a shingle, those of all its rows."""
        if self.forest.n_points == 0:
            return np.full(point.size, _UNKNOWN / point.size)
        point = point.reshape(1, -1)
        parts = self.forest.explain(point, self.kind)[0]
        return parts * (self.forest.score_next(point, self.kind)[0] / np.abs(parts).sum())

    @changes
    def forget(self, X: Any) -> Self:
        """Forget rows of the window exactly: the trees are distributed as if they had never held them.

        A row that is not in the window is an error, and then none is forgotten. The threshold and the drift monitor
        have seen the rows and keep what they counted. The points of a shingle are several rows each, which cannot be
        forgotten by one of them.
        """
        size = self._progress.shingle.size
        if size > 1:
            raise InvalidInputError(f"The points are {size} rows each: single rows cannot be forgotten.")
        self.forest.forget(self._records().points(X))
        return self

    @reads
    def rescore(self) -> tuple[Array, Array]:
        """Score the points of the window again with the forest as it is now; give the points, oldest first, and scores.

        The paper scores earlier points again after each update.
        """
        return self.forest.rescore(self.kind)

    # -- model files ------------------------------------------------------------------------------------------------

    @reads
    def notes(self) -> dict[str, Any]:
        """Give what a model file keeps beside the forest, as JSON can hold it."""
        progress = self._progress
        return {
            "parameters": self.parameters,
            "names": progress.names,
            "shingle": progress.shingle.last.ravel().tolist(),
            "threshold": progress.threshold.state(),
            "monitor": progress.monitor.state(),
            "drifts": [list(drift) for drift in progress.drifts],
            "counts": progress.counts[:N_SHOWN].tolist(),
        }

    @classmethod
    def from_notes(cls, forest: MondrianForest, notes: dict[str, Any]) -> Self:
        """Make a detector from its forest and what `notes` gave; notes that cannot be are a ValueError."""
        detector = cls.__new__(cls)
        detector._restore(forest, notes)  # noqa: SLF001
        return detector

    @reads
    def snapshot(self) -> tuple[Snapshot, dict[str, Any]]:
        """Copy all that the detector is: its forest, and `notes` for all else."""
        return self.forest.snapshot(), self.notes()

    def __getstate__(self) -> dict[str, Any]:
        forest, notes = self.snapshot()
        return {"forest": forest._asdict(), "notes": notes}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "notes" not in state:
            raise ValueError("This detector was pickled by another version of imondrian; any can read model files.")
        self._restore(MondrianForest.from_state(**state["forest"]), state["notes"])

    @reads
    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.from_notes(copy.deepcopy(self.forest, memo), self.notes())

    # -- inside -----------------------------------------------------------------------------------------------------

    def _restore(self, forest: MondrianForest, notes: dict[str, Any]) -> None:
        """Become the detector with that forest and those notes, or raise a ValueError."""
        self._configure(renamed_parameters(notes["parameters"]))
        _check_forest(forest, self._parameters)
        self._begin(forest)
        progress = self._progress
        if notes["names"] is not None:
            progress.names = _checked_names(notes["names"], self._parameters["n_features"])
        progress.shingle.restore(notes["shingle"])
        progress.threshold.restore(notes["threshold"])
        progress.monitor.restore(notes["monitor"])
        if len(notes["drifts"]) > N_DRIFTS_KEPT:
            raise ValueError(f"there are {len(notes['drifts'])} drifts, but at most {N_DRIFTS_KEPT} are kept.")
        progress.drifts = tuple(_checked_drift(*values) for values in notes["drifts"])
        if any(ours > theirs for ours, theirs in zip(progress.monitor.counts, forest.n_taken, strict=True)):
            raise ValueError("the drift monitor has counted points that the forest has not taken.")
        counts = [as_count(count, "a count", 0, MAX_SHOWN) for count in notes["counts"]]
        progress.counts[:] = [*counts, forest.sliding.number]
        _check_counts(progress)

    def _committed(self) -> Progress:
        """Return what has been committed; in the middle of a call, which only a signal handler can see, as it was."""
        return self._progress if is_inside(self) else self._settled()

    @reads
    def _settled(self) -> Progress:
        return self._progress

    def _is_settled(self) -> bool:
        window = self.forest.sliding
        return window.changes.pending is None and window.number == self._progress.counts.item(N_SHOWN)

    def _settle(self) -> None:
        """Finish what an interrupted call has left: rows that the forest has been shown are counted here too."""
        self.forest._settle()  # noqa: SLF001 (the locks are held)
        window, n_shown = self.forest.sliding, self._progress.counts.item(N_SHOWN)
        if window.number != n_shown:
            scored = window.scored
            if scored is not None and (self._awaited, scored.first, scored.end) == (n_shown, n_shown, window.number):
                self._account(*scored.read())
            else:
                self._progress.counts[N_SHOWN] = window.number  # somebody has extended the forest itself

    def _records(self) -> Records:
        """Return what turns rows into points; names that it learns count when the first of its rows is processed."""
        return Records(self._parameters["n_features"], self._progress.names)

    def _process_usable(self, rows: Array, is_usable: Array, names: list[Any] | None) -> Judged:
        """Process the usable rows and skip the others."""
        score, is_anomaly = np.full(is_usable.size, np.nan), np.zeros(is_usable.size, np.bool_)
        threshold = np.empty(is_usable.size)
        done = first = 0
        for usable, run in groupby(is_usable):
            n = len(list(run))
            places = slice(first, first + n)
            if usable:
                score[places], is_anomaly[places], threshold[places] = self._process(rows[done : done + n], names)
                done += n
            else:
                self._progress.skip(n)
                threshold[places] = self._progress.threshold.threshold
            first += n
        return Judged(score, is_anomaly, threshold)

    def _process(self, rows: Array, names: list[Any] | None) -> Judged:
        """Score, judge and learn rows that have been checked, block by block."""
        done: list[Judged] = []
        first = 0
        while first < rows.shape[0]:
            n_waiting = self._progress.shingle.n_missing
            last = first + (n_waiting or self._n_together(rows.shape[0] - first))
            process = self._process_waiting if n_waiting else self._process_block
            done.append(process(rows[first:last], names))
            first = last
        return done[0] if len(done) == 1 else Judged(*map(np.concatenate, zip(*done, strict=True)))

    def _n_together(self, n_rows: int) -> int:
        """Return how many of that many rows make a block: all that are treated alike, and that the window can take."""
        progress = self._progress
        if progress.is_warm and not self._parameters["learn_anomalies"]:
            return 1
        return min(progress.n_alike, self.forest.sliding.scored_block(n_rows, self.kind))

    def _judges_first(self, progress: Progress) -> bool:
        """Return True if a point must be judged before it is known whether it is learned; the first always is."""
        return not self._parameters["learn_anomalies"] and progress.is_warm and progress.n_scored > 0

    def _process_point(self, point: Array) -> tuple[float, bool, float]:
        """Like `_process_block` for one point, without the copies that only many are worth."""
        progress = self._prepared = self._progress
        self._awaited = progress.counts.item(N_SHOWN)
        score, steps = _score_and_slide_one(self.forest, point, self.kind)
        if steps or not progress.is_counting:
            judged = self._account(np.array([score]), steps)
            return score, bool(judged.is_anomaly[0]), float(judged.threshold[0])
        is_warm, threshold = progress.is_warm, progress.threshold.threshold
        progress.count_row(score)
        return score, is_warm and score > threshold, threshold

    def _process_block(self, rows: Array, names: list[Any] | None) -> Judged:
        """Score, judge and learn a block of rows, each of which completes a point."""
        progress, points = self._progress.prepared(rows, names)
        self._prepared, self._awaited = progress, progress.counts.item(N_SHOWN)
        if not self._judges_first(progress):
            return self._account(*_score_and_slide(self.forest, points, self.kind))
        score = self.forest.score_next(points, self.kind)
        if not score[0] > progress.threshold.threshold:
            self.forest.slide_scored(points[0], float(score[0]))
        return self._account(score, [])

    def _process_waiting(self, rows: Array, names: list[Any] | None) -> Judged:
        """Keep rows that do not complete a point yet."""
        progress = self._progress.prepared(rows, names)[0].copy()
        progress.counts[N_SEEN] += len(rows)
        self._progress = progress
        threshold = np.full(len(rows), progress.threshold.threshold)
        return Judged(np.full(len(rows), _UNKNOWN), np.zeros(len(rows), np.bool_), threshold)

    def _account(self, scores: Array, steps: list[Step]) -> Judged:
        """Judge and count scores of prepared rows that the forest has been shown; if interrupted, it is repeated."""
        progress = self._prepared.copy()
        if self._judges_first(progress):
            steps = self._own_step(progress)
        judged = progress.observe(scores, steps)
        progress.counts[N_SHOWN] = self.forest.sliding.number
        self._progress, self._awaited = progress, _NOTHING
        return judged

    def _own_step(self, progress: Progress) -> list[Step]:
        """Take a step with every eighth of a window that was scored, where the window itself may stand still."""
        is_due = (progress.n_scored + 1) % max(self._parameters["window"] // 8, 1) == 0
        return [Step(1, *self.forest.n_taken)] if is_due else []


def _checked_parameters(  # noqa: PLR0913
    *,
    n_features: Any,
    window: Any,
    max_samples: Any,
    n_trees: Any,
    threshold: Any,
    preset: Any,
    kind: Any,
    scale: Any,
    seed: Any,
    warm_up: Any,
    learn_anomalies: Any,
    shingle: Any,
    on_error: Any,
    n_jobs: Any,
) -> dict[str, Any]:
    """Check the arguments of a detector; return them as plain numbers, texts and lists."""
    window = as_count(window, "window", 1, MAX_POINTS)
    return {
        "n_features": as_count(n_features, "n_features", 1, MAX_POINTS),
        "window": window,
        "max_samples": None if max_samples is None else as_count(max_samples, "max_samples", 1, MAX_POINTS),
        "n_trees": as_count(n_trees, "n_trees", 1, MAX_POINTS),
        "threshold": _checked_threshold(threshold),
        "preset": preset,
        "kind": _checked_kind(kind),
        "scale": scale.tolist() if isinstance(scale, np.ndarray) else scale,
        "seed": as_count(seed, "seed", 0, MAX_SEED),
        "warm_up": default_warm_up(window) if warm_up is None else as_count(warm_up, "warm_up", 0, MAX_POINTS),
        "learn_anomalies": _checked_choice(learn_anomalies, "learn_anomalies", (True, False)),
        "shingle": as_count(shingle, "shingle", 1, MAX_POINTS),
        "on_error": _checked_choice(on_error, "on_error", ON_ERROR),
        "n_jobs": as_count(n_jobs, "n_jobs", -MAX_POINTS, MAX_POINTS),
    }


def _check_forest(forest: MondrianForest, parameters: dict[str, Any]) -> None:
    """Make sure that the forest can be that of a detector with these parameters."""
    n_features = parameters["n_features"] * parameters["shingle"]
    ours = (parameters["window"], parameters["max_samples"], n_features)
    is_ours = forest.window is not None and ours == (forest.window, forest.max_samples, forest.n_features)
    if not is_ours or not np.array_equal(parameters["scale"], forest.scale):
        raise ValueError("the forest is not that of the detector.")
    as_count(parameters["n_trees"], "n_trees", 1, forest.n_trees)


def renamed_parameters(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of a model file under their present names.

    Version 0.1 wrote `n_estimators` for `n_trees` and `score` for `kind`; its first files had neither score nor scale.
    """
    renamed = {_FORMER_NAMES.get(name, name): value for name, value in dict(parameters).items()}
    return {"kind": FROM_PRESET, "scale": FROM_PRESET} | renamed


def _checked_kind(kind: Any) -> Any:
    scoring_of(kind)
    return kind


def _checked_names(names: Any, n_features: int) -> list[Any]:
    records = Records(n_features)
    records.fix_names(names)
    return list(records.names or ())


def _check_counts(progress: Progress) -> None:
    """Raise a ValueError if counts contradict each other."""
    n_seen, n_skipped, n_scored, n_drifts, _ = progress.counts.tolist()
    if n_skipped + n_scored > n_seen or n_drifts < len(progress.drifts):
        raise ValueError(f"the counts {progress.counts[:N_SHOWN].tolist()} contradict each other.")
    last = max([*progress.monitor.began, *(drift.index for drift in progress.drifts)])
    if last > n_seen:
        raise ValueError(f"row {last} is spoken of, but only {n_seen} have been seen.")


def _checked_drift(index: int, since: int, what: str, value: float, usual: float) -> Drift:
    if what not in (OUTSIDE, SCORES):
        raise ValueError(f"a drift is of {what!r}.")
    index, since = (as_count(row, "a row of a drift", 0, MAX_SHOWN) for row in (index, since))
    figures = [as_number(figure, "a figure of a drift") for figure in (value, usual)]
    if not np.isfinite(figures).all():
        raise ValueError(f"the figures of a drift are {figures}.")
    return Drift(index, since, what, *figures)


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
