"""Where a table starts in text or in a sheet: the separator of its fields, its title lines and its header."""

import csv
import io
from collections import Counter
from typing import NamedTuple

from imondrian.tables.csv_records import MAX_FIELDS, long_fields
from imondrian.tables.formats import SEPARATORS

MAX_RECORDS = 50  # examined at the start of a table
_MIN_ROWS = 2  # number of rows after the header that are needed to know the width of a table


class TableStart(NamedTuple):
    """The separator of the fields of a table, and its header."""

    separator: str
    n_titles: int  # records before the header
    labels: list[str]  # the cells of the header


def find_start(records: list[str], separator: str, *, find_titles: bool = True) -> TableStart:
    """Return where a table starts, given its first records as text.

    Parameters
    ----------
    records : list of str
        The first records, at least one.
    separator : str
        The separator of fields.
    find_titles : bool
        False: the first record is the header.
    """
    rows = [fields_of(record, separator) for record in records[: MAX_RECORDS if find_titles else 1]]
    n_titles = count_titles(rows) if find_titles else 0
    return TableStart(separator, n_titles, rows[n_titles])


def guess_separator(records: list[str]) -> str:
    """Return the separator that divides the largest number of records into equally many fields, at least two.

    If several do this equally well, return the one that is most frequent in the first record. If they are equally
    frequent, return the first of them in the order `,`, `;`, tab, `|`.
    """

    def score(separator: str) -> tuple[int, int]:
        widths = Counter(_width(record, separator) for record in records[:MAX_RECORDS])
        return max((n for width, n in widths.items() if width > 1), default=0), records[0].count(separator)

    return max(SEPARATORS, key=score)


def count_titles(rows: list[list[str]]) -> int:
    """Return the number of title lines before the header; 0 if in doubt.

    Title lines have values in at most half of the columns. The header comes next: it has a field for every column, and
    no name is a number or begins with a digit. If the first line has as many fields as the table, the names in the
    header must also be distinct, and at most one may be empty.

    Examples
    --------
    >>> count_titles([["Orders 2024"], ["id", "amount"], ["a", "1"], ["b", "2"]])
    1
    """
    widths = Counter(len(row) for row in rows)
    width = max(widths, key=lambda width: (widths[width], width))
    n_titles = next((i for i, row in enumerate(rows) if 2 * _n_filled(row) > width), 0)
    has_rows = width > 1 and len(rows) - n_titles > _MIN_ROWS
    names = [cell.strip() for cell in rows[n_titles] if cell.strip()]
    can_be_names = len(rows[n_titles]) == width and not any(name[0].isdigit() or is_number(name) for name in names)
    is_sure = len(rows[0]) < width or len(set(names)) == len(names) >= width - 1
    return n_titles if has_rows and can_be_names and is_sure else 0


def fields_of(record: str, separator: str) -> list[str]:
    """Split a record into its fields."""
    with long_fields():
        return next(csv.reader(io.StringIO(record, newline=""), delimiter=separator), [])


def _width(record: str, separator: str) -> int:
    """Return the number of fields of a record; `MAX_FIELDS`, without splitting it, if there may be more."""
    return MAX_FIELDS if record.count(separator) >= MAX_FIELDS else len(fields_of(record, separator))


def _n_filled(row: list[str]) -> int:
    return sum(1 for cell in row if cell.strip())


def is_number(text: str) -> bool:
    """Return True if a text is a number; decimals must follow a point, not a comma."""
    try:
        float(text)
    except ValueError:
        return False
    return True
