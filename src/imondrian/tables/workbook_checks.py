"""Check, before a workbook is loaded, that its sheets and texts fit into memory.

The reader of workbooks allocates every cell between the first and the last one that is used: a single cell in the
last corner of a sheet needs a terabyte, and ends the process. It also copies a shared text to every cell that has it.
Therefore the span of a sheet and the length of its texts are found first, in bounded memory.
"""

import io
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from xml.etree import ElementTree as ET

from imondrian.base.errors import InvalidInputError
from imondrian.tables.ods_spans import largest_table
from imondrian.tables.sheet_texts import n_text_bytes
from imondrian.tables.spans import MAX_CELLS, MAX_TEXT_BYTES, CellSpan, TooMuchTextError, UncheckedSheetError
from imondrian.tables.xlsb_spans import binary_span, n_binary_text_bytes, relation_of_sheet
from imondrian.tables.xlsx_spans import xml_span
from imondrian.tables.zip_directory import has_second_name

_CHUNK_BYTES = 2**20
_MAX_INDEX_BYTES = 2**24  # of the list of sheets
_MAX_PART_BYTES, _MAX_PARTS = 2**29, "512 MiB"  # of the parts of a workbook that are loaded with every sheet
_SHARED_TEXTS, _BINARY_TEXTS = "sharedStrings.xml", "sharedStrings.bin"
_PARTS = [_SHARED_TEXTS, _BINARY_TEXTS, "styles.xml", "styles.bin", "workbook.xml", "workbook.bin"]
_PARTS += ["workbook.xml.rels", "workbook.bin.rels"]
_UNLIMITED = 2**62
_FOLDERS = re.compile(r"[\\/]")
_ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, OSError, ValueError)
_Chunks = Callable[[], Iterator[bytes]]


def check_document(content: bytes, name: str) -> None:
    """Raise InvalidInputError if the sheets of an OpenDocument file are too large: opening it loads them all."""
    for document in _members(content, name, "content.xml"):
        try:
            found = largest_table(document())
        except UncheckedSheetError as error:
            raise InvalidInputError(f"{name} is damaged: {error}.") from None
        except TooMuchTextError:
            raise InvalidInputError(f"{name}: its cells contain more than 4 GiB of text: save it as CSV.") from None
        if found is not None:
            raise InvalidInputError(
                f"{name}: the sheet {found.name!r} spans {found.n_rows:,} rows and {found.n_columns:,} columns: delete"
                " the cells far from the table, or save the table as CSV."
            )


def check_parts(content: bytes, name: str) -> None:
    """Raise InvalidInputError if shared texts and styles of a workbook are too large: opening it loads them."""
    n_bytes = 0
    for part in _members(content, name, *_PARTS):
        for chunk in part():
            n_bytes += len(chunk)
            if n_bytes > _MAX_PART_BYTES:
                raise InvalidInputError(
                    f"{name}: the shared texts and styles of the workbook are longer than {_MAX_PARTS}: save the table"
                    " as CSV."
                )


def check_sheet(content: bytes, sheet: str, name: str) -> None:
    """Raise InvalidInputError if a sheet of an Excel workbook spans more than `MAX_CELLS` cells, or has too much text.

    Parameters
    ----------
    content : bytes
        The workbook.
    sheet : str
        Name of the sheet.
    name : str
        Name of the file in error messages.
    """
    try:
        for xml in _sheet_members(content, sheet, name, "workbook.xml", _relations_in_xml):
            _check_span(xml_span(xml), sheet, name)
            for shared in list(_members(content, name, _SHARED_TEXTS)) or [_no_texts]:
                _check_text(n_text_bytes(xml, shared), sheet, name)
        for records in _sheet_members(content, sheet, name, "workbook.bin", relation_of_sheet):
            _check_span(binary_span(records()), sheet, name)
            for shared in list(_members(content, name, _BINARY_TEXTS)) or [_no_texts]:
                _check_text(n_binary_text_bytes(records(), shared()), sheet, name)
    except UncheckedSheetError as error:
        raise InvalidInputError(f"{name}: the sheet {sheet!r} is damaged: {error}.") from None


