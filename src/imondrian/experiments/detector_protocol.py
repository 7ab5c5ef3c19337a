"""What every compared system can do: one protocol for batches, and one more verb for streams."""

from typing import Any, Protocol, Self

from imondrian.engine.jit import Array


class Detector(Protocol):
    """A system that learns rows and tells how odd rows are; high is odd."""

    def fit(self, X: Any) -> Self:
        """Learn these rows, and no others."""
        ...

    def score(self, X: Any) -> Array:
        """Score rows that are not learned."""
        ...

    def learned_scores(self) -> Array:
        """Score all rows learned so far, in the order in which they came."""
        ...


class OnlineDetector(Detector, Protocol):
    """A detector that goes on learning."""

    def extend(self, X: Any) -> Self:
        """Learn more rows."""
        ...
