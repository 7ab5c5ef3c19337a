"""Type aliases of options, so that type checkers accept only valid values."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy.typing as npt

Kind = Literal["depth", "expected", "size"]
KindOrPreset = Literal["preset", "depth", "expected", "size"]
PresetName = Literal["practice", "paper"]
StreamPresetName = Literal["practice", "paper", "series"]
CountOrPreset = int | Literal["preset"]
Scale = Literal["std"] | Sequence[float] | npt.NDArray[Any] | None
ScaleOrPreset = Literal["preset", "std"] | Sequence[float] | npt.NDArray[Any] | None
Threshold = float | str  # a number, "auto", "kmeans", or a string such as "top 5%" or "surprise 3"
ThresholdOrPreset = Threshold  # also "preset"
MaxSamples = Literal["auto"] | int | float | None
OnError = Literal["raise", "skip"]
ON_ERROR: tuple[OnError, ...] = ("raise", "skip")
Missing = Literal["raise", "median", "indicator"]
MISSING: tuple[Missing, ...] = ("raise", "median", "indicator")
StreamMissing = Literal["raise", "median", "previous", "indicator"]
STREAM_MISSING: tuple[StreamMissing, ...] = ("raise", "median", "previous", "indicator")
View = Literal["hour", "level"]
VIEWS: tuple[View, ...] = ("hour", "level")  # the views of a time series (`series_views.py`)
StreamCategorical = Sequence[str] | Sequence[int] | Sequence[bool] | npt.NDArray[Any]
Categorical = Literal["auto"] | StreamCategorical
