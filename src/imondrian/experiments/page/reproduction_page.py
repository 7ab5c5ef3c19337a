"""Write the page `reproduction.md` from the stored records."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from imondrian.base.files import atomic_write
from imondrian.experiments.comparison import Comparison, compare
from imondrian.experiments.page.differences import differences_section
from imondrian.experiments.page.paper_tables import batch_section, data_section, long_stream_section, online_section
from imondrian.experiments.page.quality_table import leaders_line, quality_section
from imondrian.experiments.page.synthetic_tables import claims_section, synthetic_section
from imondrian.experiments.result_records import Record, read_record

FOLDER = "reproduction"  # holds the records and figures, next to the page
RECORDS = ("synthetic", "claims", "batch", "batch_checks", "online", "online_checks", "long_stream", "quality")
_EARLIER_NAMES = {"long_stream": "endless"}  # names of older records
_TABLES = {"batch": "Table II", "online": "Table III"}


def write_page(folder: Path) -> Path:
    """Write `reproduction.md` to the folder, from the records in its subfolder `reproduction`; return its path."""
    records = {name: record for name in RECORDS if (record := _read(name, folder / FOLDER))}
    sets = {row["set"] for name in _TABLES if name in records for row in records[name].rows}
    sections = [section(records[name]) for name, section in _SECTIONS.items() if name in records]
    parts = [_head(records), data_section(sets), *sections, differences_section(records), _conditions(records)]
    page = folder / "reproduction.md"
    with atomic_write(page) as file:
        file.write(("\n\n".join(part for part in parts if part) + "\n").encode())
    return page


def _read(name: str, folder: Path) -> Record | None:
    record = read_record(name, folder)
    if record is None and name in _EARLIER_NAMES:
        record = read_record(_EARLIER_NAMES[name], folder)
    return record


_SECTIONS: dict[str, Callable[[Record], str]] = {
    "batch": batch_section,
    "online": online_section,
    "long_stream": long_stream_section,
    "synthetic": synthetic_section,
    "claims": claims_section,
    "quality": quality_section,
}


def _head(records: Mapping[str, Record]) -> str:
    facts = [fact for name in _TABLES if name in records for fact in _agreement(records[name])]
    if "quality" in records:
        facts.append(leaders_line(records["quality"]))
    minutes = sum(record.metadata["seconds"] for record in records.values()) / 60.0
    facts.append(f"All measurements took {minutes:.0f} minutes.")
    bullets = "\n".join(f"- {fact}" for fact in facts)
    return f"""# Reproduction of the paper

This page has our measurements for the tables and figures of Ma, Ghojogh, Samad, Zheng and Crowley, *Isolation Mondrian
Forest for Batch and Online Anomaly Detection* (IEEE SMC 2020). `imondrian reproduce` generates it from the records in
[reproduction](reproduction): each measurement is a line of a CSV file; the JSON file of the same name has the settings,
machine and versions. The paper's results are shown in brackets or in columns that say so; they are never mixed with
measurements. [experiments.md](experiments.md) explains how to run the experiments.

{bullets}"""


def _agreement(record: Record) -> list[str]:
    """Return facts about the agreement with the paper: values within the tolerance, and order of methods."""
    title = _TABLES[record.name]
    comparisons = [entry for entry in compare(record.name, record.rows).values() if entry.published is not None]
    forest = [entry for entry in comparisons if entry.cell.method == "imforest"]
    facts = [
        f"{title}, {label}: {sum(not entry.differs for entry in entries)} of {len(entries)} values agree with the"
        " paper, within the tolerance."
        for label, entries in (("iMForest", forest), ("all methods", comparisons))
        if entries
    ]
    pairs = _pairs(comparisons)
    n_same = sum(_is_same_order(*pair) for pair in pairs)
    if pairs:
        facts.append(
            f"{title}: {n_same} of {len(pairs)} comparisons of iMForest with another method have the same winner as in"
            " the paper."
        )
    return facts


def _pairs(comparisons: list[Comparison]) -> list[tuple[Comparison, Comparison]]:
    """Pair the result of iMForest with that of every other method on the same set and part."""
    forest = {entry.cell[2:]: entry for entry in comparisons if entry.cell.method == "imforest"}
    others = [entry for entry in comparisons if entry.cell.method != "imforest"]
    return [(forest[entry.cell[2:]], entry) for entry in others if entry.cell[2:] in forest]


def _is_same_order(one: Comparison, other: Comparison) -> bool:
    """Return True if our measurements and the paper agree on which of two methods is better."""
    return (one.measured.auc > other.measured.auc) == (one.published_auc > other.published_auc)


def _conditions(records: Mapping[str, Record]) -> str:
    """Return the section on machine, versions, date, time and settings of each record."""
    if not records:
        return ""
    environments: dict[str, list[str]] = {}
    for name, record in records.items():
        environments.setdefault(_environment(record.metadata), []).append(_run_line(name, record.metadata))
    parts = ["\n".join([f"{environment}\n", *lines]) for environment, lines in environments.items()]
    note = "Seconds are for one thread, and can be compared only within one run."
    return "\n\n".join(["## Machine, versions and settings", note, *parts])


def _environment(metadata: Mapping[str, Any]) -> str:
    machine, versions = metadata["machine"], metadata["versions"]
    return (
        f"{machine['processor']}, {machine['cores']} cores, {machine['memory_gigabytes']} GB, {machine['system']},"
        f" Python {machine['python']};\n{', '.join(f'{name} {number}' for name, number in versions.items())}:"
    )


def _run_line(name: str, metadata: Mapping[str, Any]) -> str:
    seconds = metadata["seconds"]
    settings = [f"{key} {value}" for key, value in metadata["settings"].items() if key != "repeats"]
    return f"- {name}: {', '.join([metadata['date'], f'{seconds:.0f} s', *settings])}"
