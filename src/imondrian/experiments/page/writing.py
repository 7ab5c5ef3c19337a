"""The page as a whole."""

from collections.abc import Callable
from pathlib import Path

from imondrian.experiments.comparison import Comparison, compared
from imondrian.experiments.page.differences import differences_section
from imondrian.experiments.page.paper_tables import batch_section, data_section, endless_section, online_section
from imondrian.experiments.page.quality_table import best_in, quality_section
from imondrian.experiments.page.synthetic_tables import claims_section, synthetic_section
from imondrian.experiments.records import Record, read_record
from imondrian.files import written_whole

RECORDS = ("synthetic", "claims", "batch", "batch_checks", "online", "online_checks", "endless", "quality")


def write_page(folder: Path) -> Path:
    """Write `reproduction.md` into the folder, from the records in the folder `reproduction` beside it."""
    records = {name: record for name in RECORDS if (record := read_record(name, folder / "reproduction"))}
    sections = [section(records[name]) for name, section in _SECTIONS.items() if name in records]
    parts = [_head(records), data_section(), *sections, differences_section(records), _circumstances(records)]
    page = folder / "reproduction.md"
    with written_whole(page) as file:
        file.write(("\n\n".join(part for part in parts if part) + "\n").encode())
    return page


_SECTIONS: dict[str, Callable[[Record], str]] = {
    "batch": batch_section,
    "online": online_section,
    "endless": endless_section,
    "synthetic": synthetic_section,
    "claims": claims_section,
    "quality": quality_section,
}


def _head(records: dict[str, Record]) -> str:
    facts = [*_agreement(records, "batch", "Table II"), *_agreement(records, "online", "Table III")]
    if "quality" in records:
        facts.append(best_in(records["quality"]))
    minutes = sum(record.circumstances["seconds"] for record in records.values()) / 60.0
    facts.append(f"All of it took {minutes:.0f} minutes.")
    bullets = "\n".join(f"- {fact}" for fact in facts)
    return f"""# The paper, reproduced

Every table and figure of Ma, Ghojogh, Samad, Zheng and Crowley, *Isolation Mondrian Forest for Batch and Online Anomaly
Detection* (IEEE SMC 2020), run anew. This page is made by `imondrian reproduce` from the records in
[reproduction](reproduction): each measurement is a line of a CSV file, and beside it stands what it was measured
with. What the paper prints stands in brackets or is called published, and nowhere among the measurements.

```sh
imondrian reproduce all --data DIR       # everything on this page
imondrian reproduce batch --data DIR --datasets wine,pima --methods imforest,lof
```

{bullets}"""


def _agreement(records: dict[str, Record], name: str, title: str) -> list[str]:
    if name not in records:
        return []
    comparisons = [entry for entry in compared(name, records[name].rows).values() if entry.published is not None]
    forest = [entry for entry in comparisons if entry.place.method == "imforest"]
    facts = []
    for what, entries in ((f"{title}, iMForest", forest), (f"{title}, all methods", comparisons)):
        n_alike = sum(not entry.differs for entry in entries)
        facts.append(f"{what}: {n_alike} of {len(entries)} figures as in the paper, within the tolerance.")
    return [*facts, _same_winner(comparisons, title)]


def _same_winner(comparisons: list[Comparison], title: str) -> str:
    """Tell how often iMForest is ahead of a peer, or behind it, in ours as in the paper."""
    forest = {entry.place[2:]: entry for entry in comparisons if entry.place.method == "imforest"}
    pairs = [
        (forest[entry.place[2:]], entry)
        for entry in comparisons
        if entry.place.method != "imforest" and entry.place[2:] in forest
    ]
    n_same = sum(
        (ours.measured.auc > peer.measured.auc) == (ours.published.auc > peer.published.auc)
        for ours, peer in pairs
        if ours.published is not None and peer.published is not None
    )
    return f"{title}, iMForest beside each other method: the same one is ahead in {n_same} of {len(pairs)} places."


def _circumstances(records: dict[str, Record]) -> str:
    if not records:
        return ""
    latest = max(records.values(), key=lambda record: str(record.circumstances["date"]))
    machine, versions = latest.circumstances["machine"], latest.circumstances["versions"]
    settings = "\n".join(
        f"- {name}: {record.circumstances['date']}, {record.circumstances['seconds']:.0f} s, "
        + ", ".join(f"{key} {_plain(value)}" for key, value in record.circumstances["settings"].items())
        for name, record in records.items()
    )
    return f"""## Circumstances

{machine["processor"]}, {machine["cores"]} cores, {machine["memory_gigabytes"]} GB, {machine["system"]}, Python
{machine["python"]}; {", ".join(f"{name} {number}" for name, number in versions.items())}.
Seconds are good for comparison within one run.

{settings}"""


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return "(" + ", ".join(f"{key} {item}" for key, item in value.items()) + ")"
    return str(value)
