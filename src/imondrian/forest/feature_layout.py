"""The order of features inside a forest: numbers, then rarities and codes of the categorical features.

Users give rows in their own order. A forest needs two columns for a categorical feature: the rarity of the category,
and its code, which each tree replaces with a place (see `engine/places.py`). Without categorical features, rows
are returned unchanged and are not copied, except by `coded_without_rarities`.
"""

from typing import Any, Self

import numpy as np

from imondrian.base.errors import InvalidInputError
from imondrian.engine.jit import Array

Categorical = tuple[int, ...] | tuple[bool, ...]  # indices, or a mask


class FeatureLayout:
    """Maps the features of a row to the columns of a coded row, and back.

    Parameters
    ----------
    n_features : int
        Number of features that users see.
    categorical : tuple of int
        Indices of the categorical features, in ascending order.
    """

    def __init__(self, n_features: int, categorical: tuple[int, ...]) -> None:
        self.n_features = n_features
        self.categorical = categorical
        categories = set(categorical)
        self._numbers = [j for j in range(n_features) if j not in categories]
        self._feature_of_coordinate = np.array(self.coordinate_features(), np.intp)

    @classmethod
    def checked(cls, n_features: int, categorical: Categorical) -> Self:
        """Return the layout; raise InvalidInputError if a categorical feature does not exist."""
        indices = indices_of(categorical)
        if is_mask(categorical) and len(categorical) != n_features:
            raise InvalidInputError(
                f"categorical must have one entry for each of {n_features} features, but has {len(categorical)}."
            )
        if indices and indices[-1] >= n_features:
            raise InvalidInputError(
                f"categorical must contain indices below the number of features, {n_features}, but has {indices[-1]}."
            )
        return cls(n_features, indices)

    @property
    def n_categorical(self) -> int:
        """Number of categorical features."""
        return len(self.categorical)

    @property
    def n_numbers(self) -> int:
        """Number of features that are numbers."""
        return len(self._numbers)

    @property
    def n_coordinates(self) -> int:
        """Number of columns of a coded row, which is the number of coordinates that a tree can cut."""
        return self.n_features + self.n_categorical

    def coordinate_features(self) -> list[int]:
        """Return the feature of each coordinate."""
        return [*self._numbers, *self.categorical, *self.categorical]

    def last_coordinates(self, features: Array) -> Array:
        """Return the last coordinate of each feature: the only one of a number, or the place of a category."""
        last = np.empty(self.n_features, np.intp)
        last[self._feature_of_coordinate] = np.arange(self.n_coordinates)  # of two coordinates, the later one remains
        return last[features]

    def coded(self, X: Array) -> Array:
        """Return rows in the order of the forest; X itself if no feature is categorical.

        The rarities are not computed: until they are written, their columns have the codes.
        """
        return X.take(self._feature_of_coordinate, axis=-1) if self.categorical else X

    def coded_without_rarities(self, X: Array) -> Array:
        """Return rows in the order of the forest, as a copy, with rarities of 0."""
        rows = self.coded(X) + 0.0  # -0.0 becomes 0.0
        rows[..., self.n_numbers : self.n_features] = 0.0
        return rows

    def uncoded(self, rows: Array) -> Array:
        """Return coded rows in the order of the user."""
        if not self.categorical:
            return rows
        X = np.empty((*rows.shape[:-1], self.n_features))
        X[..., self._numbers] = rows[..., : self.n_numbers]
        X[..., self.categorical] = rows[..., self.n_features :]
        return X

    def signed_shares(self, shares: Array) -> Array:
        """Add up the shares of the coordinates of each feature.

        Parameters
        ----------
        shares : array of shape (n_rows, 2, n_coordinates)
            Shares of high and of low values.

        Returns
        -------
        array of shape (n_rows, n_features)
            Positive if the value is high, negative if it is low. The share of a category is never negative.
        """
        totals = shares.sum(axis=1)
        signed = np.where(shares[:, 0] >= shares[:, 1], totals, -totals)
        if not self.categorical:
            return signed
        parts = np.empty((shares.shape[0], self.n_features))
        parts[:, self._numbers] = signed[:, : self.n_numbers]
        rarities, places = totals[:, self.n_numbers : self.n_features], totals[:, self.n_features :]
        parts[:, self.categorical] = rarities + places
        return parts

    def weights(self, feature_weights: Array) -> Array:
        """Return the weight of each coordinate, given that of each feature."""
        return feature_weights.take(self._feature_of_coordinate)


def checked_categorical(categorical: Any) -> Categorical:
    """Return indices in ascending order, or a mask, as a tuple; raise InvalidInputError if it is neither."""
    try:
        values = list(categorical)
    except TypeError:
        raise InvalidInputError(f"categorical must be indices or a mask, but is {categorical!r:.100}.") from None
    if values and all(isinstance(value, (bool, np.bool_)) for value in values):
        return tuple(map(bool, values))
    for value in values:
        if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)) or value < 0:
            raise InvalidInputError(
                f"categorical must contain indices of features, counted from 0, or be a mask, but has {value!r:.100}."
            )
    indices = sorted(map(int, values))
    if len(set(indices)) < len(indices):
        raise InvalidInputError(f"categorical must not contain an index twice, but is {categorical!r:.100}.")
    return tuple(indices)


def is_mask(categorical: Categorical) -> bool:
    """Return True for a mask, False for indices."""
    return bool(categorical) and isinstance(categorical[0], bool)


def indices_of(categorical: Categorical) -> tuple[int, ...]:
    """Return the indices of the categorical features."""
    if is_mask(categorical):
        return tuple(j for j, is_categorical in enumerate(categorical) if is_categorical)
    return tuple(map(int, categorical))
