"""What goes in and out over HTTP, for the documentation that FastAPI makes of it, with examples."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from imondrian.defaults import LEARN_ANOMALIES, MAX_SAMPLES, N_TREES, PRESET, PRESETS, SEED, SHINGLE, WINDOW
from imondrian.option_types import KindOrPreset, PresetName, ThresholdOrPreset
from imondrian.service.limits import Limits


class Configuration(BaseModel):
    """How a detector is made; only the features must be given."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"features": ["x", "y"], "window": WINDOW, "threshold": PRESETS[PRESET].threshold}]
        },
    )

    features: list[str] = Field(
        min_length=1, max_length=Limits().features, description="Names of the values of a point, in their order."
    )
    window: int = Field(WINDOW, ge=1, description="How many of the latest points are known.")
    max_samples: int | None = Field(
        MAX_SAMPLES, ge=1, description="How many of them a tree holds, about; null for all."
    )
    n_trees: int = Field(N_TREES, ge=1, description="Number of trees.")
    preset: PresetName = Field(PRESET, description="Sets kind, scale and threshold, where they are not given.")
    kind: KindOrPreset = Field("preset", description="Which score.")
    scale: Literal["preset", "std"] | Annotated[list[float], Field(max_length=Limits().features)] | None = "preset"
    threshold: ThresholdOrPreset = Field("preset", description="What is an anomaly; a number is a share.")
    shingle: int = Field(SHINGLE, ge=1, description="How many rows make a point.")
    warm_up: int | None = Field(None, ge=0, description="Points learned before any is called an anomaly.")
    learn_anomalies: bool = LEARN_ANOMALIES
    seed: int = Field(SEED, ge=0, le=2**64 - 1)


class Drift(BaseModel):
    """A report that the stream has moved for good."""

    index: int = Field(description="Row at which it was seen.")
    since: int = Field(description="Row before which all was as usual.")
    what: str
    value: float
    usual: float


class Description(BaseModel):
    """A detector and how it is."""

    name: str
    created: float = Field(description="Seconds since 1970.")
    configuration: Configuration
    n_seen: int = Field(description="Points so far.")
    n_waiting: int = Field(description="Points that wait.")
    n_anomalies: int = Field(description="Of the points learned since the detector was created.")
    threshold: float
    is_warm: bool
    n_bytes: int
    drifts: list[Drift] = Field(description="The last reports that the stream has moved for good.")


class Result(BaseModel):
    """What there is to say of one point."""

    index: int = Field(description="Number of the point in the stream.")
    anomaly_score: float = Field(description="In (0, 1), high is odd.")
    threshold: float
    is_anomaly: bool


class Results(BaseModel):
    """What there is to say of the points, in their order."""

    results: list[Result]


class Scores(BaseModel):
    """The scores of points that are not learned."""

    anomaly_score: list[float]
    threshold: float
    n_seen: int = Field(description="Points that the detector had learned.")


class Reason(BaseModel):
    """The part of a feature in the score of a point."""

    feature: str
    value: float
    usual: tuple[float, float] = Field(description="Between which most points of the window lie (98 of 100).")
    part: float = Field(description="Of the score; positive where the point lies too high, negative too low.")
    share: float = Field(description="Of all parts, from 0 to 1.")
    side: Literal["high", "low"]


class Explanation(BaseModel):
    """The score of a point divided among the features, the greatest part first; the sizes of the parts sum to it."""

    anomaly_score: float
    explanation: list[Reason]


class Explanations(BaseModel):
    """One explanation for each point."""

    explanations: list[Explanation]


class History(BaseModel):
    """The latest rows and what was said of them, by column; the oldest first."""

    index: list[int]
    time: list[float] = Field(description="When each came, in seconds since 1970.")
    values: list[list[float]]
    anomaly_score: list[float]
    threshold: list[float]
    is_anomaly: list[bool]


class ExplainedRow(BaseModel):
    """A row that was learned: what was said of it, and why, with the detector as it is now, but for that row."""

    index: int
    time: float
    anomaly_score: float
    threshold: float
    is_anomaly: bool
    explanation: list[Reason]


class Counted(BaseModel):
    """How many points were forgotten, or how many the detector has seen."""

    n_points: int


class Problem(BaseModel):
    """What was wrong."""

    detail: str


POINTS_BODY = {
    "required": True,
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "required": ["points"],
                "additionalProperties": False,
                "properties": {
                    "points": {
                        "type": "array",
                        "minItems": 1,
                        "items": {
                            "anyOf": [
                                {"type": "array", "items": {"type": "number"}, "minItems": 1},
                                {"type": "object", "additionalProperties": {"type": "number"}, "minProperties": 1},
                            ]
                        },
                    }
                },
            },
            "examples": {
                "rows": {"value": {"points": [[1.0, 2.0], [1.1, 2.1]]}},
                "by name": {"value": {"points": [{"x": 1.0, "y": 2.0}]}},
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
    "description": "An id of the request's own: sent again, it gets the same answer and nothing is done twice.",
    "schema": {"type": "string", "minLength": 1, "maxLength": Limits().request_id_length, "pattern": "^[!-~]+$"},
    "example": "5f2b7c",
}


class Health(BaseModel):
    """Whether all is well."""

    status: Literal["ok", "failing"]
    complaints: list[str]
