"""Reading a sheet of an Excel workbook; its cells become text, as in CSV."""

import io
import zipfile
from typing import Any, NamedTuple

import polars as pl

from imondrian.base.errors import InvalidInputError
from imondrian.tables.table_start import MAX_RECORDS, TableStart, count_titles
from imondrian.tables.text_parsing import ReadingFacts, first_line, note_start
from imondrian.tables.workbook_checks import check_document, check_parts, check_sheet
from imondrian.tables.zip_directory import check_directory

_PANIC = "PanicException"  # a bug in the reader, raised by its Rust code; derived from BaseException, and not exported
_WORKBOOK_MEMBERS = ("xl/", "[content_types].xml", "content.xml")  # how the names of some members begin, in lower case


class WorkbookSource(NamedTuple):
    """The content of a workbook, and what to read from it."""

    name: str  # of the file, for error messages
    content: bytes
    facts: ReadingFacts
    sheet: str | None = None  # None: the first one
    has_header: bool = True
    skip_lines: int | None = None  # before the header; None: title lines are recognised


def read_sheet(source: WorkbookSource) -> pl.DataFrame:
    """Return the rows of a sheet, with cells as text: dates in ISO 8601, booleans as true and false.

    Raises
    ------
    InvalidInputError
        If the file is not a workbook, has no such sheet, or if fastexcel is not installed.
    """
    _check_not_other_zip(source)
    cells = _cells(source)
    cells = cells.filter(~pl.all_horizontal(pl.all().is_null()))[source.skip_lines or 0 :]
    if cells.is_empty():
        raise InvalidInputError(f"{source.name} has no rows.")
    first = [[cell or "" for cell in row] for row in cells[:MAX_RECORDS].iter_rows()]
    n_titles = count_titles(first) if source.has_header and source.skip_lines is None else 0
    start = TableStart(",", n_titles, first[n_titles])
    names = note_start(source.facts, start, has_header=source.has_header)
    rows = cells[n_titles + int(source.has_header) :]
    rows.columns = names
    return rows


def _check_not_other_zip(source: WorkbookSource) -> None:
    """Raise InvalidInputError for a zip archive that is not a workbook; damaged ones are left to the reader."""
    try:
        with zipfile.ZipFile(io.BytesIO(source.content)) as archive:
            names = [name.lower() for name in archive.namelist()]
    except (zipfile.BadZipFile, NotImplementedError, ValueError):
        return
    if not any(name.startswith(_WORKBOOK_MEMBERS) for name in names):
        raise InvalidInputError(f"{source.name} is a zip archive, not a table: extract it first.")


def _cells(source: WorkbookSource) -> pl.DataFrame:
    try:
        import fastexcel  # noqa: PLC0415 (only needed for workbooks)
    except ModuleNotFoundError:
        raise InvalidInputError(
            f'{source.name}: Excel files need fastexcel: pip install "imondrian[cli]", or save it as CSV.'
        ) from None
    try:
        check_directory(source.content, source.name)
        check_document(source.content, source.name)
        check_parts(source.content, source.name)
        workbook = fastexcel.read_excel(source.content)
        sheet = _sheet_name(source, workbook.sheet_names)
        check_sheet(source.content, sheet, source.name)
        frame: Any = workbook.load_sheet(sheet, header_row=None, dtypes="string").to_polars()
    except BaseException as error:
        if isinstance(error, fastexcel.FastExcelError) or type(error).__name__ == _PANIC:
            message = f"{source.name} cannot be read as an Excel file: {first_line(error)}."
            raise InvalidInputError(message) from None
        raise
    return pl.DataFrame(frame)


def _sheet_name(source: WorkbookSource, names: list[str]) -> str:
    listed = ", ".join(map(repr, names))
    if source.sheet is not None and source.sheet not in names:
        raise InvalidInputError(f"{source.name} has no sheet {source.sheet!r}; the sheets are {listed}.")
    if source.sheet is None and len(names) > 1:
        source.facts.notes.append(f"the sheet {names[0]!r} was read (--sheet chooses among {listed})")
    return source.sheet or names[0]
