"""Table formats, recognised by the extension of a file or by its first bytes."""

from pathlib import Path

from imondrian.base.errors import InvalidInputError

FORMATS = ("csv", "tsv", "ndjson", "parquet", "xlsx")
LINE_FORMATS = ("csv", "tsv", "ndjson")  # can be read line by line
UNTYPED_FORMATS = ("csv", "tsv")  # do not distinguish numbers from text
SEPARATORS = (",", ";", "\t", "|")  # of CSV fields
_EXTENSIONS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".xlsx": "xlsx",
    ".xlsm": "xlsx",
}
_WRITTEN = tuple(name for name, file_format in _EXTENSIONS.items() if file_format != "xlsx")
_PARQUET = b"PAR1"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # some programs write it before UTF-8 text
_ZIP, _OLD_EXCEL = b"PK\x03\x04", b"\xd0\xcf\x11\xe0"
_MODEL = b'"imondrian forest"'  # in the first member of a model file, which is a zip


def format_by_name(path: str) -> str | None:
    """Return the format that the extension names, or None; the extension `.gz` is ignored."""
    name = Path(path.removesuffix(".gz"))
    return _EXTENSIONS.get(name.suffix.lower())


def output_format(path: str) -> str:
    """Return the format to write, by the extension; standard output ("-") gets CSV.

    Raises
    ------
    InvalidInputError
        If the extension is unknown, `.gz` or that of a workbook.
    """
    found = "csv" if path == "-" else format_by_name(path)
    if found is None or not path.lower().endswith((*_WRITTEN, "-")):
        raise InvalidInputError(f"{path}: the name of an output table must end in {', '.join(_WRITTEN)}.")
    return found


def check_format(name: str) -> str:
    """Return the name of a format; raise an InvalidInputError if it is unknown."""
    if name not in FORMATS:
        raise InvalidInputError(f"The format must be one of {', '.join(FORMATS)}, but is {name!r}.")
    return name


def check_supported(start: bytes, name: str) -> None:
    """Raise an InvalidInputError if the first bytes are those of a file type that cannot be read."""
    if start.startswith(_ZIP) and _MODEL in start:
        raise InvalidInputError(f"{name} is a model file, not a table (imondrian info describes it).")
    if start.startswith(_OLD_EXCEL):
        raise InvalidInputError(f"{name} is an old or protected Excel file: save it as .xlsx or as CSV.")


def is_workbook(start: bytes) -> bool:
    """Return True if the first bytes are those of a zip file, as an Excel workbook is."""
    return start.startswith(_ZIP)


def check_separator(separator: str) -> str:
    r"""Return the separator of CSV fields, one character; `\t` and `tab` stand for the tab character."""
    separator = {"\\t": "\t", "tab": "\t"}.get(separator, separator)
    if len(separator.encode()) != 1 or separator in '"\n\r':
        raise InvalidInputError(f"The separator must be one ASCII character other than a quote, but is {separator!r}.")
    return separator


def format_by_content(start: bytes, name: str) -> str:
    """Return the format that the first bytes indicate; text that is not JSON is CSV."""
    if start.startswith(_PARQUET):
        return "parquet"
    if is_workbook(start):
        return "xlsx"
    text = without_byte_order_mark(start).lstrip()
    if text.startswith(b"["):
        raise InvalidInputError(f"{name} is a JSON array: it must be NDJSON, one object per line.")
    return "ndjson" if text.startswith(b"{") else "csv"


def without_byte_order_mark(start: bytes) -> bytes:
    """Return the bytes without a leading UTF-8 byte order mark."""
    return start.removeprefix(_BYTE_ORDER_MARK)
