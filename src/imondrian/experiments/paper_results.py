"""The results printed in the paper's Tables I to III, for comparison with our measurements."""

import csv
from importlib.resources import files
from typing import NamedTuple

STAGES = ("1", "2", "3", "4", "5")  # of Table III


class PublishedResult(NamedTuple):
    """One printed result: AUC in per cent and seconds, with standard deviations if printed."""

    auc: float
    auc_deviation: float | None
    seconds: float
    seconds_deviation: float | None


class TableCell(NamedTuple):
    """A cell of the paper's tables."""

    table: str  # "batch" (Table II) or "online" (Table III)
    method: str
    set: str
    part: str  # "train" or "test" in Table II, a stage in Table III


TITLES = {  # of data sets; the titles of the paper's sets are those in the paper
    "wbc": "WBC",
    "pima": "Pima",
    "thyroid": "Thyroid",
    "satellite": "Satellite",
    "optdigits": "Optdigits",
    "ionosphere": "Ionosphere",
    "wine": "Wine",
    "smtp": "SMTP",
    "cicids": "CICIDS",
    "odds-wbc": "WBC of ODDS",
    "cicids-sample": "CICIDS (sample)",
}

# Table I: rows, features, anomalies in per cent
TABLE_1 = {
    "wbc": (278, 30, 37.0),
    "pima": (768, 8, 35.0),
    "thyroid": (3772, 6, 2.5),
    "satellite": (6435, 36, 32.0),
    "optdigits": (5216, 64, 3.0),
    "ionosphere": (351, 33, 36.0),
    "wine": (129, 13, 7.7),
    "smtp": (95156, 3, 0.03),
    "cicids": (691406, 77, 36.0),
}


def published_stage_aucs() -> dict[tuple[str, str], list[float | None]]:
    """Return the AUC of the five stages in Table III, by method and set."""
    cells = {cell[1:3] for cell in PUBLISHED if cell.table == "online"}
    return {
        (method, name): [PUBLISHED[TableCell("online", method, name, stage)].auc for stage in STAGES]
        for method, name in cells
    }


def _read() -> dict[TableCell, PublishedResult]:
    text = files(__package__).joinpath("paper_results.csv").read_text("utf-8")
    return {
        TableCell(row["table"], row["method"], row["set"], row["part"]): PublishedResult(
            float(row["auc"]),
            _optional(row["auc_deviation"]),
            float(row["seconds"]),
            _optional(row["seconds_deviation"]),
        )
        for row in csv.DictReader(text.splitlines())
    }


def _optional(text: str) -> float | None:
    return float(text) if text else None


PUBLISHED = _read()
