"""The formats of tables, known by the ending of a file's name or by its first bytes."""

from pathlib import Path

from imondrian.errors import InvalidInputError

FORMATS = ("csv", "tsv", "ndjson", "parquet")
LINE_FORMATS = ("csv", "tsv", "ndjson")  # that can be read line by line
TEXTS = ("csv", "tsv")  # formats that do not know numbers from text
_ENDINGS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".parquet": "parquet",
    ".pq": "parquet",
}
_PARQUET = b"PAR1"
_MARK = b"\xef\xbb\xbf"  # that some programs put before text
_FOREIGN = {
    b"PK\x03\x04": "a zip or an Excel file",
    b"\xd0\xcf\x11\xe0": "an old Excel file",
    b"\xff\xfe": "text in UTF-16",
    b"\xfe\xff": "text in UTF-16",
}
_SEPARATORS = b",;\t|"


def format_by_name(path: str) -> str | None:
    """Tell the format by the ending of the name; that of a compressed file stands before its `.gz`."""
    name = Path(path.removesuffix(".gz"))
    return _ENDINGS.get(name.suffix.lower())


def format_to_write(path: str) -> str:
    """Tell the format to write by the ending; standard output gets CSV."""
    found = "csv" if path == "-" else format_by_name(path)
    if found is None or path.endswith(".gz"):
        raise InvalidInputError(f"{path}: a table can be written to a file that ends in {', '.join(_ENDINGS)}.")
    return found


def checked_format(name: str) -> str:
    """Check the name of a format."""
    if name not in FORMATS:
        raise InvalidInputError(f"The format must be one of {', '.join(FORMATS)}, but is {name!r}.")
    return name


def check_kind(start: bytes, name: str) -> None:
    """Refuse by its first bytes what is no table, or text of another encoding."""
    for mark, what in _FOREIGN.items():
        if start.startswith(mark):
            raise InvalidInputError(f"{name} is {what}: save it as CSV in UTF-8.")


def checked_separator(separator: str) -> str:
    """Check what is to separate the fields of CSV; tab may be written out."""
    separator = {"\\t": "\t", "tab": "\t"}.get(separator, separator)
    if len(separator.encode()) != 1 or separator in '"\n\r':
        raise InvalidInputError(f"The separator must be one character, but is {separator!r}.")
    return separator


def format_by_content(start: bytes, name: str) -> str:
    """Tell the format of what has this name by its first bytes."""
    if start.startswith(_PARQUET):
        return "parquet"
    text = without_mark(start).lstrip()
    if text.startswith(b"["):
        raise InvalidInputError(f"{name} is a list in JSON: it must be NDJSON, an object on every line.")
    return "ndjson" if text.startswith(b"{") else "csv"


def separator_in(line: bytes) -> str:
    """Tell what separates the fields of a line: of `,`, `;`, tab and `|` the most frequent, in doubt the first."""
    counts = [line.count(separator) for separator in _SEPARATORS]
    return chr(_SEPARATORS[counts.index(max(counts))])


def without_mark(start: bytes) -> bytes:
    """Take away the mark that some programs put before text."""
    return start.removeprefix(_MARK)
