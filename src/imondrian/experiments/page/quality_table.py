"""The section on quality over all open data sets."""

from collections import defaultdict
from collections.abc import Sequence
from statistics import mean, stdev
from typing import NamedTuple

from imondrian.datasets import CATALOGUE
from imondrian.experiments.methods import QUALITY
from imondrian.experiments.page.comparison_table import method_title
from imondrian.experiments.page.markdown import table
from imondrian.experiments.quality import MIN_ANOMALIES, MODES
from imondrian.experiments.repeats import Row
from imondrian.experiments.result_records import Record

_MEASURES = {"auc": "AUC", "average_precision": "average precision"}
_REFERENCE = "iforest"  # the method that the others are compared with, set by set


class MeanOnSet(NamedTuple):
    """The mean result of a method on a set, and the number of seeds."""

    value: float
    n_seeds: int


ResultsByMethod = dict[tuple[str, str, str], dict[str, MeanOnSet]]  # by method, mode and measure, then by set


def quality_section(record: Record) -> str:
    """Return the section with the means over all sets and the AUC on each set."""
    settings, results, methods = record.metadata["settings"], _mean_results(record.rows), _methods(record.rows)
    sets = list(dict.fromkeys(row["set"] for row in record.rows))
    each = "\n\n".join(
        f"**AUC, {mode}, on each set**\n\n{_by_set(results, methods, mode, sets, settings['seeds'])}" for mode in MODES
    )
    return f"""## Beyond the paper: quality over open sets

Sets: {len(sets)}; seeds: {settings["seeds"]}. From sets with more than {settings["most_rows"]:,} rows, a sample of that
size is drawn for each seed, with the set's share of anomalies, but at least {MIN_ANOMALIES} anomalies. In *batch* mode,
a method is fitted on all rows, which are then scored. In *novelty* mode, it is fitted on half of the inliers; the other
half and all anomalies are scored. Our forests have 100 trees, psi = 256 and `scale="std"`; iMForest as in the paper is
unscaled. For LOF, kNN, SVM, ECOD, HBOS and INNE, features are standardised. LOF and kNN have k = 10, the
SVM has gamma = 1/d for d features, and the others have their defaults.

These sets were also used to choose the score `size` and the scale, an advantage that our forests would not have on new
data. PyOD's ECOD includes the rows being scored in its estimate, also in novelty mode.{_shared_rows(sets)}

![Mean AUC of each method and its AUC on each set](reproduction/quality.png)

**Means over the sets, %** (± standard error of the difference from iForest over the sets)

{_means(results, methods)}

{each}

**†n** marks a method that was too slow for the budget and has only n seeds."""


def leaders_line(record: Record) -> str:
    """Return one line with the best method of each mode."""
    results, methods = _mean_results(record.rows), _methods(record.rows)
    n_sets = len({row["set"] for row in record.rows})
    leaders = []
    for mode in MODES:
        means = {name: _mean(results[name, mode, "auc"]) for name in methods}
        best = max(means, key=lambda name: means[name])
        leaders.append(f"{method_title(QUALITY[best])} in {mode} mode ({means[best]:.1f})")
    return f"Quality over {n_sets} open sets, best mean AUC: {' and '.join(leaders)}."


def _shared_rows(sets: Sequence[str]) -> str:
    """Return a sentence that names the sets with rows in common, or an empty string."""
    groups = [
        f"{name} with {' and '.join(others)}"
        for name in sets
        if (others := [other for other in CATALOGUE[name].shares_rows_with if other in sets and other > name])
    ]
    return f"\nSome sets share rows: {', '.join(groups)}." if groups else ""


def _means(results: ResultsByMethod, methods: Sequence[str]) -> str:
    columns = [(mode, measure) for measure in _MEASURES for mode in MODES]
    lines = [
        [method_title(QUALITY[name]), *(_mean_text(results, name, mode, measure) for mode, measure in columns)]
        for name in methods
    ]
    return table(["", *(f"{_MEASURES[measure]}, {mode}" for mode, measure in columns)], lines)


def _mean_text(results: ResultsByMethod, name: str, mode: str, measure: str) -> str:
    values, reference = results[name, mode, measure], results.get((_REFERENCE, mode, measure), {})
    gains = [result.value - reference[key].value for key, result in values.items() if key in reference]
    error = f" ± {stdev(gains) / len(gains) ** 0.5:.1f}" if name != _REFERENCE and len(gains) > 1 else ""
    return f"{_mean(values):.1f}{error}"


def _mean(values: dict[str, MeanOnSet]) -> float:
    return mean(result.value for result in values.values())


def _by_set(results: ResultsByMethod, methods: Sequence[str], mode: str, sets: Sequence[str], n_seeds: int) -> str:
    lines = [[name, *(_cell(results[method, mode, "auc"][name], n_seeds) for method in methods)] for name in sets]
    return table(["", *(method_title(QUALITY[method]) for method in methods)], lines)


def _cell(result: MeanOnSet, n_seeds: int) -> str:
    return f"{result.value:.1f}" + (f" †{result.n_seeds}" if result.n_seeds < n_seeds else "")


def _methods(rows: Sequence[Row]) -> list[str]:
    measured = {row["method"] for row in rows}
    return [name for name in QUALITY if name in measured]


def _mean_results(rows: Sequence[Row]) -> ResultsByMethod:
    values: dict[tuple[str, str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        for measure in _MEASURES:
            values[row["method"], row["mode"], measure][row["set"]].append(row[measure])
    return {
        key: {name: MeanOnSet(mean(numbers), len(numbers)) for name, numbers in by_set.items()}
        for key, by_set in values.items()
    }
