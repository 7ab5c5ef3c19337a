"""The page as a whole."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from imondrian.experiments.comparison import Comparison, compare
from imondrian.experiments.page.differences import differences_section
from imondrian.experiments.page.paper_tables import batch_section, data_section, long_stream_section, online_section
from imondrian.experiments.page.quality_table import leaders_line, quality_section
from imondrian.experiments.page.synthetic_tables import claims_section, synthetic_section
from imondrian.experiments.result_records import Record, read_record
from imondrian.files import written_whole

FOLDER = "reproduction"  # of records and figures, beside the page
RECORDS = ("synthetic", "claims", "batch", "batch_checks", "online", "online_checks", "endless", "quality")
_TABLES = {"batch": "Table II", "online": "Table III"}


def write_page(folder: Path) -> Path:
    """Write `reproduction.md` into the folder, from the records in the folder `reproduction` beside it."""
    records = {name: record for name in RECORDS if (record := read_record(name, folder / FOLDER))}
    sets = {row["set"] for name in _TABLES if name in records for row in records[name].rows}
    sections = [section(records[name]) for name, section in _SECTIONS.items() if name in records]
    parts = [_head(records), data_section(sets), *sections, differences_section(records), _circumstances(records)]
    page = folder / "reproduction.md"
    with written_whole(page) as file:
        file.write(("\n\n".join(part for part in parts if part) + "\n").encode())
    return page


_SECTIONS: dict[str, Callable[[Record], str]] = {
    "batch": batch_section,
    "online": online_section,
    "endless": long_stream_section,
    "synthetic": synthetic_section,
    "claims": claims_section,
    "quality": quality_section,
}


def _head(records: Mapping[str, Record]) -> str:
    facts = [fact for name in _TABLES if name in records for fact in _agreement(records[name])]
    if "quality" in records:
        facts.append(leaders_line(records["quality"]))
    minutes = sum(record.circumstances["seconds"] for record in records.values()) / 60.0
    facts.append(f"What stands here took {minutes:.0f} minutes.")
    bullets = "\n".join(f"- {fact}" for fact in facts)
    return f"""# The paper, reproduced

Tables and figures of Ma, Ghojogh, Samad, Zheng and Crowley, *Isolation Mondrian Forest for Batch and Online Anomaly
Detection* (IEEE SMC 2020), run anew. This page is made by `imondrian reproduce` from the records in
[reproduction](reproduction): each measurement is a line of a CSV file, and beside it stands what it was measured
with. What the paper prints stands in brackets or in columns that say so, and nowhere among the measurements.
[experiments.md](experiments.md) tells how to run it.

{bullets}"""


def _agreement(record: Record) -> list[str]:
    """Tell how many figures are as in the paper."""
    title = _TABLES[record.name]
    comparisons = [entry for entry in compare(record.name, record.rows).values() if entry.published is not None]
    forest = [entry for entry in comparisons if entry.cell.method == "imforest"]
    facts = [
        f"{title}, {what}: {sum(not entry.differs for entry in entries)} of {len(entries)} figures as in the paper,"
        " within the tolerance."
        for what, entries in (("iMForest", forest), ("all methods", comparisons))
        if entries
    ]
    pairs = _pairs(comparisons)
    n_same = sum(_is_same_order(*pair) for pair in pairs)
    if pairs:
        facts.append(
            f"{title}: iMForest is ahead of another method, or behind it, as in the paper in {n_same} of {len(pairs)}"
            " places."
        )
    return facts


def _pairs(comparisons: list[Comparison]) -> list[tuple[Comparison, Comparison]]:
    """Pair iMForest with every other method in every place."""
    forest = {entry.cell[2:]: entry for entry in comparisons if entry.cell.method == "imforest"}
    others = [entry for entry in comparisons if entry.cell.method != "imforest"]
    return [(forest[entry.cell[2:]], entry) for entry in others if entry.cell[2:] in forest]


def _is_same_order(one: Comparison, other: Comparison) -> bool:
    return (one.measured.auc > other.measured.auc) == (one.published_auc > other.published_auc)


def _circumstances(records: Mapping[str, Record]) -> str:
    """Tell what was measured where, with what, how and when."""
    if not records:
        return ""
    places: dict[str, list[str]] = {}
    for name, record in records.items():
        places.setdefault(_place(record.circumstances), []).append(_how(name, record.circumstances))
    parts = ["\n".join([f"{place}\n", *lines]) for place, lines in places.items()]
    return "\n\n".join(
        ["## Circumstances", "Seconds are of one thread, and good for comparison within one run.", *parts]
    )


def _place(circumstances: Mapping[str, Any]) -> str:
    machine, versions = circumstances["machine"], circumstances["versions"]
    return (
        f"{machine['processor']}, {machine['cores']} cores, {machine['memory_gigabytes']} GB, {machine['system']},"
        f" Python {machine['python']};\n{', '.join(f'{name} {number}' for name, number in versions.items())}:"
    )


def _how(name: str, circumstances: Mapping[str, Any]) -> str:
    seconds = circumstances["seconds"]
    settings = [f"{key} {value}" for key, value in circumstances["settings"].items() if key != "repeats"]
    return f"- {name}: {', '.join([circumstances['date'], f'{seconds:.0f} s', *settings])}"
