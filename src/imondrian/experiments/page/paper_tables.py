"""The sections for the paper's Tables I, II and III."""

from collections.abc import Collection

from imondrian.datasets import CATALOGUE
from imondrian.experiments.methods import BATCH, ONLINE
from imondrian.experiments.page.comparison_table import ComparisonTable, dataset_title
from imondrian.experiments.page.markdown import table
from imondrian.experiments.paper_results import PUBLISHED, STAGES, TABLE_1
from imondrian.experiments.result_records import Record

LEGEND = """\
In each cell: measured here, the mean over repeats ± their standard deviation; in brackets what the paper prints. **≠**
marks a difference of more than 2.5 points and more than two of the paper's standard deviations; see
[Differences](#differences). **†n** marks a method that was too slow for the budget: so many repeats. *In italics*:
ours, not in the paper."""


def data_section(sets: Collection[str]) -> str:
    """Hold those of the paper's sets that were used against Table I."""
    rows = [_set_row(name) for name in TABLE_1 if name in sets]
    if not rows:
        return ""
    return f"""## Table I: data sets

{table(["", "rows", "features", "anomalies, %"], rows)}

As loaded, by checksum; in brackets what the paper prints. Its ninth set, CICIDS 2017 Wednesday (691,406 x 77, 36 %),
has to be fetched by hand and was not at hand.{_ABOUT_WBC if "odds-wbc" in sets else ""}"""


_ABOUT_WBC = """ Its WBC is the whole Wisconsin diagnostic set (569 rows, 212 of them malignant, 37 %, the share that it
prints), whatever number of rows its table gives: with these rows its figures come out, with the 378 rows of ODDS (5.6 %
anomalies) they do not, as the column *WBC of ODDS* of Table II shows."""


def _set_row(name: str) -> list[str]:
    n_rows, n_features, share = TABLE_1[name]
    entry = CATALOGUE[name]
    return [
        dataset_title(name),
        f"{entry.n_rows:,} ({n_rows:,})",
        f"{entry.n_features} ({n_features})",
        f"{100.0 * entry.share:.2g} ({share:.2g})",
    ]


def batch_section(record: Record) -> str:
    """Lay out Table II."""
    settings = record.circumstances["settings"]
    cells = ComparisonTable(record, BATCH)
    return f"""## Table II: batches

Fitted on the training part of each fold ({settings["folds"]} folds; Wine 2), then both parts are scored. The folds are
those behind the paper's table, as far as they can be found out (`experiments/splits.py: published_folds`). Features
as they come; 100 trees, psi = 256; LOF with k = 10; one-class SVM with an RBF kernel, gamma = 1/d; iForest as
scikit-learn has it.

{LEGEND}

**AUC of the training rows, %**

{cells.by_method("train", "auc")}

**AUC of the test rows, %**

{cells.by_method("test", "auc")}

**Seconds for training: fitting, and scoring the training rows** (one thread)

{cells.by_method("train", "seconds")}

**Seconds for scoring the test rows**

{cells.by_method("test", "seconds")}"""


def online_section(record: Record) -> str:
    """Lay out Table III."""
    cells = ComparisonTable(record, ONLINE)
    methods = "\n\n".join(
        f"### {cells.titles[name]}\n\n**AUC of all rows so far, %**\n\n{cells.by_part(name, STAGES, 'auc')}\n\n"
        f"**Seconds: learning the stage, and scoring all rows so far**\n\n{cells.by_part(name, STAGES, 'seconds')}"
        for name in cells.methods
    )
    return f"""## Table III: streams

Five stratified stages; the first is learned at once, the others one row after the other, without subsampling; after
each stage all rows so far are scored again. The division into stages is that of the authors' published scripts. Means
over {record.circumstances["settings"]["seeds"]} seeds of the forests; the other methods draw no lots. The paper leaves
WBC out.{_ABOUT_CICIDS if "cicids-sample" in cells.sets else ""}

![AUC over the stages: measured as lines, the paper's dashed](reproduction/stages.png)

{LEGEND}

{methods}"""


_ABOUT_CICIDS = """ CICIDS stands here for 10,203 real flows of it, which are not the paper's rows, so that nothing is
set beside them."""


def long_stream_section(record: Record) -> str:
    """Lay out the stream of the size of the paper's largest set."""
    rows = [
        [
            row["part"],
            f"{row['n_rows']:,}",
            f"{row['seconds']:.1f}",
            f"{row['microseconds_per_row']:.0f}",
            f"{row['detector_megabytes']:.0f}",
            f"{row['peak_megabytes']:.0f}",
        ]
        for row in record.rows
    ]
    head = ["stage", "rows so far", "seconds", "microseconds a row", "detector, MB", "whole process, most MB"]
    paper = ", ".join(f"{PUBLISHED[TableCell('online', 'imforest', 'cicids', stage)].seconds:,.0f}" for stage in STAGES)
    return f"""### A stream of the size of CICIDS 2017 Wednesday

The paper's online mode keeps every row in every tree. With a window (the latest 2,048 rows, of which a tree holds about
256; preset `paper`) memory is fixed. Made rows, 691,406 x 77, scored and learned in one pass; time and memory only.
(The paper's seconds for its five stages, everything kept and scored again each time: {paper}.)

{table(head, rows)}"""
