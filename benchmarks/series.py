"""Time series: compare our detectors, on several views of a series, with the peers in one run: `make series`.

One setting for all series; figures are means over seeds. Four tables:

1. NAB, 25 series: its score (see nab_score.py) with one threshold for all series, if every row above the threshold is
   an alarm, and if there is at most one alarm in 150 rows; the rows per second that a detector scores and learns.
2. Incidents at the default threshold of our detectors, on the same series (seed 0).
3. SKAB, 20 files of 8 sensors: a detector learns the first 400 rows of a file and then scores the rest, with or
   without learning them. F1 and the shares of false and missed alarms are computed over all rows of all files, as in
   SKAB's own table. A row is an alarm if its score is above the highest score of rows 100 to 399; for our detectors,
   there are also figures with the threshold for p = 0.001. AUC is that of the rows from 400 on, averaged over the
   files. In these files "alarms from row 400 on" has an F1 of 0.70, because more than half of the rows from 400 on are
   labelled. So read F1 together with the false alarms.
4. Incidents of our detectors on SKAB, if they go on learning (seed 0); also on its file without anomalies.

The data are in the folder named by IMONDRIAN_DATA. Peers that are not installed are named and left out.
Usage: python benchmarks/series.py [--seeds 3] [nab] [skab]
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

from imondrian.alarms.incidents import IncidentRules, IncidentTracker, LabelledRows
from imondrian.alarms.thresholds import StreamingThreshold
from nab_score import PROFILES, best_limited_scores, best_score, n_unscored
from peers import why_missing
from series_data import Series, nab_series, skab_series
from series_detectors import BATCH_PEERS, OURS, STREAM_PEERS, Contestant

HERE = Path(__file__).parent
MIN_DISTANCE = 150  # smallest distance in rows between two alarms, in the figures with limited alarms
WARM_UP = 256  # rows without alarms, for incidents
N_COMPILED = 300  # rows that a detector processes before it is timed, to compile its kernels
PROBABILITY, LEVEL = 0.001, 3.0  # the default threshold, and its surprise
MODES = ("learns 400 rows", "goes on learning")
N_LEARNED, N_UNCALIBRATED = 400, 100  # SKAB: rows learned, and first rows whose scores are not used for the threshold
T2_FACTOR, T2_PROBABILITY, T2_ROWS = 2.0, 0.999, 5  # SKAB's notebook for T-squared
IFOREST_SHARE, IFOREST_ROWS = 0.0005, 3  # SKAB's notebook for the isolation forest


def main() -> None:
    """Run the chosen parts, print their tables as Markdown, and write the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="*", choices=[*PARTS, []], help="default: all parts")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds (default: 3)")
    options = parser.parse_args()
    figures = {part: PARTS[part](range(options.seeds)) for part in options.part or PARTS}
    target = HERE / "results" / "series.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(figures, indent=1))
    print(f"\nwritten to {target}")


def contestants() -> dict[str, Contestant]:
    """Return ours and the peers that are installed; report why the others are left out."""
    return OURS | {name: peer for name, peer in STREAM_PEERS.items() if is_installed(peer.package)}


def is_installed(package: str | None) -> bool:
    """Return True if a peer can be imported; otherwise report the reason."""
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


def run_on_nab(name: str, contestant: Contestant, seed: int, series: Sequence[Series]) -> Run:
    """Score every row of every series, each with a new detector."""
    report(f"NAB: {name}, seed {seed}")
    prepared = [(seconds_of(one), columns_of(one)) for one in series]
    contestant.make(1, seed).process(prepared[0][0][:N_COMPILED], prepared[0][1][:N_COMPILED])
    start = perf_counter()
    scores = [contestant.make(1, seed).process(seconds, X) for seconds, X in prepared]
    return Run(scores, perf_counter() - start)


def nab_figures(run: Run, series: Sequence[Series]) -> dict[str, Any]:
    """Return the scores of NAB for every profile, and the rows per second."""
    every = {profile: best_score(series, run.scores, values).score for profile, values in PROFILES.items()}
    limited = best_limited_scores(series, run.scores, MIN_DISTANCE)
    speed = sum(len(one.values) for one in series) / run.seconds
    return {"every row": every, "limited": {name: best.score for name, best in limited.items()}, "speed": speed}


