"""Logarithms of counts and decays, from tables where that is faster: the box-aware walk needs one of each per node."""

import math

import numpy as np

from imondrian.engine.jit import helper

MAX_DECAY = -math.log(1e-6)  # beyond, next to nothing is left
_N_COUNTS = 1024
_STEPS = 64  # per unit, of the table of decays
_LOGS = np.log(np.maximum(np.arange(_N_COUNTS), 1))
_DECAYS = np.exp(-np.arange(math.ceil(MAX_DECAY * _STEPS) + 1) / _STEPS)


@helper
def log_of_count(n: int) -> float:
    """Give log(n) of a positive whole number."""
    return _LOGS[n] if n < _N_COUNTS else math.log(n)


@helper
def decay(z: float) -> float:
    """Give exp(-z) for z between 0 and MAX_DECAY, to twelve digits (Taylor's series about the nearest table entry)."""
    i = np.int64(z * _STEPS + 0.5)
    r = i * (1.0 / _STEPS) - z
    square = r * r
    series = (1.0 + r) + square * ((0.5 + r * (1.0 / 6.0)) + square * (1.0 / 24.0))
    return _DECAYS[np.uint64(i)] * series
