"""Save and load forests, estimators, detectors and fleets: `imondrian.save` and `imondrian.load`."""

import io
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from imondrian.alarms.thresholds import stream_rule
from imondrian.base.defaults import SERIES
from imondrian.base.errors import InvalidInputError
from imondrian.fleet.fleet import Fleet
from imondrian.fleet.key_store import is_fleet_file
from imondrian.forest.mondrian_forest import MondrianForest
from imondrian.models import storage
from imondrian.models.fitted_model import FittedModel
from imondrian.stream.detector import StreamDetector

if TYPE_CHECKING:
    from imondrian.estimator import IsolationMondrianForest

Model = MondrianForest | StreamDetector | FittedModel
_MAX_TRIES = 10
_ESTIMATOR, _DETECTOR, EXTRA = "IsolationMondrianForest", "StreamDetector", "beside"  # keys of the notes in a file


def save(model: Any, path: str | os.PathLike[str], extra: dict[str, Any] | None = None) -> None:
    """Write a forest, a fitted IsolationMondrianForest, a StreamDetector or a Fleet to a model file (.imf).

    A fitted `imondrian.pyod.IMForest` is saved as an IsolationMondrianForest with the same threshold.

    The file is written under a temporary name and then renamed, so that it is never incomplete. Exception: a fleet that
    already has this file as its store is saved to it in one transaction.

    Parameters
    ----------
    model : MondrianForest, IsolationMondrianForest, StreamDetector or Fleet
        The model.
    path : str or path-like
        The file to write.
    extra : dict, optional
        JSON values to store with a detector, an estimator or a fleet, ignored for a forest; `load_extra` returns them.
        For a fleet, they replace its attribute `extra`.
    """
    if isinstance(model, Fleet):
        if extra is not None:
            model.extra = extra
        model.save(path)
        return
    forest, notes = _parts(model, extra or {})
    storage.save(forest, path, notes)


def load(path: str | os.PathLike[str]) -> "MondrianForest | IsolationMondrianForest | StreamDetector | Fleet":
    """Read a model that `save` has written; it continues bit for bit as if it had never been saved.

    Untrusted files are safe to load: nothing in a file is executed, and everything is checked. A fleet uses the file
    from which it was loaded as its store, and the detector of a key is checked when it is read; see `Fleet.load`, which
    can also limit the memory.

    Parameters
    ----------
    path : str or path-like
        The file to read.

    Returns
    -------
    MondrianForest, IsolationMondrianForest, StreamDetector or Fleet
        The model.

    Raises
    ------
    DamagedFileError
        If the file is truncated, altered or not a model file.
    """
    if is_fleet_file(path):
        return Fleet.load(path)
    model = load_model(path)
    if not isinstance(model, FittedModel):
        return model
    from imondrian.estimator import IsolationMondrianForest  # noqa: PLC0415 (scikit-learn takes seconds to load)

    with storage.damaged_file_errors(path):
        return IsolationMondrianForest.from_fitted_model(model)


def load_model(path: str | os.PathLike[str]) -> Model:
    """Read a model file like `load`, but return an estimator as a FittedModel, without scikit-learn.

    Raises
    ------
    InvalidInputError
        If the model is a fleet.
    """
    if is_fleet_file(path):
        raise InvalidInputError(
            f"{os.fspath(path)} is a fleet (one detector per key): only imondrian watch --by, imondrian info and the"
            " class Fleet can use it."
        )
    return _model_of(*storage.load(path), path)