def compare_on_nab(seeds: Sequence[int]) -> dict[str, Any]:
    """Print and return the scores of NAB, then the incidents of ours."""
    series = list(nab_series())
    limits = ("every row", f"one in {MIN_DISTANCE} rows")
    print_head("NAB", *(f"{limit}: {profile}" for limit in limits for profile in PROFILES), "rows per second")
    found: dict[str, Any] = {}
    first_runs: dict[str, list[np.ndarray]] = {}
    for name, contestant in contestants().items():
        found[name] = []
        for seed in seeds:
            run = run_on_nab(name, contestant, seed, series)
            first_runs.setdefault(name, run.scores)
            found[name].append(nab_figures(run, series))
        cells = [spread([one[limit][p] for one in found[name]]) for limit in ("every row", "limited") for p in PROFILES]
        print_row(name, *cells, f"{np.median([one['speed'] for one in found[name]]):,.0f}")
    ours = {name: first_runs[name] for name in OURS}
    found["incidents"] = compare_incidents("NAB", series, ours, WARM_UP)
    return found


def spread(values: list[float]) -> str:
    """Return the mean, with the lowest and the highest value if they differ."""
    low, mean, high = min(values), sum(values) / len(values), max(values)
    return f"{mean:.1f} ({low:.1f} - {high:.1f})" if low < high else f"{mean:.1f}"


# -- incidents --------------------------------------------------------------------------------------------------------


class Incidents(NamedTuple):
    """Incidents on one series."""

    n_windows: int
    delays: list[float]  # of the first incident in each window found, as a fraction of the width of the window
    n_false: int


def compare_incidents(
    data: str, series: Sequence[Series], runs: dict[str, list[np.ndarray]], warm_up: int
) -> dict[str, Any]:
    """Print and return the incidents at the default threshold, for the scores of each detector on each series."""
    n_windows, n_rows = sum(len(one.windows) for one in series), sum(len(one.values) for one in series)
    names = (f"windows found of {n_windows}", "false incidents", "in series without anomalies")
    print_head(f"incidents on {data}", *names, "rows per false incident", "median delay, widths of the window", "F1")
    found: dict[str, Any] = {}
    for name, scores in runs.items():
        opened = [opened_rows(values, OURS[name].window, warm_up) for values in scores]
        results = [incidents_in(one, rows) for one, rows in zip(series, opened, strict=True)]
        found[name] = {one.name: result._asdict() for one, result in zip(series, results, strict=True)}
        delays = [delay for one in results for delay in one.delays]
        n_false, n_clean = sum(one.n_false for one in results), sum(one.n_false for one in results if not one.n_windows)
        f1 = 2.0 * len(delays) / (len(delays) + n_false + n_windows)
        delay = f"{np.median(delays):.2f}" if delays else ""
        counts = (str(len(delays)), str(n_false), str(n_clean), f"{n_rows / max(n_false, 1):,.0f}")
        print_row(name, *counts, delay, f"{f1:.2f}")
    return found


