"""The score of the Numenta Anomaly Benchmark (NAB), from its published definition.

The first rows of a series (15 %, at most 750) are not scored. In a labelled window, only the first alarm counts: it is
worth 1 at the left edge of the window, and less if it comes later. A window without an alarm costs a penalty. So does
an alarm outside of the windows: this penalty grows with the distance from the window before it. The sum over all
series, with one threshold for all, is scaled so that silence is 0 and one alarm at the left edge of every window is
100. NAB chooses the threshold with the highest sum, and so do the functions here. The details follow NAB's
`sweeper.py`, with two differences: windows that lie entirely in the unscored rows are left out (NAB has no such
windows), and distances from a window of one row are measured in rows.

References
----------
A. Lavin, S. Ahmad: Evaluating Real-time Anomaly Detection Algorithms - the Numenta Anomaly Benchmark. ICMLA 2015.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from series_data import Series

UNSCORED_SHARE, MAX_UNSCORED = 0.15, 750
STEEPNESS = 5.0
FAR = 3.0  # widths of the window after which a false alarm counts in full
N_EXACT, RANK_STEP = 100, 1.02  # thresholds tried if alarms are limited: the highest scores, then growing steps


class Profile(NamedTuple):
    """What alarms are worth in an application."""

    found: float  # a window found at its left edge
    missed: float  # the penalty for a window without an alarm
    false: float  # the penalty for an alarm far from any window


PROFILES = {
    "standard": Profile(1.0, 1.0, 0.11),
    "reward_low_FP_rate": Profile(1.0, 1.0, 0.22),
    "reward_low_FN_rate": Profile(1.0, 2.0, 0.11),
}


class Best(NamedTuple):
    """The highest score of a detector, and its threshold: rows with scores at least as high are alarms."""

    score: float
    threshold: float


class RowValues(NamedTuple):
    """What an alarm is worth in each scored row, before it is multiplied by the values of a `Profile`."""

    first: int  # the first scored row
    window: np.ndarray  # number of the window of each row, -1 outside
    value: np.ndarray  # what the first alarm in a window, or an alarm outside, would be worth here; negative outside
    n_windows: int


def n_unscored(n_rows: int) -> int:
    """Return how many rows at the start of a series are not scored."""
    return min(int(UNSCORED_SHARE * n_rows), MAX_UNSCORED)


def position_value(position: float | np.ndarray) -> np.ndarray:
    """Return the value of an alarm: `position` is -1 at the left edge of the window, 0 at its end, then positive."""
    position = np.asarray(position, float)
    value = 2.0 / (1.0 + np.exp(STEEPNESS * np.minimum(position, FAR))) - 1.0
    return np.where(position >= FAR, -1.0, value)


def row_values(series: Series) -> RowValues:
    """Return what an alarm is worth in each scored row of a series."""
    rows, first = np.arange(len(series.values)), n_unscored(len(series.values))
    window, value = np.full(rows.size, -1), np.full(rows.size, -1.0)
    scored = sorted(one for one in series.windows if one[1] >= first)
    for left, right in sorted(series.windows):
        after = rows > right
        value[after] = position_value((rows[after] - right) / max(right - left, 1))
    for number, (left, right) in enumerate(scored):
        inside = (rows >= left) & (rows <= right)
        window[inside] = number
        value[inside] = position_value((rows[inside] - right - 1) / (right - left + 1)) / position_value(-1.0)
    return RowValues(first, window[first:], value[first:], len(scored))


def score_of_alarms(
    series: Sequence[Series], alarms: Sequence[np.ndarray], profile: Profile = PROFILES["standard"]
) -> float:
    """Return the score, from 0 (silence) to 100 (perfect), of the alarms in each series.

    Parameters
    ----------
    series : sequence of Series
    alarms : sequence of arrays
        The rows of each series with an alarm; those in the unscored rows are ignored.
    profile : Profile, optional
    """
    values = [row_values(one) for one in series]
    sums = [_sums(one, np.asarray(rows, int)) for one, rows in zip(values, alarms, strict=True)]
    return _scaled(np.sum(sums, axis=0), sum(one.n_windows for one in values), profile)


def best_score(series: Sequence[Series], scores: Sequence[np.ndarray], profile: Profile = PROFILES["standard"]) -> Best:
    """Return the highest score with one threshold for all series, if each row at or above it is an alarm.

    Every threshold is tried, as by NAB. NaN is never an alarm.
    """
    values = [row_values(one) for one in series]
    thresholds, gains = zip(*(_gains(one, s[one.first :]) for one, s in zip(values, scores, strict=True)), strict=True)
    all_thresholds = np.concatenate(thresholds)
    order = np.argsort(-all_thresholds, kind="stable")
    sums = np.cumsum(np.concatenate(gains)[order], axis=0)
    is_last = np.append(np.diff(all_thresholds[order]) != 0.0, True)[
        : order.size
    ]  # rows with equal scores become alarms together
    tried = [(np.inf, np.zeros(3)), *zip(all_thresholds[order][is_last], sums[is_last], strict=True)]
    n_windows = sum(one.n_windows for one in values)
    return max(Best(_scaled(one, n_windows, profile), float(threshold)) for threshold, one in tried)


def best_limited_scores(series: Sequence[Series], scores: Sequence[np.ndarray], min_distance: int) -> dict[str, Best]:
    """Return the highest score for each profile if there is at most one alarm in `min_distance` rows.

    The thresholds tried are the N_EXACT highest scores of all series, then scores whose rank grows by RANK_STEP: the
    result may lie a little below that of the very best threshold.
    """
    values = [row_values(one) for one in series]
    scored = [s[one.first :] for one, s in zip(values, scores, strict=True)]
    n_windows = sum(one.n_windows for one in values)
    best = dict.fromkeys(PROFILES, Best(0.0, np.inf))
    for threshold in _thresholds(np.concatenate(scored)):
        sums = np.zeros(3)
        for one, s in zip(values, scored, strict=True):
            sums += _sums(one, one.first + limited(np.flatnonzero(s >= threshold), min_distance))
        for name, profile in PROFILES.items():
            best[name] = max(best[name], Best(_scaled(sums, n_windows, profile), float(threshold)))
    return best


def limited(alarms: np.ndarray, min_distance: int) -> np.ndarray:
    """Drop alarms less than `min_distance` rows after the last alarm that was kept; return the others.

    Examples
    --------
    >>> limited(np.array([3, 4, 12, 13, 30]), 10)
    array([ 3, 13, 30])
    """
    kept, next_row = [], 0
    while (k := int(np.searchsorted(alarms, next_row))) < len(alarms):
        kept.append(int(alarms[k]))
        next_row = kept[-1] + min_distance
    return np.array(kept, int)


def _sums(values: RowValues, alarms: np.ndarray) -> np.ndarray:
    """Return the sum of the values of found windows, their number, and the (negative) sum of values of false alarms."""
    alarms = np.unique(alarms[alarms >= values.first]) - values.first
    window, value = values.window[alarms], values.value[alarms]
    found, firsts = np.unique(window, return_index=True)
    firsts = firsts[found >= 0]
    return np.array([value[firsts].sum(), firsts.size, value[window < 0].sum()])


def _gains(values: RowValues, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the scores in falling order, and what each row adds to the sums when the threshold falls to its score."""
    order = np.argsort(-np.where(np.isnan(scores), -np.inf, scores), kind="stable")
    order = order[~np.isnan(scores[order])]
    window, value = values.window[order], values.value[order]
    gains = np.zeros((order.size, 3))
    gains[window < 0, 2] = value[window < 0]
    for number in range(values.n_windows):
        rows = np.flatnonzero(window == number)
        if rows.size:
            highest = np.maximum.accumulate(value[rows])  # the earliest alarm so far has the highest value
            gains[rows, 0] = np.diff(highest, prepend=0.0)
            gains[rows[0], 1] = 1.0
    return scores[order], gains


def _scaled(sums: np.ndarray, n_windows: int, profile: Profile) -> float:
    """Return the score of the sums, so that silence has 0 and the perfect detector 100."""
    if n_windows == 0:
        raise ValueError("the score of NAB needs at least one labelled window.")
    found, n_found, false = sums
    total = profile.found * found - profile.missed * (n_windows - n_found) + profile.false * false
    silence, perfect = -profile.missed * n_windows, profile.found * n_windows
    return float(100.0 * (total - silence) / (perfect - silence))


def _thresholds(scores: np.ndarray) -> np.ndarray:
    """Return the thresholds that are tried."""
    falling = -np.sort(-scores[~np.isnan(scores)])
    n_steps = int(np.log(max(falling.size / N_EXACT, 1.0)) / np.log(RANK_STEP))
    ranks = np.append(np.arange(N_EXACT), N_EXACT * RANK_STEP ** np.arange(1, n_steps + 1)).astype(int)
    return np.unique(falling[ranks[ranks < falling.size]])