def _check_span(span: CellSpan | None, sheet: str, name: str) -> None:
    if span is not None and span.n_cells > MAX_CELLS:
        cells = span.far_cells()
        raise InvalidInputError(
            f"{name}: the sheet {sheet!r} spans {span.n_rows:,} rows and {span.n_columns:,} columns because of"
            f" {'a cell' if len(cells) == 1 else 'cells'} at {' and '.join(cells)}: delete"
            f" {'it' if len(cells) == 1 else 'them'}, or save the table as CSV."
        )


def _check_text(n_bytes: int, sheet: str, name: str) -> None:
    if n_bytes > MAX_TEXT_BYTES:
        raise InvalidInputError(
            f"{name}: the cells of the sheet {sheet!r} contain more than 4 GiB of text: save it as CSV."
        )


# -- members of the archive ---------------------------------------------------------------------------------------


def _sheet_members(
    content: bytes, sheet: str, name: str, index: str, relations: Callable[[bytes, str], set[str]]
) -> Iterator[_Chunks]:
    """Yield the members that may be the sheet: those that the index names; all if it names none that exists.

    Paths are compared without their folders and case, since readers differ in how they resolve them.
    """
    for workbook in _members(content, name, index):
        targets = {
            target
            for relationships in _members(content, name, f"{index}.rels")
            for target in _targets(_start(relationships), relations(_start(workbook), sheet))
        }
        yield from list(_members(content, name, *targets)) or _members(content, name)


def _members(content: bytes, name: str, *wanted: str) -> Iterator[_Chunks]:
    """Yield the members with one of these names in any folder, or all members; each is read in chunks."""
    wanted = tuple(map(_file_name, wanted))
    try:
        archive = zipfile.ZipFile(io.BytesIO(content))
    except _ZIP_ERRORS as error:
        raise InvalidInputError(f"{name} cannot be read as an Excel file: {error}.") from None
    for member in archive.infolist():
        if has_second_name(member.extra):
            raise InvalidInputError(f"{name} is damaged: the member {member.filename!r:.60} has two names.")
        if not wanted or _file_name(member.filename) in wanted:
            yield _reader(archive, member, name)


def _reader(archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str) -> _Chunks:
    member.file_size = _UNLIMITED  # other readers ignore the size that is stored, and read all

    def chunks() -> Iterator[bytes]:
        try:
            with archive.open(member) as file:
                while chunk := file.read(_CHUNK_BYTES):
                    yield chunk
        except _ZIP_ERRORS as error:  # also a wrong checksum, which a reader that stops early does not notice
            raise InvalidInputError(f"{name} cannot be read as an Excel file: {error}.") from None

    return chunks


def _no_texts() -> Iterator[bytes]:
    return iter(())


def _file_name(path: str) -> str:
    return _FOLDERS.split(path)[-1].lower()


def _start(member: _Chunks) -> bytes:
    """Return the first bytes of a member: all, unless it is extremely long."""
    parts: list[bytes] = []
    for chunk in member():
        parts.append(chunk)
        if sum(map(len, parts)) > _MAX_INDEX_BYTES:
            break
    return b"".join(parts)


# -- the list of sheets -------------------------------------------------------------------------------------------


def _relations_in_xml(workbook: bytes, sheet: str) -> set[str]:
    """Return the ids of the relationships of the sheets with a name; readers differ in how they treat its blanks."""
    return {
        value
        for element in _elements(workbook)
        if element.attrib.get("name", "").split() == sheet.split()
        for key, value in element.attrib.items()
        if key.rpartition("}")[2] == "id"  # in any namespace
    }


def _targets(relationships: bytes, ids: set[str]) -> list[str]:
    return [element.attrib.get("Target", "") for element in _elements(relationships) if element.attrib.get("Id") in ids]


def _elements(xml: bytes) -> list[ET.Element]:
    """Return all elements; none if the text is not XML."""
    try:
        return list(ET.fromstring(xml).iter())  # noqa: S314 (expat limits the expansion of entities)
    except ET.ParseError:
        return []
