"""Time series: our detectors on several views of a series and the peers, in one run: `make series`.

One setting for all series. Three tables:

1. NAB, 25 series: its score (see nab_score.py) with one threshold for all series, if every row above the threshold is
   an alarm, and if there is at most one alarm in 150 rows; the rows per second that a detector scores and learns.
2. Incidents at the default threshold of our detectors, on the same series.
3. SKAB, 20 files of 8 sensors: a detector learns the first 400 rows of a file and then scores the rest, without
   learning or with. F1, false and missed alarms are those of all rows of all files, as in SKAB's own table, with alarms
   above the highest score of rows 100 to 399, and for our detectors also above the threshold for p = 0.001. AUC: rows
   from 400 on, the mean over the files. In these files "alarms from row 400 on" has an F1 of 0.70, because more than
   half of the rows from 400 on are labelled: F1 has to be read together with the false alarms.

The data are in the folder named by IMONDRIAN_DATA. Peers that are not installed are named and left out.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from sklearn.metrics import roc_auc_score

from imondrian.incidents import IncidentRules, IncidentTracker, LabelledRows
from imondrian.thresholds import StreamingThreshold
from nab_score import PROFILES, best_limited_scores, best_score, n_unscored
from peers import why_missing
from series_data import Series, nab_series, skab_series
from series_detectors import BATCH_PEERS, OURS, SETTINGS, STREAM_PEERS, SeriesDetector

HERE = Path(__file__).parent
MIN_DISTANCE = 150  # rows between alarms, where they are limited
WARM_UP = 256  # rows without alarms, for incidents
PROBABILITY, LEVEL = 0.001, 3.0
N_LEARNED, N_UNCALIBRATED = 400, 100  # SKAB: rows learned, and first rows whose scores are not used for the threshold
T2_FACTOR, T2_PROBABILITY, T2_ROWS = 2.0, 0.999, 5  # SKAB's notebook for T-squared
IFOREST_SHARE, IFOREST_ROWS = 0.0005, 3  # SKAB's notebook for the isolation forest
Factory = Callable[[int], SeriesDetector]


def main() -> None:
    """Run the chosen parts, print their tables as Markdown, and write the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="*", choices=[*PARTS, []], help="default: all parts")
    figures = {part: PARTS[part]() for part in parser.parse_args().part or PARTS}
    target = HERE / "results" / "series.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(figures, indent=1))
    print(f"\nwritten to {target}")


def detectors() -> dict[str, Factory]:
    """Return ours and the peers that are installed; name the others."""
    peers = {name: factory for name, (package, factory) in STREAM_PEERS.items() if is_installed(package)}
    return OURS | peers


def is_installed(package: str | None) -> bool:
    """Return True if a peer can be imported; otherwise say why not, once."""
    if package is not None and (reason := why_missing(package)) is not None:
        report(f"left out: {reason}")
        return False
    return True


def report(text: str) -> None:
    """Print the progress."""
    print(f"{datetime.now(UTC):%H:%M:%S} {text}", file=sys.stderr, flush=True)


def columns_of(series: Series) -> np.ndarray:
    """Return the values of a series as a table."""
    return series.values.reshape(len(series.values), -1)


def seconds_of(series: Series) -> np.ndarray:
    """Return the times of a series in seconds."""
    times = (datetime.strptime(time, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC) for time in series.times)
    return np.array([time.timestamp() for time in times])


def print_row(*cells: str) -> None:
    """Print a row of a table."""
    print(f"| {' | '.join(cells)} |", flush=True)


def print_head(*names: str) -> None:
    """Print the head of a table."""
    print()
    print_row(*names)
    print_row(*["---"] * len(names))


# -- NAB --------------------------------------------------------------------------------------------------------------


class Run(NamedTuple):
    """The scores of a detector on all series of NAB."""

    scores: list[np.ndarray]
    seconds: float


def run_on_nab(name: str, factory: Factory, series: Sequence[Series]) -> Run:
    """Score every row of every series, each with a new detector."""
    report(f"NAB: {name}")
    prepared = [(seconds_of(one), columns_of(one)) for one in series]
    warm = factory(1)
    warm.process(prepared[0][0][:300], prepared[0][1][:300])  # compiles kernels
    start = perf_counter()
    scores = [factory(1).process(seconds, X) for seconds, X in prepared]
    return Run(scores, perf_counter() - start)


def compare_on_nab() -> dict[str, Any]:
    """Print and return the scores of NAB, then the incidents of ours."""
    series = list(nab_series())
    n_rows = sum(len(one.values) for one in series)
    found: dict[str, Any] = {}
    limits = ("every row", f"one in {MIN_DISTANCE} rows")
    print_head("NAB", *(f"{limit}: {profile}" for limit in limits for profile in PROFILES), "rows per second")
    runs = {}
    for name, factory in detectors().items():
        runs[name] = run = run_on_nab(name, factory, series)
        every = {profile: best_score(series, run.scores, values)._asdict() for profile, values in PROFILES.items()}
        one = {
            profile: best._asdict() for profile, best in best_limited_scores(series, run.scores, MIN_DISTANCE).items()
        }
        found[name] = {"every row": every, "limited": one, "rows per second": n_rows / run.seconds}
        figures = [*every.values(), *one.values()]
        print_row(name, *(f"{best['score']:.1f}" for best in figures), f"{n_rows / run.seconds:,.0f}")
    found["incidents"] = compare_incidents(series, {name: runs[name].scores for name in OURS})
    return found


