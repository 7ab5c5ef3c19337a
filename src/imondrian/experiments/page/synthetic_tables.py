"""The section for the paper's Figures 1 and 2."""

from collections.abc import Iterable

from imondrian.experiments.page.markdown import table
from imondrian.experiments.records import Record
from imondrian.experiments.repeats import Row


def synthetic_section(record: Record) -> str:
    """Show the figures, and how the rows of each set were labelled."""
    return f"""## Figure 1: batches in the plane

The paper's sets in the plane, each among 45 outliers. Circles are rows detected as normal, triangles rows detected as
anomalies; the region detected as normal is grey. The last columns are ours.

![Scores and labels of iMForest, iForest and ours on each set](reproduction/batch_plane.png)

## Figure 2: streams in the plane

The same sets in five stratified parts, labels by K-means over all rows so far.

![Scores and labels after each of five parts](reproduction/online_plane.png)

How many of the 45 outliers are found, and at what price, in the sets of these figures:

{_labels(record.rows)}"""


def claims_section(record: Record) -> str:
    """Hold what the paper reads off its figures against the sets of many seeds."""
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
    return f"""### What the paper reads off its figures, over {record.circumstances["settings"]["seeds"]} seeds

Each line: a claim of the paper, and the means of the two things that it compares; online, over the five steps.

{table(["", "set", "", "this", "that", "difference"], rows, 3)}"""


def _labels(rows: Iterable[Row]) -> str:
    last = [row for row in rows if row["step"] in (None, 5)]
    lines = [
        [
            f"{row['set']}, {'online, all five parts' if row['step'] else 'batch'}",
            row["method"],
            row["rule"],
            str(row["true_positives"]),
            str(row["false_positives"]),
            f"{row['threshold']:.3f}",
            f"{row['auc']:.1f}",
        ]
        for row in last
    ]
    return table(["", "method", "rule", "outliers found", "inliers flagged", "threshold", "AUC, %"], lines, 3)
