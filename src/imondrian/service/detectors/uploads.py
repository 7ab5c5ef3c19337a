"""Checks of uploaded model files: the memory needed is computed from the header, before the rest is read."""

import io
import json
from typing import Any

from imondrian.base.errors import InvalidInputError
from imondrian.engine.nodes import MAX_POINTS
from imondrian.forest.inputs import as_count
from imondrian.model_files import EXTRA
from imondrian.models.storage import damaged_file_errors, read_header
from imondrian.service.capacity import RequestMemory
from imondrian.service.changes.configuration import (
    DEFAULTS,
    MemorySettings,
    checked_configuration,
    checked_size,
    parameters_of,
    size_of,
)
from imondrian.service.changes.journal import detector_from
from imondrian.service.changes.settings import rules_by_name
from imondrian.service.errors import CapacityError
from imondrian.service.limits import PER_BYTE_OF_MODELS, Limits
from imondrian.service.storage.incident_log import IncidentLog, ShownIncidents
from imondrian.stream.detector import StreamDetector
from imondrian.stream.row_layout import RowLayout
from imondrian.stream.stream_parameters import restored_parameters

_MODEL_TYPE = "StreamDetector"
_SERVICE, _SERVICE_SETTINGS = "service", ("time", "silence")  # in the extra values of a model file
# largest number of rows seen by a detector, or of points shown to its forest: no counter overflows later
_MAX_COUNT = 2**52


def check_model(
    content: bytes, configuration: dict[str, Any], limits: Limits, memory: RequestMemory | None = None
) -> None:
    """Raise if a model file is damaged, needs too much memory, or does not match the configuration.

    Its threshold and its rules for incidents may differ: they are replaced by those of the former detector.

    Parameters
    ----------
    content : bytes
        The model file.
    configuration : dict
        The configuration of the detector that the model would replace.
    limits : Limits
        The limits of detectors.
    memory : RequestMemory, optional
        Where the memory for the new detector is reserved. It stays reserved until the request ends, because the worker
        reads the file again.
    """
    size = size_in_model(content)
    n_bytes = checked_size(size, limits)
    _check_equal(size._asdict(), size_of(configuration)._asdict())
    _reserve(memory, n_bytes, len(content), limits)
    _check_matches(_read(content), configuration)


def service_extra(configuration: dict[str, Any]) -> dict[str, Any]:
    """Return what a model file stores beside the detector: the settings of the service, which the detector lacks."""
    return {_SERVICE: {name: configuration[name] for name in _SERVICE_SETTINGS}}


def _service_settings_in(content: bytes) -> dict[str, Any]:
    """Return the settings of the service in a model file; {} if it was saved without them."""
    extra = read_header(io.BytesIO(content), "The model")["notes"].get(EXTRA)
    settings = extra.get(_SERVICE) if isinstance(extra, dict) else None
    return (
        {name: settings[name] for name in _SERVICE_SETTINGS if name in settings} if isinstance(settings, dict) else {}
    )


def configuration_in(content: bytes, limits: Limits, memory: RequestMemory | None = None) -> dict[str, Any]:
    """Return the checked configuration of the detector in a model file; unnamed features are called x0, x1, ..."""
    _reserve(memory, checked_size(size_in_model(content), limits), len(content), limits)
    return _configuration_of(_read(content), _service_settings_in(content), limits)


def _reserve(memory: RequestMemory | None, n_bytes: int, n_file_bytes: int, limits: Limits) -> None:
    """Reserve memory for the detector in a file, in addition to what is reserved for the file itself.

    At most the whole budget is reserved, so that the largest model can be read if no other request uses memory.
    """
    n_more = min(
        n_bytes - (PER_BYTE_OF_MODELS - 1) * n_file_bytes, limits.memory_bytes - PER_BYTE_OF_MODELS * n_file_bytes
    )
    if memory is not None and n_more > 0:
        memory.reserve(n_more)


def _configuration_of(detector: StreamDetector, settings: dict[str, Any], limits: Limits) -> dict[str, Any]:
    parameters = detector.parameters
    features = _feature_names(detector) or [f"x{i}" for i in range(parameters["n_features"])]
    given = {"features": features} | {name: parameters[name] for name in DEFAULTS if name in parameters}
    given |= rules_by_name(detector.rules, features) | settings
    given["categorical"] = _categorical_names(detector, features)
    configuration, _ = checked_configuration(given, limits)
    _check_matches(detector, configuration)
    return configuration