# -- incidents --------------------------------------------------------------------------------------------------------


class Incidents(NamedTuple):
    """Incidents on one series."""

    n_windows: int
    delays: list[float]  # of the first incident in each window found, in widths of the window
    n_false: int


def compare_incidents(series: Sequence[Series], runs: dict[str, list[np.ndarray]]) -> dict[str, Any]:
    """Print and return the incidents at the default threshold."""
    n_windows = sum(len(one.windows) for one in series)
    names = ("incidents, p = 0.001", f"windows found of {n_windows}", "false incidents", "in series without anomalies")
    print_head(*names, "rows of a false incident", "median delay, widths of the window", "F1")
    found: dict[str, Any] = {}
    n_rows = sum(len(one.values) for one in series)
    for name, scores in runs.items():
        results = {
            one.name: incidents_in(one, opened_rows(values, SETTINGS[name]["window"]))
            for one, values in zip(series, scores, strict=True)
        }
        found[name] = {key: value._asdict() for key, value in results.items()}
        delays = [delay for one in results.values() for delay in one.delays]
        n_false = sum(one.n_false for one in results.values())
        n_clean = sum(one.n_false for one in results.values() if not one.n_windows)
        f1 = 2.0 * len(delays) / (len(delays) + n_false + n_windows)
        rows = f"{n_rows / max(n_false, 1):,.0f}"
        print_row(name, str(len(delays)), str(n_false), str(n_clean), rows, f"{np.median(delays):.2f}", f"{f1:.2f}")
    return found


