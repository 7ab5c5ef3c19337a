"""The protocols of the compared systems: Detector for batches, OnlineDetector for streams."""

from typing import Any, Protocol, Self

from imondrian.engine.jit import Array


class Detector(Protocol):
    """A system that learns rows and scores rows; a high score is anomalous."""

    def fit(self, X: Any) -> Self:
        """Learn these rows, replacing all learned before."""
        ...

    def score(self, X: Any) -> Array:
        """Score rows without learning them."""
        ...

    def learned_scores(self) -> Array:
        """Score all rows learned so far, in order of arrival."""
        ...


class OnlineDetector(Detector, Protocol):
    """A detector that can learn more rows."""

    def extend(self, X: Any) -> Self:
        """Learn more rows."""
        ...
