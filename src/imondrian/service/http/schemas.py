"""Schemas of requests and responses, from which FastAPI generates the OpenAPI documentation."""

import math
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, SkipValidation

from imondrian.alarms.incidents import NO_INCIDENT
from imondrian.base.defaults import (
    GAP,
    KEYED_MAX_SAMPLES,
    KEYED_N_TREES,
    KEYED_WINDOW,
    LEARN_ANOMALIES,
    MISSING_VALUES,
    PRESET,
    PRESETS,
    SEED,
    SERIES,
    SHINGLE,
    STREAM_PRESETS,
    WINDOW,
)
from imondrian.base.option_types import KindOrPreset, StreamMissing, StreamPresetName, ThresholdOrPreset
from imondrian.service.changes.configuration import MAX_TEXT_LENGTH
from imondrian.service.changes.keyed_configuration import DEFAULT_MAX_BYTES
from imondrian.service.changes.row_labels import TIME, Value
from imondrian.service.limits import MIB, Limits

_Side = Literal["high", "low", "both"]
_Integer = Annotated[int, Field(strict=True)]  # not a boolean
_Number = Annotated[float, Field(strict=True)]
_THRESHOLD = (
    "Which points are anomalies. A number p below 0.5: those whose surprise is above -log10(p), so about one in"
    ' 1/p ordinary points is an anomaly. "top 5%": that share of the latest points. "kmeans": scores above the midpoint'
    ' of two clusters. 0.5: scores above 0.5. "auto": 0.001, or 0.5 with the preset "paper". "surprise 3", "score 0.6":'
    " a surprise or a score above this number."
)
_GAP = (
    "An incident goes on while its alarms (points that are anomalies) are at most this many rows apart, and closes"
    " after this many rows without an alarm."
)
_MIN_POINTS = (
    "Smallest number of alarms with which an incident opens. With 1, a single alarm opens an incident only if it is ten"
    " times rarer than the threshold."
)
_COOLDOWN = "For this many rows after an incident has closed, no other opens."
_SIDE = (
    'For some features: which unusual values count, "high", "low" or "both". An alarm does not count if the value of'
    " the feature with the largest part in its score is unusual on the other side."
)
_IGNORE_WITHIN = (
    "For some features: a distance from the expected value, as a number, or as a share of the expected value such as"
    ' "10%". An alarm does not count if the value of the feature with the largest part in its score is at most this far'
    " from the expected value."
)
_SILENCE = (
    "An incident opens if no points arrive for this long: a number of seconds, or text such as"
    ' "30s", "10m", "2h" or "1d". Null means never.'
)
_CountOrPreset = Annotated[int, Field(ge=1, strict=True)] | Literal["preset"]
_SideOf = Annotated[dict[str, _Side], Field(max_length=Limits().features)]
_DistanceOf = Annotated[dict[str, _Number | str], Field(max_length=Limits().features)]


def _defaults_of(setting: str) -> str:
    """Return the values of a setting in the presets, as text."""
    values = {name: getattr(preset, setting) for name, preset in STREAM_PRESETS.items()}
    others = {value for name, value in values.items() if name != SERIES}
    shown = {value: "all" if value is None else value for value in values.values()}
    usual = " or ".join(str(shown[value]) for value in others)
    return f' "preset" means {usual}; with the preset "series", {shown[values[SERIES]]}.'


