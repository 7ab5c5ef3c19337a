"""Logarithms and exponentials from tables, faster than the math library; box-aware scores need several per node."""

import math

import numpy as np

from imondrian.engine.jit import helper

LOG_ZERO = math.log(5e-324)  # used as the logarithm of 0
MAX_DECAY = -math.log(1e-6)  # larger exponents are limited to this one: exp(-MAX_DECAY) is 1e-6
_N_COUNTS = 1024  # size of the table of logarithms of integers
_STEPS = 64  # entries per unit in the table of exponentials
_SMALLEST_NORMAL = 2.0**-1022
_N_MANTISSAS = 128
_MANTISSAS = 1.0 + np.arange(_N_MANTISSAS + 1) / _N_MANTISSAS
_LOGS_OF_MANTISSAS = np.log(_MANTISSAS)
_INVERSE_MANTISSAS = 1.0 / _MANTISSAS
_LOG_2 = math.log(2.0)
_MANTISSA, _EXPONENT_OF_ONE = np.int64(2**52 - 1), np.int64(1023 << 52)
_LOGS = np.log(np.maximum(np.arange(_N_COUNTS), 1))
_DECAYS = np.exp(-np.arange(math.ceil(MAX_DECAY * _STEPS) + 1) / _STEPS)


@helper
def log_of_count(n: int) -> float:
    """Return log(n) for a positive integer n."""
    return _LOGS[n] if n < _N_COUNTS else math.log(n)


@helper
def decay(z: float) -> float:
    """Return exp(-z) for z in [0, MAX_DECAY], to twelve digits (Taylor series about the nearest table entry)."""
    i = np.int64(z * _STEPS + 0.5)
    r = i * (1.0 / _STEPS) - z
    square = r * r
    series = (1.0 + r) + square * ((0.5 + r * (1.0 / 6.0)) + square * (1.0 / 24.0))
    return _DECAYS[np.uint64(i)] * series


@helper
def floored_log(size: float) -> float:
    """Return log(size) to fifteen digits; for size 0, the log of the smallest positive float.

    The mantissa is a table entry times 1 + r with |r| < 1/256; log(1 + r) is computed by its Taylor series.
    """
    if size < _SMALLEST_NORMAL:
        return math.log(size) if size > 0.0 else LOG_ZERO
    bits = np.float64(size).view(np.int64)
    exponent = (bits >> 52) - 1023
    mantissa = np.int64((bits & _MANTISSA) | _EXPONENT_OF_ONE).view(np.float64)
    i = np.uint64(((bits & _MANTISSA) + (1 << 44)) >> 45)
    r = (mantissa - _MANTISSAS[i]) * _INVERSE_MANTISSAS[i]
    square = r * r
    series = (r - 0.5 * square) + square * (r * (1.0 / 3.0) - square * (0.25 - r * 0.2 + square * (1.0 / 6.0)))
    return (exponent * _LOG_2 + _LOGS_OF_MANTISSAS[i]) + series
