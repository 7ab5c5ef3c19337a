"""The parameters of a forest and their validation."""

from typing import Any, NamedTuple, Self

import numpy as np

from imondrian.base.errors import InvalidInputError
from imondrian.engine.nodes import MAX_POINTS
from imondrian.forest.feature_layout import Categorical, checked_categorical
from imondrian.forest.inputs import as_count, as_weights
from imondrian.forest.scales import SCALES

MAX_SEED = 2**64 - 1


class ForestParameters(NamedTuple):
    """The arguments of `MondrianForest`."""

    n_trees: int
    max_samples: int | None
    window: int | None
    scale: Any
    seed: int
    n_jobs: int
    categorical: Categorical

    @classmethod
    def checked(
        cls, n_trees: Any, max_samples: Any, window: Any, scale: Any, seed: Any, n_jobs: Any, categorical: Any
    ) -> Self:
        """Return the parameters as plain Python types; raise InvalidInputError for the first that is invalid."""
        return cls(
            n_trees=as_count(n_trees, "n_trees", 1, MAX_POINTS),
            max_samples=None if max_samples is None else as_count(max_samples, "max_samples", 1, MAX_POINTS),
            window=None if window is None else as_count(window, "window", 1, MAX_POINTS),
            scale=checked_scale(scale),
            seed=as_count(seed, "seed", 0, MAX_SEED),
            n_jobs=checked_n_jobs(n_jobs),
            categorical=checked_categorical(categorical),
        )

    def copy(self) -> Self:
        """Return the parameters with a copy of the weights, if the scale is an array."""
        return self._replace(scale=self.scale.copy()) if isinstance(self.scale, np.ndarray) else self


def checked_n_jobs(n_jobs: Any) -> int:
    """Check a number of threads: any integer except 0."""
    n_jobs = as_count(n_jobs, "n_jobs", -MAX_POINTS, MAX_POINTS)
    if n_jobs == 0:
        raise InvalidInputError("n_jobs must not be 0; -1 means all processors.")
    return n_jobs


def checked_scale(scale: Any) -> Any:
    """Check a scale: None, the name of a scale, or one weight per feature."""
    if scale is None or (isinstance(scale, str) and scale in SCALES):
        return scale
    if isinstance(scale, str):
        names = ", ".join(map(repr, SCALES))
        raise InvalidInputError(f"scale must be {names} or one weight per feature, but is {scale!r}.")
    return as_weights(scale, None).copy()