class Configuration(BaseModel):
    """Settings of a detector; only `features` is required."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"features": ["x", "y"], "window": WINDOW, "threshold": PRESETS[PRESET].threshold},
                {"features": ["amount", "country"], "categorical": ["country"]},
                {"features": ["load"], "preset": SERIES, "time": "timestamp"},
                {"features": ["load"], "key": "host", "max_bytes": 64 * MIB},
            ]
        },
    )

    features: list[str] = Field(
        min_length=1, max_length=Limits().features, description="Names of the features, in the order of the values."
    )
    window: _CountOrPreset = Field(
        "preset", description=f"Number of latest points that the detector remembers.{_defaults_of('window')}"
    )
    max_samples: _CountOrPreset | None = Field(
        "preset",
        description="Approximate number of points of the window in each tree; null for all."
        f"{_defaults_of('max_samples')}",
    )
    n_trees: _CountOrPreset = Field("preset", description=f"Number of trees.{_defaults_of('n_trees')}")
    preset: StreamPresetName = Field(
        PRESET,
        description='Sets kind, scale, threshold, window, max_samples and n_trees if they are not given. "series" is'
        " for time series: values are compared with what is usual at this hour of the day and with the recent level.",
    )
    kind: KindOrPreset = Field("preset", description="Which score to use.")
    scale: Literal["preset", "std"] | Annotated[list[_Number], Field(max_length=Limits().features)] | None = "preset"
    threshold: ThresholdOrPreset = Field("preset", description=_THRESHOLD)
    shingle: _Integer = Field(SHINGLE, ge=1, description="Number of consecutive rows that form a point.")
    warm_up: _Integer | None = Field(None, ge=0, description="Points learned before any is reported as an anomaly.")
    learn_anomalies: Annotated[bool, Field(strict=True)] = LEARN_ANOMALIES
    seed: _Integer = Field(SEED, ge=0, le=2**64 - 1)
    categorical: Annotated[list[str], Field(max_length=Limits().features)] = Field(
        [], description="The features that are categories (text, booleans, codes); all others are numbers."
    )
    missing: StreamMissing = Field(
        MISSING_VALUES,
        description='What replaces missing numbers: the "median" of the window or the "previous" value; "indicator" is'
        ' like "median", and also adds a feature that says whether a number is missing; "raise" refuses them.',
    )
    gap: _Integer = Field(GAP, ge=1, description=_GAP)
    min_points: _Integer = Field(1, ge=1, description=_MIN_POINTS)
    cooldown: _Integer = Field(0, ge=0, description=_COOLDOWN)
    side: _SideOf = Field({}, description=_SIDE)
    ignore_within: _DistanceOf = Field({}, description=_IGNORE_WITHIN)
    silence: _Number | str | None = Field(None, description=_SILENCE)
    time: str = Field(
        TIME,
        min_length=1,
        max_length=MAX_TEXT_LENGTH,
        description="Key of the time in points that are objects. The time is shown with the point; with the preset"
        ' "series" it also decides which values are usual.',
    )
    key: str | None = Field(
        None,
        max_length=MAX_TEXT_LENGTH,
        description="Name of the key of a point, such as the host that it comes from. Every value of the key has its"
        " own detector, to which the other settings apply; window, max_samples and n_trees are"
        f" {KEYED_WINDOW}, {KEYED_MAX_SAMPLES} and {KEYED_N_TREES} by default. With a key, there are no categories and"
        ' no shingles, numbers must not be missing (`missing` is "raise"), anomalies are learned, and the preset must'
        ' not be "series".',
    )
    max_bytes: Annotated[int, Field(strict=True, ge=1)] | None = Field(
        None,
        description="With a key: bytes of memory for the detectors of all keys. When full, the least recently used keys"
        f" move to disk, and come back unchanged. Null means {DEFAULT_MAX_BYTES // MIB} MiB.",
    )


class Changes(BaseModel):
    """New values for settings of a running detector; the others stay as they are."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "minProperties": 1,
            "examples": [{"threshold": 0.0001}, {"gap": 100, "side": {"x": "high"}, "silence": "10m"}],
        },
    )

    threshold: ThresholdOrPreset = Field("preset", description=_THRESHOLD)
    gap: _Integer = Field(GAP, ge=1, description=_GAP)
    min_points: _Integer = Field(1, ge=1, description=_MIN_POINTS)
    cooldown: _Integer = Field(0, ge=0, description=_COOLDOWN)
    side: _SideOf = Field({}, description=_SIDE)
    ignore_within: _DistanceOf = Field({}, description=_IGNORE_WITHIN)
    silence: _Number | str | None = Field(None, description=_SILENCE)


class Settings(BaseModel):
    """All settings of a detector that can be changed, after a change."""

    threshold: float | str
    gap: int
    min_points: int
    cooldown: int
    side: dict[str, _Side]
    ignore_within: dict[str, float | str]
    silence: float | None = Field(description="Seconds.")


class Drift(BaseModel):
    """A lasting change of the stream."""

    index: int = Field(description="Row at which the drift was detected.")
    since: int = Field(description="First row of the first unusual block; before it, the stream was as usual.")
    what: str
    value: float
    usual: float