def load_extra(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the values that `save` stored with a model as `extra`, or an empty dictionary."""
    if is_fleet_file(path):
        with Fleet.load(path) as fleet:
            return fleet.extra
    _, notes = storage.load(path)
    extra = notes.get(EXTRA, {})
    return extra if isinstance(extra, dict) else {}


def to_bytes(model: Any, extra: dict[str, Any] | None = None) -> bytes:
    """Return the content of a model file as bytes; the parameters are those of `save`, but a fleet is refused."""
    file = io.BytesIO()
    forest, notes = _parts(model, extra or {})
    storage.write(forest, file, notes)
    return file.getvalue()


def from_bytes(content: bytes, name: str = "The model") -> Model:
    """Return the model that `to_bytes` converted to bytes, checked like a file; error messages begin with `name`.

    An estimator is returned as a FittedModel, as by `load_model`.
    """
    return _model_of(*storage.read(io.BytesIO(content), name), name)


def as_fitted_model(model: Model, name: str) -> FittedModel:
    """Convert a model of any type to a FittedModel, to score, label and explain single rows.

    Parameters
    ----------
    model : MondrianForest, StreamDetector or FittedModel
        The model. For a forest, the kind is "depth" and the threshold is 0.5. For a detector with
        `missing="previous"`, missing numbers are replaced by the medians of its window, since single rows have no
        order.
    name : str
        Name of the model in error messages.

    Returns
    -------
    FittedModel
        The fitted model; it shares its forest with `model`.

    Raises
    ------
    InvalidInputError
        If the model is a detector with a shingle or with the preset "series", for which a single row has no score.
    """
    if isinstance(model, FittedModel):
        return model
    if isinstance(model, MondrianForest):
        return FittedModel(model, {"kind": "depth", "contamination": "score 0.5"}, 0.5, None)
    shingle, rule = model.parameters["shingle"], stream_rule(model.threshold).text
    if shingle > 1:
        raise InvalidInputError(f"{name}: a point of this detector is {shingle} rows; a single row has no score.")
    if model.preset == SERIES:
        raise InvalidInputError(
            f"{name}: this detector is for a time series; a single row has no score without the rows before it."
        )
    names = None if model.feature_names is None else list(map(str, model.feature_names))
    missing, indicators = model.parameters["missing"], model.indicators
    parameters = {"kind": model.kind, "contamination": rule, "missing": "median" if missing == "previous" else missing}
    return FittedModel(
        model.forest,
        parameters,
        model.threshold_score,
        names,
        stored_fill=model.next_medians() if missing in ("median", "indicator") else None,
        indicators=indicators,
        stored_distribution=model.score_distribution,
    )


def _parts(model: Any, extra: dict[str, Any]) -> tuple[storage.PackedForest, dict[str, Any]]:
    """Pack the forest of a model and copy its notes; another thread may change the model afterwards.

    Raises
    ------
    InvalidInputError
        If the model could not be read again, for example because its forest was changed directly.
    """
    if isinstance(model, MondrianForest):
        return model.read_state(storage.pack), {}
    if isinstance(model, StreamDetector):
        forest, notes = model.read_state(storage.pack)
        return forest, {_DETECTOR: notes, EXTRA: extra}
    if isinstance(model, FittedModel) or hasattr(model, "fitted_model"):
        fitted, forest = _consistent_copy(model)
        notes = fitted.notes()
        try:
            FittedModel.from_notes(fitted.forest, notes)
        except ValueError as error:
            raise InvalidInputError(f"The model cannot be saved: {error}") from None
        return forest, {_ESTIMATOR: notes, **({EXTRA: extra} if extra else {})}
    if isinstance(model, Fleet):
        raise InvalidInputError("A fleet can be saved only to a file: use its method save.")
    raise InvalidInputError(
        f"Only a forest, a fitted estimator, a StreamDetector or a Fleet can be saved, not {model!r}."
    )


def _consistent_copy(model: Any) -> tuple[FittedModel, storage.PackedForest]:
    """Return a fitted model and a copy of its forest.

    The threshold and the distribution of scores are left out if another thread keeps changing the model.
    """
    for _ in range(_MAX_TRIES):
        fitted = model if isinstance(model, FittedModel) else model.fitted_model()
        n_changes, packed = fitted.forest.n_changes, fitted.forest.read_state(storage.pack)
        after = model if isinstance(model, FittedModel) else model.fitted_model()
        is_same = (
            after.stored_threshold == fitted.stored_threshold
            and after.stored_distribution is fitted.stored_distribution
            and fitted.forest.n_changes == n_changes
        )
        if is_same:
            return fitted, packed
    return replace(fitted, stored_threshold=None, stored_distribution=None), packed


def _model_of(forest: MondrianForest, notes: dict[str, Any], name: str | os.PathLike[str]) -> Model:
    """Return the model made from a forest and the notes that `_parts` returned."""
    with storage.damaged_file_errors(name):
        if not notes:
            return forest
        if _DETECTOR in notes:
            return StreamDetector.from_notes(forest, notes[_DETECTOR])
        return FittedModel.from_notes(forest, notes[_ESTIMATOR])
