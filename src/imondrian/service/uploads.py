"""Model files that clients send: sizes are checked by the header alone, before the file is read and compared."""

import io
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from imondrian.engine.nodes import MAX_POINTS
from imondrian.errors import InvalidInputError
from imondrian.inputs import as_count
from imondrian.service.capacity import MemoryBudget
from imondrian.service.configuration import (
    DEFAULTS,
    DetectorSize,
    checked_configuration,
    checked_size,
    parameters_of,
    size_of,
)
from imondrian.service.errors import CapacityError
from imondrian.service.journal import detector_from
from imondrian.service.limits import PER_BYTE_OF_MODELS, Limits
from imondrian.storage import complaints_about, read_header
from imondrian.stream import StreamDetector, renamed_parameters

_KIND = "StreamDetector"
_MAX_HEADER_BYTES = 2**22  # the longest names of as many features as may be take 3 MB
_MAX_SEEN = 2**52  # rows of a detector, so that it can count whatever it is sent later


def check_model(
    content: bytes, configuration: dict[str, Any], limits: Limits, memory: MemoryBudget | None = None
) -> None:
    """Refuse a file that is damaged, takes too much memory, or is that of another detector than the configured one."""
    sizes = size_in_model(content)
    n_bytes = checked_size(sizes, limits)
    _refuse_others(sizes._asdict(), size_of(configuration)._asdict())
    with _held(memory, n_bytes, len(content), limits):
        _compare(_read(content), configuration)


def configuration_in(content: bytes, limits: Limits, memory: MemoryBudget | None = None) -> dict[str, Any]:
    """Return the configuration of the detector in a file, checked; features without names are x0, x1, ..."""
    with _held(memory, checked_size(size_in_model(content), limits), len(content), limits):
        return _configuration_of(_read(content), limits)


def _held(memory: MemoryBudget | None, n_bytes: int, n_file: int, limits: Limits) -> AbstractContextManager[None]:
    """Count the detector in a file as memory of the request, beyond what is counted for the file.

    It never counts more than all there is, so that the largest model can be read while nothing else takes memory.
    """
    n_more = min(n_bytes - (PER_BYTE_OF_MODELS - 1) * n_file, limits.memory_bytes - PER_BYTE_OF_MODELS * n_file)
    return nullcontext() if memory is None or n_more <= 0 else memory.reserved(n_more)


def _configuration_of(detector: StreamDetector, limits: Limits) -> dict[str, Any]:
    parameters = detector.parameters
    features = _names(detector) or [f"x{i}" for i in range(parameters["n_features"])]
    given = {"features": features} | {name: parameters[name] for name in DEFAULTS}
    configuration, _ = checked_configuration(given, limits)
    _compare(detector, configuration)
    return configuration


def size_in_model(content: bytes) -> DetectorSize:
    """Return the sizes of the detector in a file by its header, in which the forest must agree with the detector."""
    header = read_header(io.BytesIO(content), "The model", _MAX_HEADER_BYTES)
    with complaints_about("The model"):
        if _KIND not in header["notes"]:
            raise ValueError("it is not that of a StreamDetector.")
        parameters = renamed_parameters(header["notes"][_KIND]["parameters"])
        sizes = DetectorSize(*(parameters[name] for name in DetectorSize._fields))
        n_features, shingle = (as_count(n, "n_features", 1, MAX_POINTS) for n in (sizes.n_features, sizes.shingle))
        of_forest = {**header["parameters"], "n_features": header["n_features"]}
        of_detector = {
            "n_trees": sizes.n_trees,
            "window": sizes.window,
            "max_samples": sizes.max_samples,
            "n_jobs": parameters["n_jobs"],
            "n_features": n_features * shingle,
        }
        for name, value in of_detector.items():
            if of_forest[name] != value:
                raise ValueError(f"{name} of the forest must be {value!r:.100}, but is {of_forest[name]!r:.100}.")
    return sizes


def _read(content: bytes) -> StreamDetector:
    try:
        return detector_from(content)
    except MemoryError as error:  # at present, which is no fault of the file
        raise CapacityError(str(error)) from None


def _compare(detector: StreamDetector, configuration: dict[str, Any]) -> None:
    """Refuse a detector that is not one of this configuration."""
    features = configuration["features"]
    if detector.n_seen > _MAX_SEEN:
        raise InvalidInputError(
            f"The model file has seen {detector.n_seen} rows, but may have seen {_MAX_SEEN} at most."
        )
    theirs = {**detector.parameters, "features": _names(detector) or features}
    _refuse_others(theirs, {**parameters_of(configuration), "features": features})


def _refuse_others(theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    for name, value in ours.items():
        if theirs.get(name) != value:
            raise InvalidInputError(
                f"The model file is that of another detector: {name} is {theirs.get(name)!r:.100}, not {value!r:.100}."
            )


def _names(detector: StreamDetector) -> list[str]:
    """Return the names of the features, none if the file has none."""
    return [str(name) for name in detector.feature_names or []]
