"""Table formats, recognised by the extension of a file or by its first bytes."""

from pathlib import Path

from imondrian.errors import InvalidInputError

FORMATS = ("csv", "tsv", "ndjson", "parquet")
LINE_FORMATS = ("csv", "tsv", "ndjson")  # can be read line by line
UNTYPED_FORMATS = ("csv", "tsv")  # do not distinguish numbers from text
_EXTENSIONS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".parquet": "parquet",
    ".pq": "parquet",
}
_PARQUET = b"PAR1"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # some programs write it before UTF-8 text
_UNSUPPORTED = {
    b"PK\x03\x04": "a zip or an Excel file",
    b"\xd0\xcf\x11\xe0": "an old Excel file",
    b"\xff\xfe": "text in UTF-16",
    b"\xfe\xff": "text in UTF-16",
}
_SEPARATORS = b",;\t|"


def format_by_name(path: str) -> str | None:
    """Return the format that the extension names, or None; the extension `.gz` is ignored."""
    name = Path(path.removesuffix(".gz"))
    return _EXTENSIONS.get(name.suffix.lower())


def output_format(path: str) -> str:
    """Return the format to write, by the extension; standard output ("-") gets CSV.

    Raises
    ------
    InvalidInputError
        If the extension is unknown or `.gz`.
    """
    found = "csv" if path == "-" else format_by_name(path)
    if found is None or path.endswith(".gz"):
        raise InvalidInputError(f"{path}: the name of an output table must end in {', '.join(_EXTENSIONS)}.")
    return found


def check_format(name: str) -> str:
    """Return the name of a format; raise an InvalidInputError if it is unknown."""
    if name not in FORMATS:
        raise InvalidInputError(f"The format must be one of {', '.join(FORMATS)}, but is {name!r}.")
    return name


def check_supported(start: bytes, name: str) -> None:
    """Raise an InvalidInputError if the first bytes are those of another file type or encoding."""
    for signature, what in _UNSUPPORTED.items():
        if start.startswith(signature):
            raise InvalidInputError(f"{name} is {what}: save it as CSV in UTF-8.")


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
    text = without_byte_order_mark(start).lstrip()
    if text.startswith(b"["):
        raise InvalidInputError(f"{name} is a JSON array: it must be NDJSON, one object per line.")
    return "ndjson" if text.startswith(b"{") else "csv"


def guess_separator(line: bytes) -> str:
    """Return the most frequent of `,`, `;`, tab and `|` in a line; the first of these if they are equally frequent."""
    counts = [line.count(separator) for separator in _SEPARATORS]
    return chr(_SEPARATORS[counts.index(max(counts))])


def without_byte_order_mark(start: bytes) -> bytes:
    """Return the bytes without a leading UTF-8 byte order mark."""
    return start.removeprefix(_BYTE_ORDER_MARK)
