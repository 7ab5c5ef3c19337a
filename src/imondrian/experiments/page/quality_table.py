"""The section on quality over all open sets."""

from collections import defaultdict
from statistics import mean

from imondrian.experiments.methods import QUALITY
from imondrian.experiments.page.cells import titled
from imondrian.experiments.page.markdown import table
from imondrian.experiments.quality import MODES
from imondrian.experiments.records import Record
from imondrian.experiments.repeats import Row

_MEASURES = {"auc": "AUC", "average_precision": "average precision"}


def quality_section(record: Record) -> str:
    """Lay out the means over all sets, and the AUC on each."""
    settings = record.circumstances["settings"]
    sets = list(dict.fromkeys(row["set"] for row in record.rows))
    each = "\n\n".join(f"**AUC, {mode}, on each set**\n\n{_by_set(record.rows, mode, sets)}" for mode in MODES)
    return f"""## Beyond the paper: quality over all open sets

{len(sets)} sets, {settings["seeds"]} seeds; of larger sets, {settings["most_rows"]:,} rows drawn by lot for each seed.
*Batch*: fitted on all rows, which are scored. *Novelty*: fitted on half of the inliers; the other half and all
anomalies are scored. Forests of ours have 100 trees, psi = 256 and `scale="std"`, except where it says *as in the
paper*; for LOF, kNN, SVM, ECOD, HBOS and INNE features are standardised; LOF and kNN with k = 10, the others with
their defaults.

![Mean AUC of each method, and its AUC on each set](reproduction/quality.png)

**Means over the sets, %**

{_means(record.rows)}

{each}"""


def best_in(record: Record) -> str:
    """Tell in one line who is ahead."""
    figures = _figures(record.rows)
    leaders = []
    for mode in MODES:
        means = {
            name: mean(by_set.values()) for (name, key, what), by_set in figures.items() if (key, what) == (mode, "auc")
        }
        best = max(means, key=lambda name: means[name])
        leaders.append(f"{mode} {QUALITY[best].title} ({means[best]:.1f})")
    return f"Over all open sets, the best mean AUC: {', '.join(leaders)}."


def _means(rows: list[Row]) -> str:
    figures = _figures(rows)
    columns = [(mode, what) for what in _MEASURES for mode in MODES]
    lines = [
        [titled(QUALITY[name]), *(f"{mean(figures[name, mode, what].values()):.1f}" for mode, what in columns)]
        for name in _methods(rows)
    ]
    return table(["", *(f"{_MEASURES[what]}, {mode}" for mode, what in columns)], lines)


def _by_set(rows: list[Row], mode: str, sets: list[str]) -> str:
    figures, methods = _figures(rows), _methods(rows)
    lines = [[name, *(f"{figures[method, mode, 'auc'][name]:.1f}" for method in methods)] for name in sets]
    return table(["", *(titled(QUALITY[method]) for method in methods)], lines)


def _methods(rows: list[Row]) -> list[str]:
    known = {row["method"] for row in rows}
    return [name for name in QUALITY if name in known]


def _figures(rows: list[Row]) -> dict[tuple[str, str, str], dict[str, float]]:
    """Give for each method, mode and measure its mean over the seeds on each set."""
    values: dict[tuple[str, str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        for what in _MEASURES:
            values[row["method"], row["mode"], what][row["set"]].append(row[what])
    return {key: {name: mean(numbers) for name, numbers in by_set.items()} for key, by_set in values.items()}