def size_in_model(content: bytes) -> MemorySettings:
    """Return the size of the detector in a model file, from its header; raise if its forest does not match."""
    header = read_header(io.BytesIO(content), "The model")
    with damaged_file_errors("The model"):
        if _MODEL_TYPE not in header["notes"]:
            raise ValueError("it does not contain a StreamDetector.")
        parameters = restored_parameters(header["notes"][_MODEL_TYPE])
        n_features = as_count(parameters["n_features"], "n_features", 1, MAX_POINTS)
        for name in ("preset", "missing"):
            if not isinstance(parameters[name], str):
                raise TypeError(f"{name} must be text, but is {parameters[name]!r:.100}.")
        as_count(parameters["shingle"], "shingle", 1, MAX_POINTS)
        as_count(len(parameters["categorical"]), "the number of categorical features", 0, n_features)
        size = MemorySettings.of(n_features, parameters)
        of_forest = {**header["parameters"], "n_features": header["n_features"]}
        of_detector = {
            "n_trees": size.n_trees,
            "window": size.window,
            "max_samples": size.max_samples,
            "n_jobs": parameters["n_jobs"],
            "n_features": size.n_values,
        }
        for name, value in of_detector.items():
            if of_forest[name] != value:
                raise ValueError(f"{name} of the forest must be {value!r:.100}, but is {of_forest[name]!r:.100}.")
    return size


def _read(content: bytes) -> StreamDetector:
    try:
        return detector_from(content)
    except MemoryError as error:  # the file may be valid: the client can try again
        raise CapacityError(str(error)) from None


def _check_matches(detector: StreamDetector, configuration: dict[str, Any]) -> None:
    """Raise InvalidInputError if a detector does not match a configuration."""
    features = configuration["features"]
    n_rows = max(detector.n_seen, detector.forest.n_shown)  # its forest may have been shown points directly
    if n_rows > _MAX_COUNT:
        raise InvalidInputError(
            f"The detector in the model file must have seen at most {_MAX_COUNT} rows, but has seen {n_rows}."
        )
    names = _feature_names(detector) or features
    settings = {**detector.parameters, "features": names, "categorical": _categorical_names(detector, names)}
    expected = {**parameters_of(configuration), "features": features, "categorical": configuration["categorical"]}
    _check_equal(settings, {name: value for name, value in expected.items() if name not in ("threshold", "rules")})
    _check_incidents(detector, features)


def _check_incidents(detector: StreamDetector, features: list[str]) -> None:
    """Raise InvalidInputError if an incident cannot be described: the detector could not announce or show it."""
    log, shown = IncidentLog(0, "", features), ShownIncidents(detector.incidents)
    for incident in detector.incidents:
        try:
            json.dumps(log.described(incident, shown), allow_nan=False)
        except Exception as error:  # whatever the file contains, the detector must not fail later
            raise InvalidInputError(
                f"Incident {incident.number} in the model file cannot be described: {error}"
            ) from error


def _check_equal(settings: dict[str, Any], expected: dict[str, Any]) -> None:
    for name, value in expected.items():
        if settings.get(name) != value:
            raise InvalidInputError(
                "The model file contains a different detector:"
                f" {name} is {settings.get(name)!r:.100}, not {value!r:.100}."
            )


def _feature_names(detector: StreamDetector) -> list[str]:
    """Return the names of the features; an empty list if the detector has none."""
    return [str(name) for name in detector.feature_names or []]


def _categorical_names(detector: StreamDetector, features: list[str]) -> list[str]:
    """Return the names of the categorical features; `features` are the names of all."""
    categorical = detector.parameters["categorical"]
    if any(isinstance(item, str) for item in categorical) and detector.feature_names is None:
        raise InvalidInputError(
            "The detector in the model file names its categorical features, but has not seen a row with names."
        )
    indices = set(RowLayout.of(detector.parameters).categorical)
    return [name for j, name in enumerate(features) if j in indices]