def opened_rows(scores: np.ndarray, window: int, warm_up: int) -> list[int]:
    """Return the rows in which incidents open, by the default rules and threshold."""
    threshold, tracker = StreamingThreshold(PROBABILITY, window // 2), IncidentTracker(IncidentRules())
    first = warm_up // 2  # like a detector: earlier scores do not count
    _, surprise = threshold.observe(scores[first:])
    is_alarm = (surprise > LEVEL) & (np.arange(surprise.size) >= warm_up - first)
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
    """Return which rows score higher than every learned row from N_UNCALIBRATED on."""
    return after_learning(scores > scores[N_UNCALIBRATED:N_LEARNED].max())


def surprising(scores: np.ndarray, window: int, *, goes_on: bool) -> np.ndarray:
    """Return which rows are alarms at the default threshold; if `goes_on`, later scores change the threshold."""
    threshold = StreamingThreshold(PROBABILITY, window // 2)
    threshold.observe(scores[N_UNCALIBRATED:N_LEARNED])
    later = scores[N_LEARNED:]
    surprise = threshold.observe(later)[1] if goes_on else threshold.surprise(later)
    return np.append(np.zeros(N_LEARNED, bool), surprise > LEVEL)


def mean_auc(series: Sequence[Series], scores: Sequence[np.ndarray]) -> float:
    """Return the mean AUC of the rows that are not learned first."""
    pairs = zip(series, scores, strict=True)
    return float(np.mean([roc_auc_score(one.is_in_window[N_LEARNED:], s[N_LEARNED:]) for one, s in pairs]))


def scores_on(series: Series, contestant: Contestant, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the scores of a detector that learns the first rows only, and of one that goes on learning."""
    seconds, X = seconds_of(series), columns_of(series)
    fixed, going_on = contestant.make(X.shape[1], seed), contestant.make(X.shape[1], seed)
    first = fixed.process(seconds[:N_LEARNED], X[:N_LEARNED])
    return np.append(first, fixed.predict(seconds[N_LEARNED:], X[N_LEARNED:])), going_on.process(seconds, X)


def skab_figures(
    series: Sequence[Series], scores: Sequence[np.ndarray], window: int, *, goes_on: bool
) -> dict[str, Any]:
    """Return AUC and rates; `window` is the number of rows that our detectors remember, 0 for peers."""
    figures = {"AUC": mean_auc(series, scores), "highest": rates(series, [above_highest(s) for s in scores])}
    if window:
        figures["p"] = rates(series, [surprising(s, window, goes_on=goes_on) for s in scores])
    return figures


def compare_on_skab(seeds: Sequence[int]) -> dict[str, Any]:
    """Print and return AUC, F1, false and missed alarms on SKAB, then the incidents of ours."""
    series = list(skab_series())
    kinds = ("AUC", "F1 (false, missed)", "F1 with p = 0.001")
    print_head("SKAB", *(f"{mode}: {kind}" for mode in MODES for kind in kinds))
    found: dict[str, Any] = {}
    first_runs: dict[str, Sequence[np.ndarray]] = {}
    for name, contestant in contestants().items():
        found[name] = {mode: [] for mode in MODES}
        for seed in seeds:
            report(f"SKAB: {name}, seed {seed}")
            both = list(zip(*(scores_on(one, contestant, seed) for one in series), strict=True))
            first_runs.setdefault(name, both[1])
            for mode, scores in zip(MODES, both, strict=True):
                found[name][mode].append(skab_figures(series, scores, contestant.window, goes_on=mode == MODES[1]))
        print_row(name, *(cell for mode in MODES for cell in skab_cells(found[name][mode])))
    for name, figures in batch_figures(series):
        found[name] = {MODES[0]: [figures]}
        print_row(name, *skab_cells([figures]), "", "", "")
    found["incidents"] = skab_incidents(series, {name: list(first_runs[name]) for name in OURS})
    return found


def skab_cells(figures: list[dict[str, Any]]) -> list[str]:
    """Return the cells of a table, the means over the seeds; empty if a figure is missing."""
    auc = f"{np.mean([one['AUC'] for one in figures]):.3f}" if "AUC" in figures[0] else ""
    kinds = ("highest", "p")
    means = [Rates(*np.mean([one[kind] for one in figures], axis=0)) if kind in figures[0] else "" for kind in kinds]
    return [auc, *(str(mean) for mean in means)]


def skab_incidents(series: Sequence[Series], runs: dict[str, list[np.ndarray]]) -> dict[str, Any]:
    """Print and return the incidents on the files of SKAB, including the one without anomalies."""
    normal = list(skab_series("anomaly-free"))
    for name, scores in runs.items():
        report(f"SKAB without anomalies: {name}")
        for one in normal:
            scores.append(OURS[name].make(columns_of(one).shape[1], 0).process(seconds_of(one), columns_of(one)))
    return compare_incidents("SKAB", [*series, *normal], runs, N_LEARNED)


def batch_figures(series: Sequence[Series]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the figures of detectors that only learn the first rows, and of alarms that ignore the values."""
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
    """Return the median of each row and the n_rows - 1 rows before it; NaN where there are fewer rows."""
    medians = np.median(np.lib.stride_tricks.sliding_window_view(values, n_rows), axis=1)
    return np.append(np.full(n_rows - 1, np.nan), medians)


def t_squared_alarms(scores: np.ndarray) -> np.ndarray:
    """Return the alarms as in SKAB's notebook: a smoothed score above twice the limit for p = 0.001."""
    from scipy.stats import f as f_distribution

    n, d = N_LEARNED, 8
    limit = d * (n - 1) * (n + 1) / (n * (n - d)) * f_distribution.ppf(T2_PROBABILITY, d, n - d)
    return last_median(scores, T2_ROWS) > T2_FACTOR * limit


def isolation_forest_alarms(scores: np.ndarray) -> np.ndarray:
    """Return the alarms as in SKAB's notebook: scores above those of 99.95 % of the learned rows, smoothed."""
    is_above = scores > np.quantile(scores[:N_LEARNED], 1.0 - IFOREST_SHARE)
    return last_median(is_above.astype(float), IFOREST_ROWS) > 0.5


AS_IN_SKAB = {"scikit-learn, isolation forest": isolation_forest_alarms, "T-squared": t_squared_alarms}

PARTS: dict[str, Callable[[Sequence[int]], dict[str, Any]]] = {"nab": compare_on_nab, "skab": compare_on_skab}

if __name__ == "__main__":
    main()
