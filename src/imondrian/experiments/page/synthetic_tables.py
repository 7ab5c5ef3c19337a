"""The section for Figures 1 and 2 of the paper."""

from collections.abc import Iterable

from imondrian.experiments.page.markdown import table
from imondrian.experiments.repeats import Row
from imondrian.experiments.result_records import Record


def synthetic_section(record: Record) -> str:
    """Return the section with both figures and the labels of each set."""
    return f"""## Figure 1: batches in the plane

The paper's sets in the plane, each with 45 outliers. Circles are rows labelled normal, and triangles are rows labelled
as anomalies; the region labelled normal is grey. The last columns show a score of our own: `size`, with features
weighted by one over their standard deviations.

![Scores and labels of iMForest, iForest and ours on each set](reproduction/batch_plane.png)

## Figure 2: streams in the plane

The same sets in five stratified stages, labelled by K-means over all rows so far.

![Scores and labels after each of five stages](reproduction/online_plane.png)

Outliers found (of 45) and inliers flagged in the sets of these figures:

{_label_table(record.rows)}"""


def claims_section(record: Record) -> str:
    """Return the section that tests the paper's statements about its figures with sets of many seeds."""
    rows = [
        [
            row["claim"],
            row["set"],
            row["measure"].replace("_", " "),
            f"{row['this_mean']:.2f} ({row['this']})",
            f"{row['that_mean']:.2f} ({row['that']})",
            f"{row['difference']:+.2f}" + (f" ± {row['deviation']:.2f}" if row["seeds"] > 1 else ""),
        ]
        for row in record.rows
    ]
    return f"""### The paper's statements about its figures, over {record.metadata["settings"]["seeds"]} seeds

The first table counts, for each statement of the paper, the sets on which the first of the two compared results is
clearly lower or clearly higher than the second, that is, by more than two standard errors. The second table has the
means on each set (for online results, also over the five stages) and the standard deviation of the difference.

{_summary(record.rows)}

{table(["statement", "set", "measure", "first", "second", "difference"], rows, 3)}"""


def _summary(rows: Iterable[Row]) -> str:
    """Count, for each claim and measure, the sets on which the first result is clearly lower, and higher."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["claim"], row["measure"]), []).append(row)
    lines = [
        [
            claim,
            f"{group[0]['this']} vs {group[0]['that']}",
            measure.replace("_", " "),
            f"{_n_clear(group, -1)} of {len(group)}",
            f"{_n_clear(group, 1)} of {len(group)}",
        ]
        for (claim, measure), group in groups.items()
    ]
    return table(["statement", "compared", "measure", "lower on", "higher on"], lines, 3)


def _n_clear(rows: Iterable[Row], sign: int) -> int:
    return sum(sign * row["difference"] > 2.0 * row["deviation"] / row["seeds"] ** 0.5 for row in rows)


def _label_table(rows: Iterable[Row]) -> str:
    """Return the table of labels in a batch and after the last stage."""
    last = [row for row in rows if row["step"] in (None, 5)]
    lines = [
        [
            f"{row['set']}, {'online, all five stages' if row['step'] else 'batch'}",
            row["method"],
            row["rule"],
            str(row["true_positives"]),
            str(row["false_positives"]),
            f"{row['threshold']:.3f}",
            f"{row['auc']:.1f}",
        ]
        for row in last
    ]
    return table(["set", "method", "rule", "outliers found", "inliers flagged", "threshold", "AUC, %"], lines, 3)
