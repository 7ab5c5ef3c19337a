"""Order statistics of values with numbers of copies, without a list of all copies."""

import numpy as np

from imondrian.engine.jit import Array


def values_at_ranks(values: Array, copies: Array, ranks: list[int]) -> Array:
    """Return the elements with these ranks, from 0, of the sorted list in which each value is repeated.

    Examples
    --------
    >>> import numpy as np
    >>> values_at_ranks(np.array([5.0, 1.0, 3.0]), np.array([2, 1, 4]), [0, 1, 4, 5]).tolist()
    [1.0, 3.0, 3.0, 5.0]
    """
    order = np.argsort(values, kind="stable")
    n_up_to = np.cumsum(copies[order], dtype=np.int64)
    return np.asarray(values[order[np.searchsorted(n_up_to, ranks, side="right")]])


def quantile_of_copies(values: Array, copies: Array, share: float) -> float:
    """Return `np.quantile` of the values with all their copies, bit for bit."""
    last = int(copies.sum(dtype=np.int64)) - 1
    position = last * share
    rank = int(position)
    return float(np.quantile(values_at_ranks(values, copies, [rank, min(rank + 1, last)]), position - rank))


def median_of_copies(values: Array, copies: Array) -> float:
    """Return `np.median` of the values with all their copies, bit for bit; NaN if there are none."""
    n = int(copies.sum(dtype=np.int64))
    return np.nan if n == 0 else float(values_at_ranks(values, copies, [(n - 1) // 2, n // 2]).mean())
