"""Where the features of a stream are in the points of its forest, with shingles and indicators of missing values."""

from typing import Any, NamedTuple, Self

import numpy as np

from imondrian.base.defaults import SERIES
from imondrian.engine.jit import Array
from imondrian.engine.series_views import N_VIEWS
from imondrian.forest.inputs import as_weights
from imondrian.rows.missing_values import without_indicators


class RowLayout(NamedTuple):
    """The layout of a point: `size` rows, each of which has its features, then indicators for some of the features.

    With the preset "series", the rows of a point are the views of one row of the stream (`series_views.py`).
    """

    n_features: int
    categorical: tuple[int, ...]  # the categorical features
    indicators: tuple[int, ...]  # the features with an indicator of missing values
    size: int  # number of rows in a point
    has_views: bool = False  # whether the rows of a point are views of one row

    @classmethod
    def of(cls, parameters: dict[str, Any]) -> Self:
        """Return the layout of a detector with these (checked) parameters.

        Categorical features that are given by name come first in a row.
        """
        n_features, given = parameters["n_features"], parameters["categorical"]
        by_name = any(isinstance(item, str) for item in given)
        categorical = tuple(range(len(given))) if by_name else tuple(given)
        has_views = parameters["preset"] == SERIES
        layout = cls(n_features, categorical, (), N_VIEWS if has_views else parameters["shingle"], has_views)
        return layout._replace(indicators=tuple(layout.numeric)) if parameters["missing"] == "indicator" else layout

    @property
    def numeric(self) -> list[int]:
        """The features that are numbers."""
        categorical = set(self.categorical)
        return [j for j in range(self.n_features) if j not in categorical]

    @property
    def width(self) -> int:
        """Number of values of a row in the forest: features and indicators."""
        return self.n_features + len(self.indicators)

    @property
    def n_values(self) -> int:
        """Number of values of a point in the forest."""
        return self.width * self.size

    @property
    def categorical_values(self) -> list[int]:
        """Indices of the values of a point that are categories: in each row, categorical features and indicators."""
        in_row = (*self.categorical, *range(self.n_features, self.width))
        return [i * self.width + j for i in range(self.size) for j in in_row]

    def forest_scale(self, scale: Any) -> Any:
        """Return the scale of the forest: weights are repeated for each view, and each indicator gets the weight 1."""
        if scale is None or isinstance(scale, str) or not (self.indicators or self.has_views):
            return scale
        if self.has_views:
            return as_weights(scale, self.n_features).tolist() * self.size
        weights = as_weights(scale, self.n_features * self.size).reshape(self.size, self.n_features)
        return np.hstack([weights, np.ones((self.size, len(self.indicators)))]).ravel().tolist()

    def numbers_of_point(self, point: Array) -> Array:
        """Return the last row of a point of the window, with 0 in place of the categories.

        In the window, a point begins with the numbers of all its rows; its categories come last.
        """
        row, n_numbers = np.zeros(self.n_features), len(self.numeric)
        row[self.numeric] = point[n_numbers * (self.size - 1) : n_numbers * self.size]
        return row

    def features_of_points(self, points: Array) -> Array:
        """Return points without their indicators."""
        if not self.indicators:
            return points
        rows = points.reshape(-1, self.size, self.width)[:, :, : self.n_features]
        return np.ascontiguousarray(rows).reshape(len(points), -1)

    def rows_of_point(self, point: Array) -> Array:
        """Return a copy of the rows of one point without their indicators, oldest first."""
        return point.reshape(self.size, self.width)[:, : self.n_features].copy()

    def features_of_parts(self, parts: Array) -> Array:
        """Return the part of each feature in a score, given the part of each value of the point.

        The part of an indicator is added to that of its feature.
        """
        return without_indicators(parts.reshape(self.size, self.width), list(self.indicators)).ravel()
