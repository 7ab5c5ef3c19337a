"""Model files of forests and of estimators: `imondrian.save` and `imondrian.load`."""

import os
from typing import Any

from imondrian import storage
from imondrian.errors import InvalidInputError
from imondrian.forest import MondrianForest

_ESTIMATOR = "IsolationMondrianForest"


def save(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a forest or a fitted IsolationMondrianForest to a model file (.imf).

    The file is at all times the old one or the new one, whole: it is written beside and renamed.
    """
    if isinstance(model, MondrianForest):
        storage.save(model, path)
    elif hasattr(model, "notes"):
        notes = model.notes()
        storage.save(model.forest_, path, {_ESTIMATOR: notes})
    else:
        raise InvalidInputError(f"A MondrianForest or an IsolationMondrianForest can be saved, but not {model!r}.")


def load(path: str | os.PathLike[str]) -> Any:
    """Read what `save` has written, a forest or an estimator; it goes on bit for bit as if it had never been saved.

    Safe to call on any file: nothing in it is executed, everything is checked, and one that is cut or altered in any
    way is a DamagedFileError.
    """
    forest, notes = storage.load(path)
    if not notes:
        return forest
    from imondrian.estimator import IsolationMondrianForest  # noqa: PLC0415 (scikit-learn takes a second to load)

    with storage.complaints_about(path):
        return IsolationMondrianForest.from_notes(forest, notes[_ESTIMATOR])
