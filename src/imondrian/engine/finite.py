"""A fast check that all values are finite and not too large."""

import numpy as np

from imondrian.engine.jit import Array, kernel
from imondrian.engine.nodes import MAX_VALUE

_WITHOUT_SIGN = np.int64(2**63 - 1)  # mask of all bits except the sign
_LARGEST = np.float64(MAX_VALUE).view(np.int64)


@kernel
def all_within_limit(values: Array) -> bool:
    """Return True if every value is finite and within MAX_VALUE.

    With the sign bit cleared, the bit patterns of floats, read as integers, sort like their absolute values; infinity
    and NaN are above all finite values.
    """
    bits, differences = values.view(np.int64), np.int64(0)
    for i in range(bits.size):
        differences |= _LARGEST - (bits[i] & _WITHOUT_SIGN)  # negative for a value that is too large
    return bool(differences >= 0)
