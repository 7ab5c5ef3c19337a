"""The stream detector: scores, labels and learns each point, with a fixed amount of memory."""

import copy
from collections.abc import Callable
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np

from imondrian.alarms.drift import Drift
from imondrian.alarms.incidents import (
    NO_INCIDENT,
    AlarmReason,
    Incident,
    IncidentEvent,
    IncidentRules,
    IncidentTracker,
    checked_rules,
)
from imondrian.alarms.score_distribution import ScoreDistribution
from imondrian.alarms.thresholds import StreamingThreshold, stream_rule
from imondrian.base.copying import shallow_copy
from imondrian.base.defaults import (
    LEARN_ANOMALIES,
    MISSING_VALUES,
    N_JOBS,
    PRESET,
    SEED,
    SHINGLE,
    resolved_for_stream,
    with_stream_preset,
)
from imondrian.base.errors import InvalidInputError
from imondrian.base.locking import is_inside, read_locked, unlocked, write_locked
from imondrian.base.option_types import (
    VIEWS,
    CountOrPreset,
    Kind,
    KindOrPreset,
    OnError,
    ScaleOrPreset,
    StreamCategorical,
    StreamMissing,
    StreamPresetName,
    ThresholdOrPreset,
)
from imondrian.engine.jit import Array
from imondrian.engine.nodes import MAX_POINTS
from imondrian.engine.stream_counts import N_SEEN, N_SHOWN
from imondrian.forest.forest_state import Snapshot, copied
from imondrian.forest.inputs import as_count, has_gaps, unchanged
from imondrian.forest.mondrian_forest import MondrianForest
from imondrian.forest.samplers import Step
from imondrian.forest.scores import UNKNOWN_SCORE
from imondrian.rows.named_rows import CodedRows, RowConverter, has_length, reads_iterables_first
from imondrian.stream.alarm_reasons import AlarmExplainer, longest_block
from imondrian.stream.row_layout import RowLayout
from imondrian.stream.row_times import as_times
from imondrian.stream.series_views import SeriesViews, Spread, TimeCounts
from imondrian.stream.shingles import Shingle
from imondrian.stream.stream_gaps import StreamGaps
from imondrian.stream.stream_parameters import (
    check_forest,
    check_rules_for_numbers,
    check_rules_match,
    checked_parameters,
    checked_threshold,
    restored_parameters,
)
from imondrian.stream.stream_rows import StreamRows
from imondrian.stream.stream_state import BlockResults, StreamState, empty_results, joined_results

# without locking: a detector already holds the lock of its forest
_score_and_extend_block = unlocked(MondrianForest.score_and_extend_block)
_score_and_extend_point = unlocked(MondrianForest.score_and_extend_point)
_check_growth = unlocked(MondrianForest.check_growth)
_n_shown = unlocked(MondrianForest.n_shown.fget)  # type: ignore[attr-defined]
_NO_POINT = -1
Answer = TypeVar("Answer")


class Result(NamedTuple):
    """The result of one row."""

    score: float  # in (0, 1), high is anomalous; NaN for a skipped row
    is_anomaly: bool  # whether the score lies above the threshold; False during the warm-up
    threshold: float  # the threshold before the row was counted
    index: int  # type: ignore[assignment]  # index of the row in the stream, from 0 (hides tuple.index)
    surprise: float  # -log10 of the probability that an ordinary recent row scores as high; NaN for a skipped row
    incident: int | None  # number of the incident that is open after the row; None if no incident is open


class Results(NamedTuple):
    """The results of many rows: the fields of `Result` as arrays; `incident` is -1 where no incident is open."""

    score: Array
    is_anomaly: Array
    threshold: Array
    index: Array  # type: ignore[assignment]
    surprise: Array
    incident: Array


