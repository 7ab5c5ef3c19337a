"""The process that loads a workbook: a script, which may run out of memory or crash instead of its parent process.

Its argument is a `Request` as JSON. Its standard input is a file that contains the workbook; the process replaces the
content by the cells of a sheet, in the Arrow IPC format. It prints JSON objects, one per line: the name of the sheet
and, if there are several, a list of the sheets once the workbook is open, and the problem if the sheet cannot be read.
It imports nothing from imondrian, so that it starts quickly and does not depend on how the package was found.
"""

import io
import json
import os
import select
import sys
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import polars as pl

_WORKBOOK_MEMBERS = ("xl/", "[content_types].xml", "content.xml")  # how the names of some members begin, in lower case
_CELL_BYTES = 16  # of the view that polars stores for each cell, in addition to the texts of the column
_MAX_LISTED, _MAX_NAME = 20, 100  # sheets in a list, characters of a name


class Request(NamedTuple):
    """What to load."""

    sheet: str | None  # None: the first one
    max_bytes: int  # of the address space while the workbook is loaded; the cells may take at most a quarter of it


class _UnreadableError(Exception):
    """The file is not a workbook, is damaged, or has no such sheet."""


def main() -> None:
    """Replace the workbook in standard input by the cells of a sheet; print its name, and the problem if any."""
    request = Request(*json.loads(sys.argv[1]))
    if hasattr(select, "poll"):  # not on Windows
        threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        with open(0, "r+b", closefd=False) as file:
            frame = _load(file.read(), request)
            file.seek(0)
            file.truncate()
            frame.write_ipc(file)
    except (_UnreadableError, OSError) as error:
        _reply(problem=str(error))


def _end_with_parent() -> None:
    """End this process when its parent ends or is killed.

    The pipe of standard output then has no reader, which `poll` reports as an error.
    """
    ended = select.poll()
    ended.register(sys.stdout, 0)  # errors are always reported
    ended.poll()
    os._exit(1)


def _load(content: bytes, request: Request) -> "pl.DataFrame":
    """Return the rows of a sheet that are not blank."""
    import fastexcel  # noqa: PLC0415 (the parent process imports this module, too)
    import polars as pl  # noqa: PLC0415

    with _limited_memory(request.max_bytes):
        members = _member_names(content)
        if members and not any(name.startswith(_WORKBOOK_MEMBERS) for name in members):
            raise _UnreadableError("is a zip archive, not a table: extract it first.")
        try:
            workbook = fastexcel.read_excel(content)
            sheet = _sheet_name(workbook.sheet_names, request.sheet)
            texts, numbers = (
                pl.DataFrame(workbook.load_sheet(sheet, header_row=None, dtypes=dtype).to_polars())
                for dtype in ("string", "float")
            )
        except fastexcel.FastExcelError as error:
            raise _UnreadableError(_reason(error, members)) from None
        frame = pl.DataFrame([_with_all_digits(text, numbers[text.name]) for text in texts])
        frame = frame.filter(~pl.all_horizontal(pl.all().is_null()))
    if frame.height * frame.width * _CELL_BYTES + frame.estimated_size() > request.max_bytes // 4:
        raise MemoryError
    return frame


def _with_all_digits(text: "pl.Series", number: "pl.Series") -> "pl.Series":
    """Return cells as text with all digits of their numbers: fastexcel rounds numbers to 9 decimals in texts."""
    import polars as pl  # noqa: PLC0415

    is_rounded = text.cast(pl.Float64, strict=False) != number  # null unless the text is a number
    return number.cast(pl.String).zip_with(is_rounded.fill_null(value=False), text)


@contextmanager
def _limited_memory(max_bytes: int) -> Iterator[None]:
    """Return a context manager that limits the address space, if the system supports it.

    The limit ends with the context, because the threads that write the cells reserve much address space.

    Parameters
    ----------
    max_bytes : int
        The limit, unless the process has a lower one.
    """
    if sys.platform == "win32":
        yield
        return
    import resource  # noqa: PLC0415 (not on Windows)

    old = resource.getrlimit(resource.RLIMIT_AS)
    limits = [limit for limit in (max_bytes, *old) if limit != resource.RLIM_INFINITY]
    with suppress(ValueError, OSError):  # macOS refuses limits of the address space
        resource.setrlimit(resource.RLIMIT_AS, (min(limits), old[1]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # an abort must not write gigabytes to the current folder
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")  # if memory runs out, Linux ends this process first
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, old)


def _member_names(content: bytes) -> list[str]:
    """Return the names of the members of a zip archive in lower case; none if it is damaged."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return [name.lower() for name in archive.namelist()]
    except (zipfile.BadZipFile, NotImplementedError, ValueError):
        return []


def _sheet_name(names: list[str], wanted: str | None) -> str:
    """Return the name of the sheet to load, and report it with the list of all sheets."""
    if not names:
        raise _UnreadableError("has no sheets.")
    listed = ", ".join(f"{name!r:.{_MAX_NAME}}" for name in names[:_MAX_LISTED]) + ", ..." * (len(names) > _MAX_LISTED)
    name = names[0] if wanted is None else wanted
    _reply(sheet=name[:_MAX_NAME], sheets=listed if len(names) > 1 else None)
    if name not in names:
        raise _UnreadableError(f"has no sheet {name!r:.200}; the sheets are {listed}.")
    return name


def _reason(error: Exception, members: list[str]) -> str:
    """Return why a workbook cannot be read; for an OpenDocument file, fastexcel does not report the reason."""
    if "content.xml" in members:
        return (
            "cannot be read as an OpenDocument file: it is damaged, or has cells far from the table. Delete them, or"
            " save the table as CSV."
        )
    first_line = str(error).partition("\n")[0].rstrip(".")
    hint = "" if members else " If it is text, choose its format (--format csv)."
    return f"cannot be read as an Excel file: {first_line}.{hint}"


def _reply(**facts: Any) -> None:
    """Print a line for the parent process."""
    sys.stdout.buffer.write(json.dumps(facts).encode() + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
