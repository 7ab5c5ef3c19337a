"""Default settings and presets; every interface reads them from here."""

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from imondrian.base.errors import InvalidInputError

if TYPE_CHECKING:
    from imondrian.base.option_types import Kind, Missing, PresetName, StreamPresetName, Threshold

N_TREES = 100
MAX_SAMPLES = 256
WINDOW = 2048
GAP = 64  # largest distance between consecutive alarms of an incident, in rows
SHINGLE = 1
SEED = 0
LEARN_ANOMALIES = True
N_JOBS = 1
MISSING_VALUES: "Missing" = "median"

# With one detector per key there may be many detectors, so each is smaller than a single one would be: less than
# 128 KiB for one feature.
KEYED_N_TREES = 24
KEYED_MAX_SAMPLES = 64
KEYED_WINDOW = 256


class Preset(NamedTuple):
    """Values of the settings that a preset determines."""

    kind: "Kind"  # which score
    scale: Any  # feature weights
    contamination: "Threshold"  # threshold of estimators; it flags some rows, as scikit-learn's checks require
    table_threshold: "Threshold"  # threshold for tables, on the command line and on Spark
    threshold: "Threshold"  # threshold on streams
    auto: float  # the threshold that "auto" means: a probability, but 0.5 means scores above 0.5 (see `stream_rule`)
    n_trees: int = N_TREES  # this field and those below apply to streams only
    max_samples: int | None = MAX_SAMPLES
    window: int = WINDOW
    warm_up_part: int = 8  # the default warm-up is the window divided by this number


_STREAM_FIELDS = {"n_trees", "max_samples", "window", "warm_up_part"}
PRESET: "PresetName" = "practice"
SERIES: Literal["series"] = "series"  # the preset for time series
AUTO = "auto"  # this threshold means: the field `auto` of the preset
FROM_PRESET = "preset"  # this value of a setting means: use the value of the preset
PRESETS: "dict[PresetName, Preset]" = {  # for tables and streams
    # the best overall in our measurements
    "practice": Preset("size", "std", contamination=0.05, table_threshold=AUTO, threshold=0.001, auto=0.001),
    # as in the paper
    "paper": Preset("depth", None, contamination="kmeans", table_threshold="kmeans", threshold="kmeans", auto=0.5),
}
STREAM_PRESETS: "dict[StreamPresetName, Preset]" = {
    **PRESETS,  # type: ignore[dict-item]  # names of presets are names of stream presets
    # the best overall on labelled time series; see docs/series.md
    SERIES: PRESETS[PRESET]._replace(kind="expected", n_trees=20, max_samples=None, window=8192, warm_up_part=16),
}


def default_warm_up(window: int, preset: Any) -> int:
    """Return the default number of points that a detector learns before it flags anomalies."""
    return window // stream_preset_of(preset).warm_up_part


def preset_of(name: Any) -> Preset:
    """Return the preset with this name; raise InvalidInputError if there is no such preset for tables."""
    return _preset_of(name, PRESETS)


def stream_preset_of(name: Any) -> Preset:
    """Return the preset with this name; raise InvalidInputError if there is no such preset for streams."""
    return _preset_of(name, STREAM_PRESETS)


def _preset_of(name: Any, presets: Any) -> Preset:
    if isinstance(name, str) and name in presets:
        preset: Preset = presets[name]
        return preset
    is_for_streams = isinstance(name, str) and name in STREAM_PRESETS
    remark = f"; {name!r} is for streams only" if is_for_streams else f", but is {name!r}"
    raise InvalidInputError(f"preset must be one of {', '.join(presets)}{remark}.")


def auto_threshold(preset: Any) -> float:
    """Return the threshold that "auto" means with a preset."""
    return stream_preset_of(preset).auto


def resolved(value: Any, setting: str, preset: Any) -> Any:
    """Return the value of a setting; if it is "preset", return the value that the preset has for this setting."""
    return getattr(preset_of(preset), setting) if _is_from_preset(value) else value


def resolved_for_stream(value: Any, setting: str, preset: Any) -> Any:
    """Like `resolved`, with the presets for streams."""
    return getattr(stream_preset_of(preset), setting) if _is_from_preset(value) else value


def with_preset(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings with every value "preset" replaced by the value of the preset `settings["preset"]`.

    Examples
    --------
    >>> with_preset({"preset": "paper", "kind": "preset", "scale": "std", "n_trees": 3})
    {'preset': 'paper', 'kind': 'depth', 'scale': 'std', 'n_trees': 3}
    """
    fields = set(Preset._fields) - _STREAM_FIELDS
    return _filled(settings, preset_of(settings["preset"]), fields)


def with_stream_preset(settings: dict[str, Any]) -> dict[str, Any]:
    """Like `with_preset`, with the presets for streams."""
    return _filled(settings, stream_preset_of(settings["preset"]), set(Preset._fields))


def _filled(settings: dict[str, Any], preset: Preset, fields: set[str]) -> dict[str, Any]:
    return {
        name: getattr(preset, name) if name in fields and _is_from_preset(value) else value
        for name, value in settings.items()
    }


def _is_from_preset(value: Any) -> bool:
    return isinstance(value, str) and value == FROM_PRESET
