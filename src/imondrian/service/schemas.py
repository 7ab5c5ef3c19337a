"""Schemas of requests and responses, from which FastAPI generates the OpenAPI documentation."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, SkipValidation

from imondrian.defaults import (
    LEARN_ANOMALIES,
    MAX_SAMPLES,
    MISSING_VALUES,
    N_TREES,
    PRESET,
    PRESETS,
    SEED,
    SHINGLE,
    WINDOW,
)
from imondrian.option_types import KindOrPreset, PresetName, StreamMissing, ThresholdOrPreset
from imondrian.service.limits import Limits
from imondrian.service.row_labels import Value


class Configuration(BaseModel):
    """Settings of a detector; only `features` is required."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"features": ["x", "y"], "window": WINDOW, "threshold": PRESETS[PRESET].threshold},
                {"features": ["amount", "country"], "categorical": ["country"]},
            ]
        },
    )

    features: list[str] = Field(
        min_length=1, max_length=Limits().features, description="Names of the features, in the order of the values."
    )
    window: int = Field(WINDOW, ge=1, description="Number of latest points that the detector remembers.")
    max_samples: int | None = Field(
        MAX_SAMPLES, ge=1, description="Approximate number of these points in each tree; null for all."
    )
    n_trees: int = Field(N_TREES, ge=1, description="Number of trees.")
    preset: PresetName = Field(PRESET, description="Sets kind, scale and threshold if they are not given.")
    kind: KindOrPreset = Field("preset", description="Which score to use.")
    scale: Literal["preset", "std"] | Annotated[list[float], Field(max_length=Limits().features)] | None = "preset"
    threshold: ThresholdOrPreset = Field(
        "preset", description="How the threshold is chosen; a number is the share of points that are anomalies."
    )
    shingle: int = Field(SHINGLE, ge=1, description="Number of consecutive rows that form a point.")
    warm_up: int | None = Field(None, ge=0, description="Points learned before any is reported as an anomaly.")
    learn_anomalies: bool = LEARN_ANOMALIES
    seed: int = Field(SEED, ge=0, le=2**64 - 1)
    categorical: Annotated[list[str], Field(max_length=Limits().features)] = Field(
        [], description="The features that are categories (text, booleans, codes); all others are numbers."
    )
    missing: StreamMissing = Field(
        MISSING_VALUES,
        description='What replaces missing numbers: the "median" of the window or the "previous" value; "indicator" is'
        ' like "median", and also scores that they are missing; "raise" refuses them.',
    )


class Drift(BaseModel):
    """A lasting change of the stream."""

    index: int = Field(description="Row at which the drift was detected.")
    since: int = Field(description="First row of the first unusual block; before it, the stream was as usual.")
    what: str
    value: float
    usual: float


class Description(BaseModel):
    """A detector, its configuration and its current figures."""

    name: str
    created: float = Field(description="Seconds since 1970.")
    configuration: Configuration
    n_seen: int = Field(description="Points seen so far.")
    n_waiting: int = Field(description="Points in the queue.")
    n_anomalies: int = Field(description="Anomalies among the points learned since the detector was created.")
    threshold: float
    is_warm: bool
    n_bytes: int
    n_missing: int = Field(description="Missing numbers that were replaced.")
    drifts: list[Drift] = Field(description="The latest drifts.")


class Result(BaseModel):
    """The score of one point."""

    index: int = Field(description="Number of the point in the stream, from 0.")
    anomaly_score: float = Field(description="In (0, 1); higher is more anomalous.")
    threshold: float
    is_anomaly: bool


class Results(BaseModel):
    """The scores of the points, in their order."""

    results: list[Result]


class Scores(BaseModel):
    """The scores of points that are not learned."""

    anomaly_score: list[float]
    threshold: float
    n_seen: int = Field(description="Points that the detector had seen.")


class Frequency(BaseModel):
    """How common a category is in the window."""

    count: int = Field(description="Points with the category.")
    n_points: int = Field(description="All points.")


class Reason(BaseModel):
    """The part of a feature in the score of a point; with a shingle, in one row or a few neighbouring rows of it."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "feature": "country",
                    "rows_ago": [0, 0],
                    "value": "KP",
                    "expected": None,
                    "frequency": {"count": 0, "n_points": 2048},
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
        description="The latest and the earliest row, counted back from the last row of a shingle; [0, 0] without one."
    )
    value: SkipValidation[Value] = Field(
        description="As posted; null if it is missing or not known. Of several rows, the one with the largest part."
    )
    expected: tuple[float, float] | None = Field(
        description="What would be ordinary, given the rest of the point: the 5 % and 95 % quantiles. Null for a"
        " category, and after the third reason for a share below 0.05."
    )
    frequency: Frequency | None = Field(description="Of the category; null for a number.")
    part: float = Field(
        description="Part of the score; of a number, positive if it is high, negative if low; of a category, positive."
    )
    share: float = Field(description="This part as a share of the total, from 0 to 1.")
    side: Literal["high", "low"] | None = Field(description="Null for a category or a missing number.")
    text: str = Field(description="All of this in words.")


class Explanation(BaseModel):
    """The score of a point divided among the features, and with a shingle among its rows, largest first.

    The absolute parts sum to the score. While a shingle has too few rows, there are no parts.
    """

    anomaly_score: float
    explanation: list[Reason]


class Explanations(BaseModel):
    """One explanation for each point."""

    explanations: list[Explanation]


class History(BaseModel):
    """The latest rows and their scores, by column, oldest first."""

    index: list[int]
    time: list[float] = Field(description="Times of arrival, in seconds since 1970.")
    own_time: list[str | None] = Field(description="The times that the points carried, as posted.")
    values: SkipValidation[list[list[Value]]] = Field(description="As they were posted; null if they were missing.")
    anomaly_score: list[float]
    threshold: list[float]
    is_anomaly: list[bool]


class ExplainedRow(BaseModel):
    """A learned row, with an explanation by the current detector without that row, if the window still holds it.

    The score is the one at arrival; the absolute parts sum to it.
    """

    index: int
    time: float = Field(description="Time of arrival, in seconds since 1970.")
    own_time: str | None = Field(description="The time that the point carried, as posted.")
    values: SkipValidation[list[Value]] = Field(description="As they were posted; null if they were missing.")
    anomaly_score: float
    threshold: float
    is_anomaly: bool
    explanation: list[Reason]


class Counted(BaseModel):
    """Number of points forgotten, or seen by the restored detector."""

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
    " its own. The key `time` of an object is the time of the point, in ISO 8601; it is shown, and not a feature.",
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
    "description": "A unique id: a request repeated with it gets the same response and is not processed again,"
    " while its reply is among the last 10,000 (64 MB) of the detector.",
    "schema": {"type": "string", "minLength": 1, "maxLength": Limits().request_id_length, "pattern": "^[!-~]+$"},
    "example": "5f2b7c",
}


class Health(BaseModel):
    """The health of the service."""

    status: Literal["ok", "failing"]
    complaints: list[str]
