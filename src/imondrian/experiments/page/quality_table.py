"""The section on quality over all open sets."""

from collections import defaultdict
from collections.abc import Sequence
from statistics import mean, stdev
from typing import NamedTuple

from imondrian.datasets import CATALOGUE
from imondrian.experiments.methods import QUALITY
from imondrian.experiments.page.comparison_table import method_title
from imondrian.experiments.page.markdown import table
from imondrian.experiments.quality import FEWEST_ANOMALIES, MODES
from imondrian.experiments.repeats import Row
from imondrian.experiments.result_records import Record

_MEASURES = {"auc": "AUC", "average_precision": "average precision"}
_REFERENCE = "iforest"  # that others are held against, set by set


class Standing(NamedTuple):
    """The mean of a method over the seeds on a set, and of how many seeds."""

    value: float
    n_seeds: int


Standings = dict[tuple[str, str, str], dict[str, Standing]]  # by method, mode and measure, then by set


def quality_section(record: Record) -> str:
    """Lay out the means over all sets, and the AUC on each."""
    settings, standings, methods = record.circumstances["settings"], _standings(record.rows), _methods(record.rows)
    sets = list(dict.fromkeys(row["set"] for row in record.rows))
    each = "\n\n".join(
        f"**AUC, {mode}, on each set**\n\n{_by_set(standings, methods, mode, sets, settings['seeds'])}"
        for mode in MODES
    )
    return f"""## Beyond the paper: quality over open sets

Sets: {len(sets)}; seeds: {settings["seeds"]}. Of sets larger than {settings["most_rows"]:,} rows, so many are drawn for
each seed, with the set's share of anomalies but at least {FEWEST_ANOMALIES} of them. *Batch*: fitted on all rows, which
are scored. *Novelty*: fitted on half of the inliers; the other half and all anomalies are scored. Forests of ours have
100 trees, psi = 256 and `scale="std"`, except where it says *as in the paper*; for LOF, kNN, SVM, ECOD, HBOS and INNE
features are standardised; LOF and kNN with k = 10, the others with their defaults.

To be fair: these sets were also used when the score `size` and the scale were chosen, an advantage that ours would not
have on new data. PyOD's ECOD looks at all rows to be scored together, those of *novelty* included.{_shared(sets)}

![Mean AUC of each method, and its AUC on each set](reproduction/quality.png)

**Means over the sets, %** (± standard error of the difference to iForest over the sets)

{_means(standings, methods)}

{each}

**†n** marks a method that was too slow for the budget: so many seeds."""


def leaders_line(record: Record) -> str:
    """Tell in one line who is ahead."""
    standings, methods = _standings(record.rows), _methods(record.rows)
    n_sets = len({row["set"] for row in record.rows})
    leaders = []
    for mode in MODES:
        means = {name: _mean(standings[name, mode, "auc"]) for name in methods}
        best = max(means, key=lambda name: means[name])
        leaders.append(f"{mode} {QUALITY[best].title} ({means[best]:.1f})")
    return f"Quality over {n_sets} open sets, the best mean AUC: {', '.join(leaders)}."


def _shared(sets: Sequence[str]) -> str:
    """Name the sets that have rows in common."""
    groups = [
        f"{name} with {' and '.join(others)}"
        for name in sets
        if (others := [other for other in CATALOGUE[name].shares_rows_with if other in sets and other > name])
    ]
    return f" Some sets share rows: {', '.join(groups)}." if groups else ""


def _means(standings: Standings, methods: Sequence[str]) -> str:
    columns = [(mode, what) for what in _MEASURES for mode in MODES]
    lines = [
        [method_title(QUALITY[name]), *(_mean_text(standings, name, mode, what) for mode, what in columns)]
        for name in methods
    ]
    return table(["", *(f"{_MEASURES[what]}, {mode}" for mode, what in columns)], lines)


def _mean_text(standings: Standings, name: str, mode: str, what: str) -> str:
    values, reference = standings[name, mode, what], standings.get((_REFERENCE, mode, what), {})
    gains = [standing.value - reference[key].value for key, standing in values.items() if key in reference]
    error = f" ± {stdev(gains) / len(gains) ** 0.5:.1f}" if name != _REFERENCE and len(gains) > 1 else ""
    return f"{_mean(values):.1f}{error}"


def _mean(values: dict[str, Standing]) -> float:
    return mean(standing.value for standing in values.values())


def _by_set(standings: Standings, methods: Sequence[str], mode: str, sets: Sequence[str], n_seeds: int) -> str:
    lines = [[name, *(_cell(standings[method, mode, "auc"][name], n_seeds) for method in methods)] for name in sets]
    return table(["", *(method_title(QUALITY[method]) for method in methods)], lines)


def _cell(standing: Standing, n_seeds: int) -> str:
    return f"{standing.value:.1f}" + (f" †{standing.n_seeds}" if standing.n_seeds < n_seeds else "")


def _methods(rows: Sequence[Row]) -> list[str]:
    known = {row["method"] for row in rows}
    return [name for name in QUALITY if name in known]


def _standings(rows: Sequence[Row]) -> Standings:
    values: dict[tuple[str, str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        for what in _MEASURES:
            values[row["method"], row["mode"], what][row["set"]].append(row[what])
    return {
        key: {name: Standing(mean(numbers), len(numbers)) for name, numbers in by_set.items()}
        for key, by_set in values.items()
    }