class Times(BaseModel):
    """What was noticed about the times of a series."""

    n_late: int = Field(description="Points whose time is before the latest time so far.")
    n_repeated: int = Field(description="Points whose time equals the latest time so far.")
    n_holes: int = Field(description="Steps that are more than 100 times as long as usual.")
    step: float | None = Field(description="The usual time between two points, in seconds; null if it is not known.")


class Description(BaseModel):
    """A detector, its configuration and its current figures."""

    name: str
    created: float = Field(description="Seconds since 1970.")
    configuration: Configuration
    n_seen: int = Field(description="Points seen so far.")
    n_waiting: int = Field(description="Points in the queue.")
    n_anomalies: int = Field(description="Anomalies among the points learned since the detector was created.")
    n_incidents: int = Field(description="Incidents that have opened since the detector was created.")
    n_open_incidents: int = Field(description="Incidents that are open.")
    surprise: float | None = Field(description="Surprise of the latest point; null if it is not known.")
    threshold: float | None = Field(
        description="The score above which a point is an anomaly; null with a key: each key has its own."
    )
    is_warm: bool | None = Field(description="Whether the warm-up is over; null with a key.")
    n_bytes: int
    n_missing: int = Field(description="Missing numbers so far.")
    drifts: list[Drift] = Field(description="The latest drifts.")
    times: Times | None = Field(description='With the preset "series": what was noticed about the times; else null.')
    n_keys: int | None = Field(description="Number of keys; null without a key.")


class Result(BaseModel):
    """The score of one point."""

    index: int = Field(description="Number of the point in the stream, from 0.")
    anomaly_score: float = Field(description="In (0, 1); higher is more anomalous.")
    surprise: float = Field(description="-log10 of the probability that an ordinary recent point scores as high.")
    threshold: float = Field(description="The score above which a point is an anomaly.")
    is_anomaly: bool
    incident: int | None = Field(description="Number of the incident that is open after the point.")


class KeyedResult(Result):
    """The score of one point of a detector with a key; `index` and `incident` count within the key."""

    key: str
    is_borrowed: bool = Field(
        description="Whether the forest common to all keys scored the point, since its key has not warmed up."
    )


class Results(BaseModel):
    """The scores of the points, in their order."""

    results: list[Result] | list[KeyedResult]


class Scores(BaseModel):
    """The scores of points that are not learned."""

    anomaly_score: list[float]
    surprise: list[float]
    threshold: float
    n_seen: int = Field(description="Points that the detector had seen.")


class KeyedScores(BaseModel):
    """The scores of points by the detectors of their keys; the points are not learned."""

    key: list[str]
    anomaly_score: list[float]
    surprise: list[float]
    threshold: list[float]
    n_seen: list[int] = Field(description="Points that the detectors of the keys had seen.")


class Frequency(BaseModel):
    """How common a category is in the window."""

    count: int = Field(description="Points with the category.")
    n_points: int = Field(description="All points.")


