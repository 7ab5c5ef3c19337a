"""Reading a sheet of an Excel workbook; its cells become text, as in CSV.

The reader of workbooks allocates every cell between the first and the last one that is used, and copies a shared text
to every cell that has it: a file of 2 KB can need a terabyte, and end the process. Therefore it runs in a process of
its own, with limited memory: `workbook_process.py`.
"""

import json
import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from typing import IO, Any, NamedTuple

import polars as pl

from imondrian.base.errors import InvalidInputError
from imondrian.tables import workbook_process
from imondrian.tables.table_start import MAX_RECORDS, TableStart, count_titles
from imondrian.tables.text_parsing import ReadingFacts, note_start
from imondrian.tables.workbook_process import Request

# Address space of the process that loads a workbook: 8 GiB, more than twice what 1,048,576 rows of 20 texts with 22
# characters need (3.4 GiB). Numbers need 2.6 GiB, and the process without a workbook 0.4 GiB (fastexcel 0.21).
_MAX_BYTES = 2**33
# The rows in the comment above take about a minute. A limit is also needed because only a wait with a limit ends at
# Ctrl+C: polars handles SIGINT such that the system restarts a read (SA_RESTART).
_MAX_SECONDS = 3600


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
        If the file is not a workbook, has no such sheet, or takes too much memory or time; or if fastexcel is not
        installed.
    """
    cells = _cells(source)[source.skip_lines or 0 :]
    if cells.is_empty():
        raise InvalidInputError(f"{source.name}: the sheet that was read has no rows.")
    first = [[cell or "" for cell in row] for row in cells[:MAX_RECORDS].iter_rows()]
    n_titles = count_titles(first) if source.has_header and source.skip_lines is None else 0
    start = TableStart(",", n_titles, first[n_titles])
    names = note_start(source.facts, start, has_header=source.has_header)
    rows = cells[n_titles + int(source.has_header) :]
    rows.columns = names
    return rows


def _cells(source: WorkbookSource) -> pl.DataFrame:
    """Return the rows of the sheet that are not blank; if there are several sheets, note which one was read."""
    if find_spec("fastexcel") is None:
        raise InvalidInputError(
            f'{source.name}: Excel files need fastexcel: pip install "imondrian[cli]", or save the file as CSV.'
        )
    if not sys.executable:
        raise InvalidInputError(
            f"{source.name}: Excel files are loaded by another Python process, but the path of the interpreter is"
            " unknown: save the file as CSV."
        )
    with tempfile.TemporaryFile() as file:  # has no name, so nothing can remain of it
        file.write(source.content)
        file.seek(0)
        facts = _run(source, file)
        if source.sheet is None and facts["sheets"] is not None:
            source.facts.notes.append(
                f"the sheet {facts['sheet']!r} was read (--sheet chooses among {facts['sheets']})"
            )
        file.seek(0)
        return pl.read_ipc(file)


def _run(source: WorkbookSource, file: IO[bytes]) -> dict[str, Any]:
    """Replace the workbook in a file by the cells of the sheet; return what the process reported.

    That is the name of the sheet and, if there are several, a list of all sheets.
    """
    try:
        output, is_complete = _output(Request(source.sheet, _MAX_BYTES), file)
    except OSError as error:
        raise InvalidInputError(
            f"{source.name}: the process that loads Excel files cannot be started: {error.strerror}."
        ) from None
    facts = _facts_in(output)
    if "problem" in facts:
        raise InvalidInputError(f"{source.name} {facts['problem']}")
    if not is_complete or "sheet" not in facts:
        raise _not_loaded(source, facts.get("sheet"))
    return facts


def _facts_in(output: bytes) -> dict[str, Any]:
    """Return what the process reported; {} if the output is not its JSON, as when `sys.executable` is not Python."""
    try:
        return {key: value for line in output.splitlines() for key, value in json.loads(line).items()}
    except (ValueError, AttributeError):
        return {}


def _output(request: Request, file: IO[bytes]) -> tuple[bytes, bool]:
    """Return what the process printed, and False if it crashed or exceeded a limit."""
    try:
        process = subprocess.run(  # noqa: S603 (our own script)
            [sys.executable, "-P", "-s", workbook_process.__file__, json.dumps(request)],
            stdin=file,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=_environment(),
            check=True,
            timeout=_MAX_SECONDS,
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        return error.stdout or b"", False
    return process.stdout, True


def _environment() -> dict[str, str]:
    """Return an environment in which the process imports its modules from the same folders as this one."""
    others = {name: value for name, value in os.environ.items() if name == "PYTHONHOME" or name[:6] != "PYTHON"}
    return {**others, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "POLARS_MAX_THREADS": "1"}


def _not_loaded(source: WorkbookSource, sheet: str | None) -> InvalidInputError:
    """Return the error for a process that crashed or exceeded a limit."""
    loaded = "the workbook" if sheet is None else f"the sheet {sheet!r:.200}"
    return InvalidInputError(
        f"{source.name}: {loaded} cannot be loaded: it is damaged, or needs more than {_MAX_BYTES / 2**30:g} GiB of"
        " memory or one hour. Delete the cells far from the table, or save the table as CSV."
    )
