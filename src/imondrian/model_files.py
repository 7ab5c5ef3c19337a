"""Model files of forests, estimators and detectors: `imondrian.save` and `imondrian.load`."""

import io
import os
from typing import TYPE_CHECKING, Any

from imondrian import storage
from imondrian.errors import InvalidInputError
from imondrian.fitted import Fitted
from imondrian.forest import MondrianForest
from imondrian.forest_state import Snapshot
from imondrian.stream import StreamDetector

if TYPE_CHECKING:
    from imondrian.estimator import IsolationMondrianForest

_TRIES = 10
_ESTIMATOR, _DETECTOR, _BESIDE = "IsolationMondrianForest", "StreamDetector", "beside"


def save(model: Any, path: str | os.PathLike[str], beside: dict[str, Any] | None = None) -> None:
    """Write a forest, a fitted IsolationMondrianForest or a StreamDetector to a model file (.imf).

    The file is at all times the old one or the new one, whole: it is written beside and renamed.

    Parameters
    ----------
    model : MondrianForest, IsolationMondrianForest or StreamDetector
    path : path of a file
    beside : dict, optional
        Anything that JSON can hold, to be kept with a detector; see `beside`.
    """
    forest, notes = _parts(model, beside or {})
    storage.save(forest, path, notes)


def to_bytes(model: Any, beside: dict[str, Any] | None = None) -> bytes:
    """Give the model file of a forest, a fitted estimator or a detector as bytes, to be sent or kept elsewhere."""
    file = io.BytesIO()
    forest, notes = _parts(model, beside or {})
    storage.write(forest, file, notes)
    return file.getvalue()


def from_bytes(content: bytes, name: str = "The model") -> MondrianForest | StreamDetector | Fitted:
    """Read what `to_bytes` gave, as safely as a file; the name is for what there is to complain about."""
    return _put_together(*storage.read(io.BytesIO(content), name), name)


def _parts(model: Any, beside: dict[str, Any]) -> tuple[Snapshot, dict[str, Any]]:
    """Copy the forest of a model and what stands in its file beside it; another thread may go on changing the model."""
    if isinstance(model, MondrianForest):
        return model.snapshot(), {}
    if isinstance(model, StreamDetector):
        forest, notes = model.snapshot()
        return forest, {_DETECTOR: notes, _BESIDE: beside}
    if isinstance(model, Fitted) or hasattr(model, "fitted"):
        return _parts_of_fitted(model)
    raise InvalidInputError(f"A forest, a fitted estimator or a StreamDetector can be saved, but not {model!r}.")


def _parts_of_fitted(model: Any) -> tuple[Snapshot, dict[str, Any]]:
    """Copy forest and notes of one moment; if another thread keeps changing the forest, without the threshold."""
    for _ in range(_TRIES):
        fitted = model if isinstance(model, Fitted) else model.fitted()
        n_changes, snapshot = fitted.forest.n_changes, fitted.forest.snapshot()
        is_same = isinstance(model, Fitted) or model.fitted().threshold == fitted.threshold
        if is_same and fitted.forest.n_changes == n_changes:
            return snapshot, {_ESTIMATOR: fitted.notes()}
    return snapshot, {_ESTIMATOR: fitted._replace(threshold=None).notes()}


def _put_together(
    forest: MondrianForest, notes: dict[str, Any], name: str | os.PathLike[str]
) -> MondrianForest | StreamDetector | Fitted:
    """Make a model of what `_parts` gave."""
    with storage.damaged_file_errors(name):
        if not notes:
            return forest
        if _DETECTOR in notes:
            return StreamDetector.from_notes(forest, notes[_DETECTOR])
        return Fitted.from_notes(forest, notes[_ESTIMATOR])


def load(path: str | os.PathLike[str]) -> "MondrianForest | IsolationMondrianForest | StreamDetector":
    """Read what `save` has written; it goes on bit for bit as if it had never been saved.

    Safe to call on any file: nothing in it is executed, everything is checked, and one that is cut or altered in any
    way is a DamagedFileError.
    """
    model = load_plain(path)
    if not isinstance(model, Fitted):
        return model
    from imondrian.estimator import IsolationMondrianForest  # noqa: PLC0415 (scikit-learn takes seconds to load)

    with storage.damaged_file_errors(path):
        return IsolationMondrianForest.from_fitted(model)


def load_plain(path: str | os.PathLike[str]) -> MondrianForest | StreamDetector | Fitted:
    """Read a model file as `load` does, but give what was fitted without the estimator around it."""
    return _put_together(*storage.load(path), path)


def beside(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read what was kept with a detector, if anything was."""
    _, notes = storage.load(path)
    kept = notes.get(_BESIDE, {})
    return kept if isinstance(kept, dict) else {}