class Reason(BaseModel):
    """The part of a feature in the score of a point; with a shingle, its part in one row or a few neighbouring rows."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "feature": "country",
                    "rows_ago": [0, 0],
                    "value": "KP",
                    "expected": None,
                    "frequency": {"count": 0, "n_points": 2048},
                    "view": None,
                    "part": 0.31,
                    "share": 0.41,
                    "side": None,
                    "text": "country = KP (never seen), 41%",
                }
            ]
        }
    )

    feature: str
    rows_ago: tuple[int, int] = Field(
        description="The rows to which the part belongs: the latest and the earliest of them, counted back from the"
        " last row of the point; [0, 0] without a shingle."
    )
    value: SkipValidation[Value] = Field(
        description="The value as posted, in the row with the largest part; null if it is missing or not known."
    )
    expected: tuple[float, float] | None = Field(
        description="What would be ordinary, given the rest of the point: the 5 % and 95 % quantiles. Null for a"
        " category, and for a share below 0.05 unless the reason is among the first three."
    )
    frequency: Frequency | None = Field(description="How common the category is; null for a number.")
    view: Literal["hour", "level"] | None = Field(
        description='With the preset "series": whether the value is unusual for this hour of the day or given its'
        " recent level."
    )
    part: float = Field(
        description="Part of the score: positive if a number is high, negative if it is low, positive for a category."
    )
    share: float = Field(description="The absolute value of the part as a share of the score, from 0 to 1.")
    side: Literal["high", "low"] | None = Field(description="Null for a category or a missing number.")
    text: str = Field(description="All of this in words.")


class Explanation(BaseModel):
    """The score of a point divided among the features, and with a shingle among its rows; the largest part is first.

    The absolute values of the parts sum to the score; with the preset "series", to less if numbers are missing, since
    missing numbers have no part. While a shingle has too few rows, there are no parts.
    """

    anomaly_score: float
    surprise: float
    explanation: list[Reason]


class KeyedExplanation(Explanation):
    """The score of a point of a detector with a key, divided among the features."""

    key: str


class Explanations(BaseModel):
    """One explanation for each point."""

    explanations: list[Explanation] | list[KeyedExplanation]


class History(BaseModel):
    """The latest rows and their scores, by column, oldest first."""

    index: list[int]
    time: list[float] = Field(description="Times of arrival, in seconds since 1970.")
    own_time: list[str | None] = Field(
        description="The times that the points carried: text as posted, seconds as ISO 8601."
    )
    values: SkipValidation[list[list[Value]]] = Field(description="As they were posted; null if they were missing.")
    anomaly_score: list[float]
    surprise: list[float | None] = Field(description="Null for points learned by an earlier version.")
    threshold: list[float]
    is_anomaly: list[bool]
    incident: list[int | None] = Field(description="Numbers of the incidents that were open after the points.")
    expected_low: list[list[float | None]] | None = Field(
        description='With the preset "series": for each value, the lower end of the range in which 90 % of ordinary'
        " values lay at that time; null if it was not known. Null with other presets."
    )
    expected_high: list[list[float | None]] | None = Field(description="The upper ends of these ranges.")
    key: str | None = Field(None, description="The key of the rows; null without a key.")
    is_borrowed: list[bool] | None = Field(
        None, description="With a key: whether the forest common to all keys scored the rows. Null without a key."
    )


class ExplainedRow(BaseModel):
    """A learned row, explained by the current detector as if the window did not hold the row.

    The score is the one at arrival; the absolute values of the parts sum to it (with the preset "series", to less if
    numbers are missing).
    """

    index: int
    time: float = Field(description="Time of arrival, in seconds since 1970.")
    own_time: str | None = Field(description="The time that the point carried: text as posted, seconds as ISO 8601.")
    values: SkipValidation[list[Value]] = Field(description="As they were posted; null if they were missing.")
    anomaly_score: float
    surprise: float | None = Field(description="Null for a point learned by an earlier version.")
    threshold: float
    is_anomaly: bool
    incident: int | None = Field(description="Number of the incident that was open after the point.")
    explanation: list[Reason]
    key: str | None = Field(None, description="The key of the row; null without a key.")
    is_borrowed: bool | None = Field(
        None, description="With a key: whether the forest common to all keys scored the row. Null without a key."
    )


class Key(BaseModel):
    """A key of a detector, with the figures of its latest row."""

    key: str
    n_rows: int = Field(description="Rows of the key so far.")
    time: float = Field(description="When the latest row arrived, in seconds since 1970.")
    surprise: float
    anomaly_score: float
    is_anomaly: bool
    has_open_incident: bool


class Keys(BaseModel):
    """Some keys of a detector."""

    keys: list[Key]
    n_keys: int = Field(description="Number of keys of the detector.")
    n_found: int = Field(description="Number of keys that contain the text of the search.")
    next: int | None = Field(description="The value of `after` for the next page; null if this is the last one.")


class IncidentRow(BaseModel):
    """A row of an incident."""

    index: int | None = Field(description="Number of the row in the stream, from 0; null for a time without a row.")
    time: float | None = Field(description="Time of arrival, in seconds since 1970; null if it is not known.")
    own_time: str | None = Field(description="The time that the point carried: text as posted, seconds as ISO 8601.")


class IncidentPeak(IncidentRow):
    """The alarm of an incident with the highest surprise."""

    anomaly_score: float
    surprise: float


class IncidentReason(BaseModel):
    """A feature that made an alarm of an incident anomalous."""

    feature: str
    rows_ago: int = Field(
        description="How many rows before the last row of the point the value lies; 0 without a shingle."
    )
    value: float | str | None = Field(description="Null if a category is not known.")
    view: Literal["hour", "level"] | None = Field(
        description='With the preset "series": whether the value is unusual for this hour of the day or given its'
        " recent level."
    )
    expected: tuple[float, float] | None = Field(description="5 % and 95 % quantiles; null for a category.")
    share: float = Field(description="Share of the score, from 0 to 1.")
    side: Literal["high", "low"] | None
    text: str = Field(description="All of this in words.")


class Incident(BaseModel):
    """Anomalies that belong together, or a time without data."""

    id: str = Field(description="Unique among all detectors; the same after a restart.")
    detector: str = Field(description="The name of the detector.")
    kind: Literal["anomalies", "silence"]
    incident: int = Field(description="Number of the incident of this kind, from 0.")
    is_open: bool
    first: IncidentRow = Field(description="The first alarm; of a silence, when the last data arrived.")
    last: IncidentRow = Field(description="The last alarm so far; of a silence, when it closed or, if open, opened.")
    opened: IncidentRow
    closed: IncidentRow | None
    n_alarms: int
    peak: IncidentPeak | None = Field(description="Null for a silence.")
    explanation: list[IncidentReason] = Field(description="Largest share first.")
    text: str = Field(description="The incident in words.")
    key: str | None = Field(None, description="The key to which the incident belongs; null without a key.")


class Incidents(BaseModel):
    """Incidents, open ones first, then by time, latest first."""

    incidents: list[Incident]


class Counted(BaseModel):
    """A number of points: those forgotten, those that a restored detector has seen, or those of a forgotten key."""

    n_points: int


class Problem(BaseModel):
    """An error, in one line."""

    detail: str


_VALUE = {"anyOf": [{"type": kind} for kind in ("number", "string", "boolean", "null")]}
_POINT = {
    "anyOf": [
        {"type": "array", "items": _VALUE, "minItems": 1},
        {"type": "object", "additionalProperties": _VALUE, "minProperties": 1},
    ],
    "description": "The values of the features, as a list or by name. A number may be null if `missing` is not `raise`;"
    " then features may also be absent from an object. A category is text, a number or a boolean; null is a category of"
    " its own. The key `time` of an object (or the name in the setting `time`) is its time, in ISO 8601; it is"
    ' not a feature. With the preset "series" it may also be a number of seconds since 1970; a point without a time'
    " counts as one usual step after the latest time so far. With the setting `key`, a list has the key first, and an"
    " object has it under that name: text of at most 256 characters, or an integer.",
}
POINTS_BODY = {
    "required": True,
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "required": ["points"],
                "additionalProperties": False,
                "properties": {"points": {"type": "array", "minItems": 1, "items": _POINT}},
            },
            "examples": {
                "rows": {"value": {"points": [[1.0, 2.0], [1.1, 2.1]]}},
                "by name": {"value": {"points": [{"x": 1.0, "y": 2.0}]}},
                "with a time and a gap": {"value": {"points": [{"time": "2026-01-31T12:30:00Z", "x": 1.0, "y": None}]}},
            },
        },
        "application/x-ndjson": {
            "schema": {"type": "string"},
            "examples": {"lines": {"value": "[1.0, 2.0]\n[1.1, 2.1]\n"}},
        },
    },
}

REQUEST_ID = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "A unique id: a request that is repeated with the same id gets the same response and is not"
    " processed again, as long as the detector stores the reply. It stores its last 10,000 replies, or fewer if they"
    " exceed 64 MiB, or if the replies of all detectors exceed an eighth of `--max-memory` (and 64 MiB).",
    "schema": {"type": "string", "minLength": 1, "maxLength": Limits().request_id_length, "pattern": "^[!-~]+$"},
    "example": "5f2b7c",
}


class Health(BaseModel):
    """The health of the service."""

    status: Literal["starting", "ok", "failing"]
    problems: list[str]


def known_number(value: float) -> float | None:
    """Return a number, or None for NaN, which stands for an unknown number, as in rows of earlier versions."""
    return None if math.isnan(value) else value


def known_incident(number: int) -> int | None:
    """Return the number of an incident, or None for NO_INCIDENT."""
    return None if number == NO_INCIDENT else number