class StreamDetector:
    """Anomaly detection on an endless stream, with a forest that follows the latest points.

    Each point is scored, compared with a threshold that adapts to recent scores, and then learned; the point that
    leaves the window is forgotten exactly. Memory is fixed from the start; see `n_bytes`.

    Parameters
    ----------
    n_features : int
        Number of values in a row.
    window : int or "preset", default="preset"
        Number of latest points that the forest holds.
    max_samples : int, None or "preset", default="preset"
        Approximate number of points of the window that a tree holds; None: all of them.
    n_trees : int or "preset", default="preset"
        Number of trees.
    threshold : float or str, default="preset"
        Which points are anomalies. A number p below 0.5: those whose surprise is above -log10(p), so that an ordinary
        point is flagged with a probability of about p; "surprise 3" is the same as 0.001. "top 5%": the 5 % of the
        latest points with the highest scores. "kmeans" (the paper): scores above the midpoint of the means of two
        clusters of the latest scores; there are always two clusters, even if no score is unusual. 0.5: scores above
        0.5. "auto": 0.5 with the preset "paper", 0.001 with the others. The attribute can be set at any time.
    preset : "practice", "paper" or "series", default="practice"
        "practice": `kind="size"`, `scale="std"`, `threshold=0.001`, `window=2048`, `max_samples=256`, `n_trees=100`.
        "paper": `kind="depth"`, `scale=None` (unscaled features), `threshold="kmeans"`, the rest as in "practice".
        "series", for time series: `kind="expected"`, `scale="std"`, `threshold=0.001`, `window=8192`,
        `max_samples=None`, `n_trees=20`; the forest does not see the values, but how far they are from what is usual at
        this hour of the day and from the recent level (see `imondrian.stream.series_views`). Pass the times of the rows
        to `process`.
    kind : "preset", "depth", "expected" or "size", default="preset"
        Which score to use; see `MondrianForest.score`.
    scale : "preset", None, "std" or one weight per feature, default="preset"
        Weights of the features; see `MondrianForest`. With a shingle, one weight for each feature of each row of a
        point; with the preset "series", a weight applies to both deviations of a feature.
    seed : int, default=0
        The same seed and the same rows give the same results, bit for bit, however the rows are divided into calls.
    warm_up : int, optional
        Number of points that are learned before any is labelled as an anomaly. By default an eighth of the
        window; with the preset "series", a sixteenth.
    learn_anomalies : bool, default=True
        Whether points labelled as anomalies are learned. If not, a stream that changes permanently may be flagged
        forever, and rows are scored one by one, which is slower. With the preset "series", anomalies that are not
        learned do not change the usual values either.
    shingle : int, default=1
        Number of consecutive rows that form a point, for time series whose shape matters. The preset "series" has no
        shingles.
    on_error : "raise" or "skip", default="raise"
        What to do with an unusable row (not finite, not a number, wrong width, wrong names): raise an
        InvalidInputError, or count it in `n_seen` and `n_skipped` and return the score NaN. Nothing else changes.
    n_jobs : int, default=1
        Number of threads for calls with many rows; results do not depend on it.
    categorical : sequence of int or str, or mask, default=()
        Features that are categories: text, booleans, or numbers for which only equality counts. Names are allowed if
        the first row is a dictionary or a data frame; then these features come first in `feature_names`, which is the
        order of rows without names. A missing value is a category of its own.
    missing : "median", "previous", "indicator" or "raise", default="median"
        What to do with missing numbers: NaN, None, NA, or keys that are absent from a dictionary. "median": replace
        them with the median of the feature in the window, or with 0 before the first value of the feature. The median
        is computed at the first gap, and again at the first gap after a further eighth of the window has arrived (until
        the window is full: after the number of points has grown by an eighth); it does not count values that replaced
        missing ones. "previous": repeat the last learned value of the feature. "indicator": like "median";
        in addition, a yes/no feature for every numeric feature says whether its value is missing. "raise": the row is
        unusable. A row without any value is always unusable. The preset "series" allows only "raise" and "median"; its
        "median" treats a missing number as equal to the usual one.
    rules : IncidentRules or dict, optional
        Which alarms form an incident. The attribute can be set at any time. A rule for a categorical feature raises an
        InvalidInputError. So does the first row if it does not name a feature that a rule refers to by name.

    Attributes
    ----------
    n_seen : int
        Number of rows so far, including skipped ones.
    n_skipped : int
        Number of rows skipped.
    n_missing : int
        Number of missing numbers so far.
    drifts : tuple of Drift
        The latest reports of lasting changes of the stream, at most 16.
    incidents : tuple of Incident
        The latest incidents, at most 64; the last one may be open.
    forest : MondrianForest
        The forest.
    kind : str
        The kind of score: "depth", "expected" or "size".

    Notes
    -----
    A detector may be used from several threads: a call that changes it runs alone, calls that only read run at the same
    time. If a call is interrupted (Ctrl+C), the detector has processed some of its rows, from the first on, as if the
    others had not arrived; `n_seen` counts only those processed.

    Examples
    --------
    >>> import numpy as np
    >>> from imondrian import StreamDetector
    >>> X = np.random.default_rng(0).normal(size=(1_000, 2))
    >>> detector = StreamDetector(n_features=2, seed=0)
    >>> results = detector.process_many(X)
    >>> int(results.is_anomaly.sum()) < 5
    True
    >>> result = detector.process([9.0, 9.0])
    >>> result.is_anomaly, result.index, result.surprise > 4, detector.incidents[-1].first
    (True, 1000, True, 1000)
    """

    def __init__(  # noqa: PLR0913
        self,
        n_features: int,
        *,
        window: CountOrPreset = "preset",
        max_samples: CountOrPreset | None = "preset",
        n_trees: CountOrPreset = "preset",
        threshold: ThresholdOrPreset = "preset",
        preset: StreamPresetName = PRESET,
        kind: KindOrPreset = "preset",
        scale: ScaleOrPreset = "preset",
        seed: int = SEED,
        warm_up: int | None = None,
        learn_anomalies: bool = LEARN_ANOMALIES,
        shingle: int = SHINGLE,
        on_error: OnError = "raise",
        n_jobs: int = N_JOBS,
        categorical: StreamCategorical = (),
        missing: StreamMissing = MISSING_VALUES,
        rules: IncidentRules | dict[str, Any] | None = None,
    ) -> None:
        self._set_parameters(
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
                "categorical": categorical,
                "missing": missing,
                "rules": IncidentRules() if rules is None else rules,
            }
        )
        check_rules_for_numbers(self._parameters["rules"], self._parameters, None)
        layout, names = self._layout, ("n_trees", "max_samples", "window", "seed", "n_jobs")
        settings = {name: self._parameters[name] for name in names}
        weights = layout.forest_scale(self._parameters["scale"])
        forest = MondrianForest(**settings, scale=weights, categorical=layout.categorical_values)
        self._set_forest(forest.reserve(layout.n_values))

    def _set_parameters(self, parameters: dict[str, Any]) -> None:
        """Check and store the parameters."""
        self._parameters = checked_parameters(**with_stream_preset(parameters))
        self.kind: Kind = self._parameters["kind"]
        self._layout = layout = RowLayout.of(self._parameters)
        allows_gaps = self._parameters["missing"] != "raise"
        self._converter = RowConverter(
            layout.n_features, None, self._parameters["categorical"], allows_gaps=allows_gaps
        )  # copied for each call
        self._n_values = layout.n_values

    def _set_forest(self, forest: MondrianForest) -> None:
        """Set the forest and start all counters at zero; the parameters must be set."""
        window, layout = self._parameters["window"], self._layout
        threshold = StreamingThreshold(self._parameters["threshold"], half_life=max(window // 2, 1))
        builder = SeriesViews(layout.n_features) if layout.has_views else Shingle(layout.size, layout.width)
        keeps_gaps = layout.has_views and self._parameters["missing"] != "raise"
        gaps = StreamGaps(layout, "keep" if keeps_gaps else self._parameters["missing"], window)
        self.forest, self._locks = forest, forest._locks  # noqa: SLF001 (one lock for both)
        self._sampler = forest.sampler  # if the forest later has another sampler, it was built again
        incidents = IncidentTracker(self._parameters["rules"])
        self._state = StreamState(builder, gaps, threshold, incidents, window, self._parameters["warm_up"])
        self._events: tuple[IncidentEvent, ...] = ()
        self._explainer = AlarmExplainer(self._parameters)
        self._next_state = self._state  # includes the rows being processed, which are not counted yet
        self._first_unrecorded = _NO_POINT  # number of the first point that is being shown to the forest

    def __repr__(self) -> str:
        return f"StreamDetector({', '.join(f'{name}={value!r}' for name, value in self._parameters.items())})"

    @property
    def parameters(self) -> dict[str, Any]:
        """The constructor arguments of this detector, with every value "preset" replaced by that of the preset."""
        return dict(self._parameters)

    @property
    def indicators(self) -> tuple[int, ...]:
        """The features with an indicator of missing values; in the forest, indicators are additional columns."""
        return self._layout.indicators

    @property
    def n_seen(self) -> int:
        """Number of rows so far, including skipped ones."""
        return self._recorded(lambda state: state.n_seen)

    @property
    def n_skipped(self) -> int:
        """Number of rows skipped."""
        return self._recorded(lambda state: state.n_skipped)

    @property
    def n_missing(self) -> int:
        """Number of missing numbers so far."""
        return self._recorded(lambda state: state.gaps.n_missing)

    @property
    def n_scored(self) -> int:
        """Number of points scored."""
        return self._recorded(lambda state: state.n_scored)

    @property
    def n_drifts(self) -> int:
        """Number of drifts reported so far."""
        return self._recorded(lambda state: state.n_drifts)

    @property
    def feature_names(self) -> list[Any] | None:
        """The names of the features, once a dictionary or a data frame has named them."""
        names = self._recorded(lambda state: state.names)
        return None if names is None else list(names)

    @property
    def threshold(self) -> float | str:
        """The rule for anomalies; see the parameter. Setting it does not change what the detector has learned."""
        threshold: float | str = self._parameters["threshold"]
        return threshold

    @threshold.setter
    @write_locked
    def threshold(self, threshold: float | str) -> None:
        checked = checked_threshold(
            resolved_for_stream(threshold, "threshold", self._parameters["preset"]), self._parameters["preset"]
        )
        state = self._state.copy()
        state.threshold.use_rule(stream_rule(checked))
        self._parameters, self._state = self._parameters | {"threshold": checked}, state

    @property
    def rules(self) -> IncidentRules:
        """The rules for incidents. Setting them does not change what the detector has learned."""
        rules: IncidentRules = self._parameters["rules"]
        return rules

    @rules.setter
    @write_locked
    def rules(self, rules: IncidentRules | dict[str, Any]) -> None:
        checked, names = checked_rules(rules), self._state.names
        check_rules_for_numbers(checked, self._parameters, names)
        if names is not None:
            check_rules_match(checked, self._layout.n_features, names)
        state = self._state.copy()
        state.incidents.rules = checked
        self._parameters, self._state = self._parameters | {"rules": checked}, state

    @property
    def threshold_score(self) -> float:
        """The score above which the next point is an anomaly, once the warm-up is over."""
        return self._recorded(lambda state: state.threshold.threshold)

    @property
    def score_distribution(self) -> ScoreDistribution:
        """The distribution of the latest scores, from which the surprise of the next score is computed."""
        return self._recorded(lambda state: state.threshold.distribution())

    @property
    def incidents(self) -> tuple[Incident, ...]:
        """The latest incidents, at most 64; the last one may be open."""
        return self._recorded(lambda state: state.incidents.latest)

    @property
    def n_incidents(self) -> int:
        """Number of incidents so far."""
        return self._recorded(lambda state: state.incidents.n_opened)

    @property
    def events(self) -> tuple[IncidentEvent, ...]:
        """The openings and closings of incidents in the last call of `process` or `process_many`, in order."""
        return self._recorded(lambda _: self._events)  # recorded first if a call was interrupted

    @property
    def alarm_rows(self) -> frozenset[int]:
        """Indices of the earlier alarms to which the next event may refer: the first, the last and the peak.

        A caller that also reports, for example, the times of alarms needs to store the times of these rows only.
        """
        return self._recorded(lambda state: state.incidents.alarm_rows)

    @property
    def is_warm(self) -> bool:
        """Whether the warm-up is over, so that the next point can be labelled as an anomaly."""
        return self._recorded(lambda state: state.is_warm)

    @property
    def drifts(self) -> tuple[Drift, ...]:
        """The latest reports of lasting changes of the stream, at most 16."""
        return self._recorded(lambda state: state.drifts)

    @property
    def time_counts(self) -> TimeCounts:
        """With the preset "series", facts about the times of the rows: late rows, holes, the usual step."""
        return self._recorded(lambda _: self._series_views().time_counts)

    def _series_views(self) -> SeriesViews:
        """Return the views of the series; raise InvalidInputError if the preset is not "series"."""
        builder = self._state.builder
        if isinstance(builder, SeriesViews):
            return builder
        raise InvalidInputError(f"This requires the preset 'series', but the preset is {self.preset!r}.")

    @property
    @read_locked
    def n_bytes(self) -> int:
        """Memory of the state in bytes; it never changes."""
        return self.forest.n_bytes + self._state.n_bytes

    # -- processing -------------------------------------------------------------------------------------------------

    @write_locked
    def process(self, x: Any, time: Any = None) -> Result:
        """Score one row, label it, then learn it.

        Parameters
        ----------
        x : array of shape (n_features,), dictionary, or a number if there is one feature
        time : number, datetime, text or None, optional
            The time of the row, for the preset "series" only: seconds since 1970, a datetime, or ISO text. If omitted,
            the row is assumed to come one usual step after the latest time so far.

        Returns
        -------
        Result
        """
        self._events = ()
        converter, state = self._row_converter(), self._state
        index, seconds = state.check_growth(1), self._times(None if time is None else [time], 1)
        try:
            row = converter.point(x)
        except InvalidInputError:
            if self._parameters["on_error"] == "raise":
                raise
            incident = _number_or_none(state.incidents.number_at(index))
            state.skip(1)
            return Result(float("nan"), False, state.threshold.threshold, index, float("nan"), incident)
        self._check_rules(converter.names)
        if self._needs_copy_of_state(row, converter.names):
            return _only_result(self._process(StreamRows(row, seconds, converter.names)), index)
        return self._process_point(row[0], index)

    @reads_iterables_first
    @write_locked
    def process_many(self, X: Any, times: Any = None) -> Results:
        """Process rows one after the other: the same results as `process`, bit for bit, several times as fast.

        Parameters
        ----------
        X : array of shape (n_rows, n_features), data frame (pandas, polars), or iterable of rows or dictionaries
        times : sequence of n_rows times, optional
            The times of the rows, for the preset "series" only; see `process`.

        Returns
        -------
        Results
            One entry per row. With ``on_error="raise"``, no row is processed if any row is unusable.
        """
        self._events = ()
        if not has_length(X):
            raise InvalidInputError(f"X must be a table or an iterable of rows, but is {X!r}.")
        converter, first = self._row_converter(), self._state.check_growth(len(X))
        index, seconds = np.arange(first, first + len(X)), self._times(times, len(X))
        if len(X) == 0:
            return _results(empty_results(0), index)
        _check_growth(self.forest, len(X))
        if self._parameters["on_error"] == "raise":
            points = converter.points(X)
            self._check_rules(converter.names)
            return _results(self._process(StreamRows(points, seconds, converter.names)), index)
        points, is_usable = converter.usable_points(X)
        if len(points):
            self._check_rules(converter.names)
        return _results(self._process_usable(StreamRows(points, seconds, converter.names), is_usable), index)

    @write_locked
    def skip(self, n_rows: int = 1) -> Results:
        """Count unusable rows, as ``on_error="skip"`` does; nothing else changes. Return their results."""
        n_rows = as_count(n_rows, "n_rows", 0, MAX_POINTS)
        first = self._state.check_growth(n_rows)
        results = self._state.results_of_skipped(n_rows)
        self._state.skip(n_rows)
        return _results(results, np.arange(first, first + n_rows))

    @reads_iterables_first
    @read_locked
    def score(self, X: Any, times: Any = None) -> Array:
        """Score each row as if it came next; nothing is learned or counted.

        Parameters
        ----------
        X : array of shape (n_rows, n_features), data frame (pandas, polars), or iterable of rows or dictionaries
        times : sequence of n_rows times, optional
            The times of the rows, for the preset "series" only; see `process`.

        Returns
        -------
        array of shape (n_rows,)
        """
        rows = self._row_converter().points(X) if not has_length(X) or len(X) else np.empty((0, 0))
        builder, seconds = self._state.builder, self._times(times, len(rows))
        if len(rows) == 0 or builder.n_rows_needed > 0:
            return np.full(len(rows), UNKNOWN_SCORE)
        return self.forest.score_next(builder.preview(self._filled_next(rows), seconds), self.kind)

    @read_locked
    def surprise(self, scores: Array) -> Array:
        """Return the surprise of each score, as if it came next; see `Result.surprise`."""
        return self._state.threshold.surprise(scores)

    @read_locked
    def explain(self, x: Any, time: Any = None) -> dict[Any, float]:
        """Divide the score of a row, as if it came next, among its features.

        Parameters
        ----------
        x : array of shape (n_features,), dictionary, or a number if there is one feature
        time : number, datetime, text or None, optional
            The time of the row, for the preset "series" only; see `process`.

        Returns
        -------
        dict
            The part of each feature: positive if its value is unusually high, negative if unusually low. The part of a
            category is never negative. The absolute values sum to the score. The keys are the names of the features, or
            their indices. With a shingle, a key is a pair: ("x", 2) is the feature x two rows ago. With the preset
            "series", ("x", "hour") is the deviation from what is usual at this hour, ("x", "level") that from the
            recent level.
        """
        converter, size = self._row_converter(), self._layout.size
        point = self._next_point(converter.point(x), time)
        names = converter.names or range(self._layout.n_features)
        rows = VIEWS if self._layout.has_views else range(size - 1, -1, -1)
        keys = list(names) if size == 1 else [(name, row) for row in rows for name in names]
        if point.size == 0:
            return dict.fromkeys(keys, UNKNOWN_SCORE / len(keys))
        parts = self._layout.features_of_parts(self.explain_point(point))
        return {key: float(part) for key, part in zip(keys, parts, strict=True)}

    @read_locked
    def expected_range(self, time: Any = None) -> tuple[Array, Array]:
        """Return, for each feature, the range of 90 % of the ordinary values if the next row comes at this time.

        With the preset "series", each view has a range: the usual value plus the 5 % and 95 % quantiles of the
        deviations in the window. The narrower of the two ranges is returned. With other presets, the range lies between
        the 5 % and 95 % quantiles of the values in the window; categories have no range.

        Parameters
        ----------
        time : number, datetime, text or None, optional
            The time of the row, for the preset "series" only; see `process`.

        Returns
        -------
        low, high : arrays of shape (n_features,)
            NaN where nothing is known.
        """
        layout, seconds = self._layout, self._times(None if time is None else [time], 1)
        if self.forest.n_points == 0:
            return np.full(layout.n_features, np.nan), np.full(layout.n_features, np.nan)
        if seconds is not None:
            usual = self._state.builder.usual_at(seconds[0])  # type: ignore[union-attr]  # a series has views
            return Spread.of_points(self.forest.points()).range_around(usual)
        points = layout.features_of_points(self.forest.points()).reshape(-1, layout.size, layout.n_features)
        low, high = np.quantile(points, [0.05, 0.95], axis=0)
        low[-1, list(layout.categorical)] = high[-1, list(layout.categorical)] = np.nan
        return low[-1], high[-1]

    @property
    @read_locked
    def spread(self) -> Spread:
        """With the preset "series": how far the values in the window deviate from the usual ones."""
        self._series_views()
        if self.forest.n_points == 0:
            raise InvalidInputError("The spread is not known: the window is empty.")
        return Spread.of_points(self.forest.points())

    @read_locked
    def usual_values(self, X: Any, times: Any = None) -> Array:
        """Return what is usual for rows that come next, one after the other, with the preset "series".

        It is assumed that each row is learned before the next one comes, even if `learn_anomalies` is False.

        Parameters
        ----------
        X : array of shape (n_rows, n_features), data frame (pandas, polars), or iterable of rows or dictionaries
        times : sequence of n_rows times, optional
            The times of the rows; see `process`.

        Returns
        -------
        array of shape (n_rows, 2, n_features)
            The usual value at the hour of the row, and the recent level before the row; NaN if nothing is known.
        """
        views, n_features = self._series_views().copy(), self._layout.n_features
        is_empty = has_length(X) and len(X) == 0
        rows = np.empty((0, n_features)) if is_empty else self._row_converter().points(X)
        views.points(rows, self._times(times, len(rows)))
        return views.viewed.usual

    @read_locked
    def next_point(self, x: Any, time: Any = None) -> Array:
        """Return the point of the forest that a row would complete if it came next, without missing numbers.

        With a shingle, a point consists of several rows, oldest first; it is empty if too few rows have arrived yet.
        With the preset "series", a point consists of the two deviations of each feature.
        """
        return self._next_point(self._row_converter().point(x), time)

    @read_locked
    def next_medians(self) -> Array:
        """Return, for each feature, the number that would replace a missing one in the next row.

        Use it only with ``missing="median"`` or ``missing="indicator"``.
        """
        return self._gaps_for(np.full((1, self._layout.n_features), np.nan)).medians.copy()

    def _next_point(self, row: Array, time: Any) -> Array:
        seconds = self._times(None if time is None else [time], 1)
        return self._state.builder.preview(self._filled_next(row), seconds).ravel()

    def _times(self, times: Any, n_rows: int) -> Array | None:
        """Check the times of rows and return them in seconds; return None if this detector does not use times."""
        if self._layout.has_views:
            return as_times(times, n_rows)
        if times is not None:
            raise InvalidInputError(f"Times are used by the preset 'series', but the preset is {self.preset!r}.")
        return None

    @property
    def preset(self) -> StreamPresetName:
        """The preset."""
        preset: StreamPresetName = self._parameters["preset"]
        return preset

    @read_locked
    def point_of_rows(self, rows: Array) -> Array:
        """Return the point of the forest for consecutive rows; gaps are filled as if these rows came next."""
        rows = np.asarray(rows)
        return self._gaps_for(rows).filled(rows, self._last_row(rows)).ravel()

    @read_locked
    def explain_point(self, point: Array) -> Array:
        """Divide the score of a point of the forest (with a shingle, several rows) among its values."""
        if self.forest.n_points == 0:
            return np.full(point.size, UNKNOWN_SCORE / point.size)
        point = point.reshape(1, -1)
        parts = self.forest.explain(point, self.kind)[0]
        return parts * (self.forest.score_next(point, self.kind)[0] / np.abs(parts).sum())

    @reads_iterables_first
    @write_locked
    def forget(self, X: Any) -> Self:
        """Forget rows of the window exactly: the trees are distributed as if they had never held these rows.

        The threshold and the drift monitor still count the scores of the rows. Single rows cannot be forgotten with a
        shingle, because a point consists of several rows, or with the preset "series", because later points depend on
        them.

        If numbers of a row were missing, pass the row with the numbers that replaced them, as `rescore` returns it.
        Numbers that are missing in `X` are replaced as if the row came next. With ``missing="indicator"``, the window
        also stores which numbers were missing, so a row with replaced numbers does not match its point. In that case,
        and with a shingle, forget the point itself:
        ``detector.forest.forget(detector.forest.points()[i : i + 1])``, where i is the position of the point in the
        results of `rescore`.

        Parameters
        ----------
        X : array of shape (n_rows, n_features), data frame (pandas, polars), or iterable of rows or dictionaries

        Returns
        -------
        StreamDetector
            This detector.

        Raises
        ------
        InvalidInputError
            If a row is not in the window, in which case no row is forgotten; or if the detector has a shingle or the
            preset "series".
        """
        if self._layout.has_views:
            raise InvalidInputError("Single rows of a series cannot be forgotten: later points depend on them.")
        size = self._layout.size
        if size > 1:
            raise InvalidInputError(f"Single rows cannot be forgotten: a point consists of {size} rows.")
        self.forest.forget(self._filled_next(self._row_converter().points(X)))
        return self

    @read_locked
    def rescore(self) -> tuple[Array, Array]:
        """Score the points of the window again with the current forest, as the paper does after each update.

        Returns
        -------
        points : array of shape (n_points, n_features)
            Oldest first. Categories are numbers (see `imondrian.base.categories`), and missing numbers are replaced.
            Other methods accept these points as rows; if there are categories, the array is a `CodedRows`. With a
            shingle, or the preset "series" (whose points are deviations), points are wider than rows, and other methods
            do not accept them.
        scores : array of shape (n_points,)
        """
        points, scores = self.forest.rescore(self.kind)
        features = self._layout.features_of_points(points)
        return features.view(CodedRows) if self._layout.categorical else features, scores

    # -- saving and copying -----------------------------------------------------------------------------------------

    @read_locked
    def notes(self) -> dict[str, Any]:
        """Return what a model file stores in addition to the forest, in types that JSON supports."""
        parameters = self.parameters | {"rules": self.rules.as_json_value()}
        return {"parameters": parameters, **self._state.notes()}

    @classmethod
    def from_notes(cls, forest: MondrianForest, notes: dict[str, Any]) -> Self:
        """Restore a detector from its forest and its `notes`; raise ValueError if the notes are invalid."""
        detector = cls.__new__(cls)
        detector._restore(forest, notes)  # noqa: SLF001
        return detector

    def snapshot(self) -> tuple[Snapshot, dict[str, Any]]:
        """Return a copy of the whole state: a snapshot of the forest, and the notes; see `read_state`."""
        return self.read_state(copied)

    @read_locked
    def read_state(self, function: Callable[[Snapshot], Answer]) -> tuple[Answer, dict[str, Any]]:
        """Return the result of `MondrianForest.read_state(function)`, and the notes of the detector.

        Raises
        ------
        InvalidInputError
            If the detector could not be restored from its forest and notes, because the forest was changed directly.
        """
        notes = self.notes()
        try:
            self.from_notes(self.forest, notes)
        except ValueError as error:
            raise InvalidInputError(f"The detector cannot be saved: {error}") from None
        return self.forest.read_state(function), notes

    def __getstate__(self) -> dict[str, Any]:
        forest, notes = self.snapshot()
        return {"forest": forest._asdict(), "notes": notes}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "notes" not in state:
            raise ValueError("This detector was pickled by another version of imondrian; use model files instead.")
        self._restore(MondrianForest.from_state(**state["forest"]), state["notes"])

    @read_locked
    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.from_notes(copy.deepcopy(self.forest, memo), self.notes())

    # -- internal ---------------------------------------------------------------------------------------------------

    def _restore(self, forest: MondrianForest, notes: dict[str, Any]) -> None:
        """Initialize the detector from a forest and notes; raise ValueError if they do not match."""
        parameters = restored_parameters(notes)
        n_features = as_count(parameters["n_features"], "n_features", 1, MAX_POINTS)
        if n_features > (forest.n_features or 0):  # checked first: the next steps allocate memory for each feature
            raise ValueError(f"n_features is {n_features}, but the forest has {forest.n_features} features.")
        self._set_parameters(parameters)
        check_forest(forest, self._parameters)
        self._set_forest(forest)
        self._state.restore(notes, forest.n_shown)

    def _recorded(self, read: Callable[[StreamState], Answer]) -> Answer:
        """Return what `read` returns for the recorded state, while no other thread changes it.

        In a signal handler, the state may lack rows of the call that was interrupted.
        """
        return read(self._state) if is_inside(self) else self._settled(read)

    @read_locked
    def _settled(self, read: Callable[[StreamState], Answer]) -> Answer:
        return read(self._state)

    def _is_settled(self) -> bool:
        forest, sampler = self.forest, self.forest.sampler
        is_same = sampler is self._sampler and _n_shown(forest) == self._state.n_shown
        return is_same and sampler.updates.pending is None

    def _settle(self) -> None:
        """Finish the work of an interrupted call: record the rows that the forest was shown."""
        self.forest._settle()  # noqa: SLF001 (the locks are held)
        n_shown, n_recorded, sampler = _n_shown(self.forest), self._state.n_shown, self.forest.sampler
        if sampler is not self._sampler:
            state = self._state.copy()
            state.gaps, state.counts[N_SHOWN] = state.gaps.restarted(), n_shown
            self._state, self._sampler = state, sampler
        elif n_shown != n_recorded:
            scored = sampler.last_scored
            expected = (self._first_unrecorded, n_shown)
            if scored is not None and (scored.first, scored.end) == expected and scored.first == n_recorded:
                self._record(*scored.read())
            else:
                self._state.counts[N_SHOWN] = n_shown  # the forest was extended directly

    def _row_converter(self) -> RowConverter:
        """Return a new converter. Feature names that it finds are recorded when the first row is processed."""
        n_values = self.forest.n_features
        if n_values != self._n_values:
            raise InvalidInputError(
                f"The forest of this detector was changed directly and has {n_values} features; the rows of the"
                f" detector have {self._layout.n_features}."
            )
        converter = shallow_copy(self._converter)
        converter.names = self._state.names
        return converter

    def _check_rules(self, names: list[Any] | None) -> None:
        """Raise InvalidInputError if a rule is for a feature that the next rows do not have.

        Rules may use names of features before the first row with these names has arrived.
        """
        state = self._state
        if state.names is None and state.incidents.rules.need_reasons:
            check_rules_match(state.incidents.rules, self._layout.n_features, names)
            check_rules_for_numbers(state.incidents.rules, self._parameters, names)

    def _process_usable(self, rows: StreamRows, is_usable: Array) -> BlockResults:
        """Process the usable rows and skip the others."""
        results: list[BlockResults] = []
        for usable, n_rows in rows.usable_runs(is_usable):
            if usable is not None:
                results.append(self._process(usable))
            else:
                results.append(self._state.results_of_skipped(n_rows))
                self._state.skip(n_rows)
        return joined_results(results)

    def _process(self, rows: StreamRows) -> BlockResults:
        """Score, label and learn checked rows, block by block."""
        results: list[BlockResults] = []
        first, n_rows = 0, len(rows.values)
        while first < n_rows:
            is_incomplete = self._state.builder.n_rows_needed > 0
            length = 1 if is_incomplete else self._block_length(n_rows - first)
            block = self._owned(rows.part(first, first + length))
            block = block.part(0, self._state.gaps.n_rows_with_same_medians(block.values, self._state.n_shown))
            process = self._process_incomplete if is_incomplete else self._process_block
            results.append(process(block))
            first += len(block.values)
        return joined_results(results)

    def _owned(self, rows: StreamRows) -> StreamRows:
        """Copy checked rows, so that the caller cannot change them; raise InvalidInputError if the copy is invalid."""
        own = rows.values.copy()
        unchanged(own if self._parameters["missing"] == "raise" else own[~np.isnan(own)])
        return rows._replace(values=own)

    def _block_length(self, n_rows: int) -> int:
        """Return how many of the next n_rows rows can be processed as one block.

        The phase, such as the warm-up, does not change within a block.
        """
        state = self._state
        if state.is_warm and not self._parameters["learn_anomalies"]:
            return 1
        longest = min(n_rows, longest_block(self._parameters["window"]))
        return min(state.n_until_next_phase, self.forest.sampler.scored_block_length(longest, self.kind))

    def _needs_copy_of_state(self, row: Array, names: list[Any] | None) -> bool:
        """Return True if more must be recorded for the row than `StreamState.count_row` records."""
        state = self._state
        is_point = self._n_values == row.size  # without a shingle or indicators
        return not is_point or names is not state.names or self._labels_before_learning(state) or has_gaps(row[0])

    def _filled_next(self, rows: Array) -> Array:
        """Return rows without gaps, each filled as if it came next."""
        return self._gaps_for(rows).filled_separately(rows, self._last_row(rows))

    def _gaps_for(self, rows: Array) -> StreamGaps:
        """Return the `StreamGaps` with the medians that replace missing numbers in these rows if they come next."""
        state = self._state
        return state.gaps.with_medians_for(rows, self.forest.sampler.ring, state.n_shown)  # type: ignore[attr-defined]

    def _last_row(self, rows: Array) -> Array | None:
        """Return the latest row of the stream if gaps in `rows` are filled from it, otherwise None.

        Before the first row, return None, too. Only the numbers of the latest row are needed: its categories may be 0.
        """
        if self._parameters["missing"] != "previous" or not np.isnan(rows).any():
            return None
        builder = self._state.builder
        if isinstance(builder, Shingle) and builder.size > 1:
            last = builder.last
            return last[-1, : self._layout.n_features] if len(last) else None
        point = self.forest.sampler.newest_point()  # type: ignore[attr-defined]  # a detector always has a window
        return None if point is None else self._layout.numbers_of_point(point)

    def _labels_before_learning(self, state: StreamState) -> bool:
        """Return True if the next point must be labelled before it is learned; the first point is always learned."""
        return not self._parameters["learn_anomalies"] and state.is_warm and state.n_scored > 0

    def _process_point(self, point: Array, index: int) -> Result:
        """Like `_process_block` for one point, but usually without a copy of the state, which would be slow.

        A copy would protect the state from interruptions, but `count_row` and `count_alarm` cannot be interrupted.
        """
        state = self._next_state = self._state
        self._first_unrecorded = state.n_shown
        score, steps = _score_and_extend_point(self.forest, point, self.kind)
        threshold, surprise = state.threshold.with_surprise(score)
        is_warm, incidents = state.is_warm, state.incidents
        is_alarm = is_warm and score > threshold
        needs_copy = not incidents.only_continues(index, surprise) if is_alarm else incidents.ends_run_at(index)
        if steps or needs_copy or not (is_warm or state.updates_threshold):
            return _only_result(self._record(np.array([score]), steps), index)
        count = state.count_alarm if is_alarm else state.count_row
        count(score, surprise)
        return Result(score, is_alarm, threshold, index, surprise, _number_or_none(incidents.number_at(index)))

    def _process_block(self, rows: StreamRows) -> BlockResults:
        """Score, label and learn a block of rows, each of which completes a point."""
        state, points, marked = self._state_with(rows)
        self._next_state, self._first_unrecorded = state, state.n_shown
        if not self._labels_before_learning(state):
            state.gaps = marked
            return self._record(*_score_and_extend_block(self.forest, points, self.kind))
        score = self.forest.score_next(points, self.kind)
        if not score[0] > state.threshold.threshold:
            state.gaps = marked
            self.forest.extend_scored(points[0], float(score[0]))
        elif isinstance(state.builder, SeriesViews):
            state.builder = state.builder.without_values(self._state.builder, rows.times)  # type: ignore[arg-type]
        return self._record(score, [], points)

    def _state_with(self, rows: StreamRows) -> tuple[StreamState, Array, StreamGaps]:
        """Return three things: a state with the rows, their points, and the gaps to store if they are learned.

        The counters of the state do not include the rows yet. The points are those that the rows complete.
        """
        state = self._state
        ring: Array = self.forest.sampler.ring  # type: ignore[attr-defined]  # a detector always has a window
        values = rows.values
        gaps = state.gaps.with_medians_for(values, ring, state.n_shown).counted(values)
        filled = gaps.filled(values, self._last_row(values))
        following, points = state.with_rows(rows._replace(values=filled), gaps)
        return following, unchanged(points), gaps.marked(values, state.n_shown)

    def _process_incomplete(self, rows: StreamRows) -> BlockResults:
        """Store rows that do not complete a point yet."""
        state, n_rows = self._state_with(rows)[0].copy(), len(rows.values)
        state.counts[N_SEEN] += n_rows
        self._state = state
        results = state.results_of_skipped(n_rows)
        return results._replace(score=np.full(n_rows, UNKNOWN_SCORE), surprise=np.zeros(n_rows))

    def _record(self, scores: Array, steps: list[Step], points: Array | None = None) -> BlockResults:
        """Label and count the scores of rows that the forest was shown; can be repeated after an interruption.

        `points` are the points of the rows; by default those that the window has learned.
        """
        state, first, builder = self._next_state.copy(), self._next_state.n_shown, self._next_state.builder

        def explain(position: int) -> tuple[AlarmReason, ...]:
            row = builder.viewed.values[position] if isinstance(builder, SeriesViews) else None
            point = None if points is None else points[position]
            return self._explainer.reasons(self.forest, first + position, point, row)

        if self._labels_before_learning(state):
            steps = self._own_step(state)
        results, events = state.observe(scores, steps, explain)
        state.counts[N_SHOWN] = _n_shown(self.forest)
        self._state, self._first_unrecorded, self._events = state, _NO_POINT, (*self._events, *events)
        self._explainer.release(state.n_shown if state.incidents.rules.need_reasons else None)
        return results

    def _own_step(self, state: StreamState) -> list[Step]:
        """Return a step if a further eighth of the window length has been scored; otherwise no step.

        These steps replace those of the window, which does not advance when an anomaly is not learned.
        """
        is_due = (state.n_scored + 1) % max(self._parameters["window"] // 8, 1) == 0
        return [Step(1, *self.forest.insertion_counts)] if is_due else []


def _results(block: BlockResults, index: Array) -> Results:
    return Results(**block._asdict(), index=index)


def _only_result(block: BlockResults, index: int) -> Result:
    """Return the result of the only row of a block."""
    values = {name: column[0].item() for name, column in block._asdict().items()}
    return Result(**values | {"index": index, "incident": _number_or_none(values["incident"])})


def _number_or_none(number: int) -> int | None:
    return None if number == NO_INCIDENT else number