def opened_rows(scores: np.ndarray, window: int) -> list[int]:
    """Return the rows in which incidents open, by the default rules and threshold."""
    threshold, tracker = StreamingThreshold(PROBABILITY, max(window // 2, 1)), IncidentTracker(IncidentRules())
    first = WARM_UP // 2
    _, surprise = threshold.observe(scores[first:])
    is_alarm = (surprise > LEVEL) & (np.arange(surprise.size) >= WARM_UP - first)
    rows = LabelledRows(first, is_alarm, scores[first:], surprise)
    _, events = tracker.observe(rows, LEVEL, None, lambda _: ())
    return [event.index for event in events if event.incident.is_open]


def incidents_in(series: Series, opened: list[int]) -> Incidents:
    """Compare incidents with the labelled windows; those that open in rows that NAB does not score are ignored."""
    scored = np.array([row for row in opened if row >= n_unscored(len(series.values))], int)
    delays = []
    for first, last in series.windows:
        inside = scored[(scored >= first) & (scored <= last)]
        if inside.size:
            delays.append(float((inside[0] - first) / (last - first + 1)))
    return Incidents(len(series.windows), delays, int((~series.is_in_window[scored]).sum()))


# -- SKAB -------------------------------------------------------------------------------------------------------------


class Rates(NamedTuple):
    """F1, and the shares of false and missed alarms, of all rows of all files."""

    f1: float
    false: float
    missed: float

    def __str__(self) -> str:
        return f"{self.f1:.2f} ({100.0 * self.false:.0f} %, {100.0 * self.missed:.0f} %)"


def rates(series: Sequence[Series], is_alarm: Sequence[np.ndarray]) -> Rates:
    """Return the rates of alarms, one array for each file."""
    alarm, label = np.concatenate(is_alarm), np.concatenate([one.is_in_window for one in series])
    n_found, n_false, n_missed = (alarm & label).sum(), (alarm & ~label).sum(), (~alarm & label).sum()
    f1 = 2.0 * n_found / max(2.0 * n_found + n_false + n_missed, 1.0)
    return Rates(float(f1), float(n_false / (~label).sum()), float(n_missed / label.sum()))


def after_learning(is_alarm: np.ndarray) -> np.ndarray:
    """Return the alarms without those in the rows that are learned first."""
    return is_alarm & (np.arange(is_alarm.size) >= N_LEARNED)


def above_highest(scores: np.ndarray) -> np.ndarray:
    """Return which rows score higher than all rows that were learned, except the first ones."""
    return after_learning(scores > scores[N_UNCALIBRATED:N_LEARNED].max())


def surprising(scores: np.ndarray, window: int, *, goes_on: bool) -> np.ndarray:
    """Return which rows are alarms at the default threshold; `goes_on`: later scores change the threshold."""
    threshold = StreamingThreshold(PROBABILITY, max(window // 2, 1))
    threshold.observe(scores[N_UNCALIBRATED:N_LEARNED])
    later = scores[N_LEARNED:]
    surprise = threshold.observe(later)[1] if goes_on else threshold.surprise(later)
    return np.append(np.zeros(N_LEARNED, bool), surprise > LEVEL)


def mean_auc(series: Sequence[Series], scores: Sequence[np.ndarray]) -> float:
    """Return the mean AUC of the rows that are not learned first."""
    pairs = zip(series, scores, strict=True)
    return float(np.mean([roc_auc_score(one.is_in_window[N_LEARNED:], s[N_LEARNED:]) for one, s in pairs]))


def scores_on(series: Series, factory: Factory) -> tuple[np.ndarray, np.ndarray]:
    """Return the scores of a detector that learns the first rows only, and of one that goes on learning."""
    seconds, X = seconds_of(series), columns_of(series)
    fixed, going_on = factory(X.shape[1]), factory(X.shape[1])
    first = fixed.process(seconds[:N_LEARNED], X[:N_LEARNED])
    return np.append(first, fixed.predict(seconds[N_LEARNED:], X[N_LEARNED:])), going_on.process(seconds, X)


def compare_on_skab() -> dict[str, Any]:
    """Print and return AUC, F1, false and missed alarms on SKAB."""
    series = list(skab_series())
    modes = ("learns 400 rows", "goes on learning")
    kinds = ("AUC", "F1 (false, missed)", "F1 with p = 0.001")
    print_head("SKAB", *(f"{mode}: {kind}" for mode in modes for kind in kinds))
    found: dict[str, Any] = {}
    for name, factory in detectors().items():
        report(f"SKAB: {name}")
        found[name] = {}
        both = zip(*(scores_on(one, factory) for one in series), strict=True)
        for mode, scores, goes_on in zip(modes, both, (False, True), strict=True):
            figures: dict[str, Any] = {"AUC": mean_auc(series, scores)}
            figures["highest"] = rates(series, [above_highest(s) for s in scores])
            if name in OURS:
                window = SETTINGS[name]["window"]
                figures["p"] = rates(series, [surprising(s, window, goes_on=goes_on) for s in scores])
            found[name][mode] = figures
        cells = ((f"{one['AUC']:.3f}", str(one["highest"]), str(one.get("p", ""))) for one in found[name].values())
        print_row(name, *(cell for one in cells for cell in one))
    for name, figures in batch_figures(series):
        found[name] = {modes[0]: figures}
        auc = f"{figures['AUC']:.3f}" if "AUC" in figures else ""
        print_row(name, auc, str(figures["highest"]), "", "", "", "")
    return found


def batch_figures(series: Sequence[Series]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the figures of detectors that only learn the first rows, and of alarms that look at no value."""
    for name, score in BATCH_PEERS.items():
        report(f"SKAB: {name}")
        scores = [score(columns_of(one)[:N_LEARNED], columns_of(one)) for one in series]
        yield name, {"AUC": mean_auc(series, scores), "highest": rates(series, [above_highest(s) for s in scores])}
        alarms = [AS_IN_SKAB[name](s) for s in scores]
        yield f"{name}, threshold of SKAB", {"highest": rates(series, alarms)}
    yield (
        "alarms from row 400 on",
        {"highest": rates(series, [after_learning(np.ones(len(one.values), bool)) for one in series])},
    )
    yield "alarms in all rows", {"highest": rates(series, [np.ones(len(one.values), bool) for one in series])}


def last_median(values: np.ndarray, n_rows: int) -> np.ndarray:
    """Return the median of the last rows; NaN where there are fewer."""
    medians = np.median(np.lib.stride_tricks.sliding_window_view(values, n_rows), axis=1)
    return np.append(np.full(n_rows - 1, np.nan), medians)


def t_squared_alarms(scores: np.ndarray) -> np.ndarray:
    """Return the alarms as in SKAB's notebook: a smoothed score above twice the limit for p = 0.001."""
    from scipy.stats import f as f_distribution

    n, d = N_LEARNED, 8
    limit = d * (n - 1) * (n + 1) / (n * (n - d)) * f_distribution.ppf(T2_PROBABILITY, d, n - d)
    return last_median(scores, T2_ROWS) > T2_FACTOR * limit


def isolation_forest_alarms(scores: np.ndarray) -> np.ndarray:
    """Return the alarms as in SKAB's notebook: the highest 0.05 % of the rows learned, smoothed."""
    is_above = scores > np.quantile(scores[:N_LEARNED], 1.0 - IFOREST_SHARE)
    return last_median(is_above.astype(float), IFOREST_ROWS) > 0.5


AS_IN_SKAB = {"scikit-learn, isolation forest": isolation_forest_alarms, "T-squared": t_squared_alarms}

PARTS: dict[str, Callable[[], dict[str, Any]]] = {"nab": compare_on_nab, "skab": compare_on_skab}

if __name__ == "__main__":
    main()
