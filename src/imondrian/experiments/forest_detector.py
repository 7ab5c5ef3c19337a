"""The isolation Mondrian forest with the interface of the compared systems."""

from typing import Any, Self

import numpy as np

from imondrian.base.option_types import Kind, Scale
from imondrian.engine.jit import Array
from imondrian.forest.mondrian_forest import MondrianForest


class ForestDetector:
    """A Mondrian forest that computes one of its scores, and stores the rows to score them again.

    Parameters
    ----------
    max_samples : int or None
        Maximum number of points in a tree: 256 in the paper's batch experiments, None (all) in its online ones.
    kind : str, default="depth"
        The score; "depth" is the paper's.
    scale : None or "std", default=None
        Weights of the features; None is the paper's.
    seed : int, default=0
    n_trees : int, default=100

    Examples
    --------
    >>> detector = ForestDetector(None).fit([[0.0], [0.1], [0.2]]).extend([[9.0]])
    >>> int(detector.learned_scores().argmax())
    3
    """

    def __init__(
        self,
        max_samples: int | None,
        kind: Kind = "depth",
        scale: Scale = None,
        seed: int = 0,
        n_trees: int = 100,
    ) -> None:
        self.kind = kind
        self._parameters: dict[str, Any] = {
            "n_trees": n_trees,
            "max_samples": max_samples,
            "scale": scale,
            "seed": seed,
        }
        self.forest = MondrianForest(**self._parameters)
        self._rows: list[Array] = []

    def fit(self, X: Any) -> Self:
        """Build the forest on these rows."""
        self.forest = MondrianForest(**self._parameters).build(X)
        self._rows = [np.array(X, dtype=np.float64)]
        return self

    def extend(self, X: Any) -> Self:
        """Extend every tree by these rows."""
        self.forest.extend(X)
        self._rows.append(np.array(X, dtype=np.float64))
        return self

    def score(self, X: Any) -> Array:
        """Score rows without learning them."""
        return self.forest.score(X, self.kind)

    def learned_scores(self) -> Array:
        """Score all rows so far again, like the paper after each update; in one pass if the trees hold all rows."""
        rows = np.vstack(self._rows)
        if self.forest.max_samples is not None:
            return self.score(rows)
        held, held_scores = self.forest.rescore(self.kind)
        scores = np.empty(len(rows))
        scores[np.lexsort(rows.T)] = held_scores[np.lexsort(held.T)]  # the same rows, in another order
        return scores
