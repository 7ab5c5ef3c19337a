"""Metrics of how well scores rank anomalies above normal rows."""

import numpy as np
from sklearn.metrics import average_precision_score, roc_auc_score

from imondrian.engine.jit import Array


def auc(is_anomaly: Array, scores: Array) -> float:
    """Return the area under the ROC curve in per cent.

    Examples
    --------
    >>> auc([0, 0, 1], [0.4, 0.5, 0.7])
    100.0
    """
    return 100.0 * float(roc_auc_score(is_anomaly, np.asarray(scores, dtype=np.float64)))


def average_precision(is_anomaly: Array, scores: Array) -> float:
    """Return the average precision in per cent.

    Examples
    --------
    >>> average_precision([0, 0, 1], [0.4, 0.7, 0.5])
    50.0
    """
    return 100.0 * float(average_precision_score(is_anomaly, np.asarray(scores, dtype=np.float64)))
